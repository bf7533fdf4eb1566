"""The command of a cell brings back the cell's configuration."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from harness import config
from harness.report.command import command

OVERRIDES = [
    ["telemetry=server", "telemetry.state_hz=2", "profile.kind=kineto", "hardware=h200"],
    ["experiment=table23", "workload.read=unshared", "hardware=h200"],
    ["experiment=table03_cpu", "system=granikv", "workload.prefix_length=128"],
    ["experiment=table21", "hardware=h200", "workload=multi_prefix_k8", "repetition=2"],
    [
        "system=sglang_fa3",
        "model=qwen25_14b",
        "workload=synthetic",
        "load=burst",
        "hardware=h200",
        "kv_budget=paper",
        "engine.arguments=[--log-level,warning]",
        "+engine.environment.NAME='it, and: a \\'b'",
    ],
]


def _stored(overrides: list[str]) -> dict[str, Any]:
    """A configuration as a cell keeps it: without this machine's paths."""
    values = config.compose_cell(overrides)
    for key in ("output", "rerun"):
        del values[key]
    values["model"].pop("path", None)
    values["engine"].pop("python", None)
    return values


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_the_command_composes_the_same_configuration(overrides: list[str]) -> None:
    wanted = _stored(overrides)
    said = command(wanted)
    assert said is not None
    words = shlex.split(said)
    assert words[:3] == ["python", "-m", "harness"]
    assert _stored(words[3:]) == wanted


def test_only_what_differs_is_said() -> None:
    plain = command(_stored(["hardware=cpu"]))
    assert plain == (
        "python -m harness system=sglang_default model=tiny workload=sharegpt_cpu "
        "load=poisson_capped_cpu hardware=cpu"
    )
    other = command(_stored(["hardware=cpu", "repetition=1", "kv_budget=4096"]))
    assert other == f"{plain} repetition=1 kv_budget=4096"


def test_what_conf_cannot_make_has_no_command() -> None:
    assert command({"system": {"name": "of another project"}}) is None
    assert command({}) is None
