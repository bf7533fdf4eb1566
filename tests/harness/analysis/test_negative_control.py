"""The negative control: on prompts that share nothing no system may gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness import paper
from harness.analysis.claims import claim as claim_parts
from harness.analysis.claims import negative_control
from harness.analysis.claims.claim import Result, Verdict
from harness.analysis.claims.evaluate import evaluate
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell

(CLAIM,) = [
    claim
    for claim in claim_parts.load(paper.ROOT / "claims.yaml")
    if claim.judge == "negative_control"
]


def runs(
    system: str, values: Sequence[float], kind: str = "negative_control", **parts: Any
) -> list[MadeUpCell]:
    return [
        gpu_cell(system, value, kind=kind, lengths=(4096,), repetition=index, **parts)
        for index, value in enumerate(values)
    ]


DEFAULT = runs("sglang_default", [1000.0, 1001.0, 999.0])


def judge(*cells: Sequence[MadeUpCell]) -> Verdict:
    (verdict,) = evaluate([CLAIM], [cell for some in cells for cell in some], [], None)
    return verdict


def test_a_system_without_a_gain_passes() -> None:
    verdict = judge(DEFAULT, runs("granikv", [1010.0, 1012.0, 1009.0]))
    assert verdict.result is Result.PASS
    assert verdict.observed.startswith("granikv 1.010× [1.0")
    assert verdict.observed.endswith("of sglang_default")


def test_a_slower_system_does_not_gain() -> None:
    assert judge(DEFAULT, runs("granikv", [900.0, 905.0, 895.0])).result is Result.PASS


def test_a_gain_that_nothing_can_explain_fails() -> None:
    verdict = judge(DEFAULT, runs("granikv", [1050.0, 1055.0, 1045.0]))
    assert verdict.result is Result.FAIL
    assert verdict.reason == "granikv gains more than 3%"


def test_every_system_is_judged_not_ours_alone() -> None:
    good = runs("granikv", [1000.0, 1000.0, 1001.0])
    verdict = judge(DEFAULT, good, runs("sglang_cascade", [1100.0, 1101.0, 1099.0]))
    assert verdict.result is Result.FAIL
    assert verdict.reason.startswith("sglang_cascade")


def test_the_fastest_stock_system_is_the_measure() -> None:
    """5% above flashinfer and level with fa3, whose prefill it uses: no gain of its own."""
    fa3 = runs("sglang_fa3", [1050.0, 1049.0, 1051.0])
    verdict = judge(DEFAULT, fa3, runs("granikv", [1050.0, 1052.0, 1048.0]))
    assert verdict.result is Result.PASS
    assert "of sglang_fa3" in verdict.observed


def test_a_wide_interval_decides_nothing() -> None:
    verdict = judge(DEFAULT, runs("granikv", [950.0, 1000.0, 1060.0]))
    assert verdict.result is Result.INCONCLUSIVE
    assert "an interval reaches above +3%" in verdict.reason


def test_prompts_that_were_cached_are_no_control() -> None:
    shared = runs("granikv", [1000.0, 1000.0, 1001.0], metrics={"hit_rate": 0.4})
    verdict = judge(DEFAULT, shared)
    assert verdict.result is Result.FAIL
    assert verdict.observed.startswith("hit rate 0.400 in cell granikv")
    nearly = runs("granikv", [1000.0, 1000.0, 1001.0], metrics={"hit_rate": 1e-6})
    assert judge(DEFAULT, nearly).result is Result.PASS


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([], "not measured beside a stock system"),
        (DEFAULT, "not measured beside a stock system"),
        (runs("granikv", [1.0] * 3), "not measured beside a stock system"),
        (DEFAULT[:1] + runs("granikv", [1000.0]), "granikv: 1 of 3 runs"),
        (DEFAULT + runs("granikv", [9e3] * 3, kind="sharegpt"), "not measured beside a stock"),
        (DEFAULT + runs("granikv", [9e3] * 3, valid=False), "not measured beside a stock system"),
        (
            [
                cpu_cell(system, speed, kind="negative_control", repetition=index)
                for system, speed in (("sglang_default", 1.0), ("granikv", 9.0))
                for index in range(3)
            ],
            "a CPU cell is a functional check and forms no ratio",
        ),
    ],
)
def test_what_decides_nothing(cells: list[MadeUpCell], reason: str) -> None:
    verdict = judge(cells)
    assert verdict.result is Result.INCONCLUSIVE
    assert reason in verdict.reason


def test_settings_are_not_mixed() -> None:
    """Twice as fast at another B is no gain."""
    other = runs("granikv", [2000.0, 2001.0, 1999.0], b=64)
    assert negative_control.gains([*DEFAULT, *other], ["sglang_default"]) == []
