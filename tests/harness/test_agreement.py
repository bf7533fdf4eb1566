"""Whether systems gave the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import agreement, store
from harness.store import Cell
from tests.harness.test_metrics import request
from tests.harness.test_store import record


def cell(
    root: Path, system: str, outputs: list[str], dtype: str = "float32", valid: bool = True,
    workload: str = "w",
) -> Cell:  # fmt: skip
    log = store.frame(
        [{**request(i, [1.0]), "output_sha256": text} for i, text in enumerate(outputs)]
    )
    changes: dict[str, Any] = {
        "config": {
            "system": {"name": system},
            "model": {"name": "tiny"},
            "hardware": {"name": "cpu"},
            "repetition": 0,
        },
        "workload": {"sha256": workload},
        "server": {"facts": {"dtype": dtype}},
    }
    return store.write(root, record(f"{system}-{workload}", valid, **changes), log)


def test_equal_and_unequal_outputs_are_counted(tmp_path: Path) -> None:
    cells = [
        cell(tmp_path, "sglang_default", ["a", "b", "c"]),
        cell(tmp_path, "granikv", ["a", "b", "c"]),
        cell(tmp_path, "sglang_cascade", ["a", "x", "c"]),
    ]
    granikv, cascade = agreement.compare(cells)
    assert granikv.holds
    assert not cascade.holds
    assert str(cascade) == (
        "sglang_cascade: 2 of 3 greedy outputs equal sglang_default's (1 workloads)"
    )


@pytest.mark.parametrize("changes", [{"dtype": "bfloat16"}, {"valid": False}, {"workload": "v"}])
def test_what_cannot_be_compared_is_left_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    cells = [
        cell(tmp_path, "sglang_default", ["a"]),
        cell(tmp_path, "granikv", ["z"], **changes),
    ]
    assert agreement.compare(cells) == []
