"""The negative control: on prompts that share nothing no system may gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

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
FA3 = runs("sglang_fa3", [990.0, 991.0, 989.0])
CASCADE = runs("sglang_cascade", [980.0, 981.0, 979.0])
OTHERS = FA3 + CASCADE


def judge(*cells: Sequence[MadeUpCell]) -> Verdict:
    (verdict,) = evaluate([CLAIM], [cell for some in cells for cell in some], [], None)
    return verdict


def test_a_system_without_a_gain_passes() -> None:
    verdict = judge(DEFAULT, OTHERS, runs("granikv", [1010.0, 1012.0, 1009.0]))
    assert verdict.result is Result.PASS
    assert verdict.observed.startswith("GraniKV 1.010× [1.0")
    assert verdict.observed.endswith("of SGLang default")


def test_a_slower_system_does_not_gain() -> None:
    assert judge(DEFAULT, OTHERS, runs("granikv", [900.0, 905.0, 895.0])).result is Result.PASS


def test_a_gain_that_nothing_can_explain_fails() -> None:
    verdict = judge(DEFAULT, OTHERS, runs("granikv", [1050.0, 1055.0, 1045.0]))
    assert verdict.result is Result.FAIL
    assert verdict.reason == "GraniKV gains more than 3%"


def test_every_system_is_judged_not_ours_alone() -> None:
    good = runs("granikv", [1000.0, 1000.0, 1001.0])
    verdict = judge(DEFAULT, FA3, good, runs("sglang_cascade", [1100.0, 1101.0, 1099.0]))
    assert verdict.result is Result.FAIL
    assert verdict.reason.startswith("SGLang-Cascade")


def test_the_fastest_stock_system_is_the_measure() -> None:
    """5% above flashinfer and level with fa3, whose prefill it uses: no gain of its own."""
    fa3 = runs("sglang_fa3", [1050.0, 1049.0, 1051.0])
    verdict = judge(DEFAULT, fa3, CASCADE, runs("granikv", [1050.0, 1052.0, 1048.0]))
    assert verdict.result is Result.PASS
    assert "of SGLang with FA3" in verdict.observed


def test_a_wide_interval_decides_nothing() -> None:
    verdict = judge(DEFAULT, OTHERS, runs("granikv", [950.0, 1000.0, 1060.0]))
    assert verdict.result is Result.INCONCLUSIVE
    assert "an interval reaches above +3%" in verdict.reason


def test_prompts_that_were_cached_are_no_control() -> None:
    shared = runs("granikv", [1000.0, 1000.0, 1001.0], metrics={"hit_rate": 0.4})
    verdict = judge(DEFAULT, OTHERS, shared)
    assert verdict.result is Result.FAIL
    assert verdict.observed.startswith("hit rate 0.400 in cell granikv")
    nearly = runs("granikv", [1000.0, 1000.0, 1001.0], metrics={"hit_rate": 1e-6})
    assert judge(DEFAULT, OTHERS, nearly).result is Result.PASS


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([], "not measured beside a stock system"),
        (DEFAULT + FA3, "not measured beside a stock system"),
        (runs("granikv", [1.0] * 3), "not measured beside a stock system"),
        (DEFAULT + OTHERS + runs("granikv", [1000.0]), "GraniKV: 1 of 3 runs"),
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


@pytest.mark.parametrize("granikv", [1000.0, 2000.0])
def test_nothing_is_decided_while_a_baseline_is_missing(granikv: float) -> None:
    """Of FA3, with which GraniKV prefills, least of all."""
    ours = runs("granikv", [granikv] * 3)
    alone = judge(DEFAULT, ours)
    assert (alone.result, alone.reason) == (
        Result.INCONCLUSIVE,
        "of 3 runs: SGLang with FA3 0, SGLang-Cascade 0",
    )
    assert alone.observed.startswith("GraniKV")
    invalid = runs("sglang_fa3", [990.0], valid=False, reasons=("late",))
    almost = judge(DEFAULT, FA3[:2], invalid, CASCADE, ours)
    assert (almost.result, almost.reason) == (Result.INCONCLUSIVE, "of 3 runs: SGLang with FA3 2")
    assert judge(DEFAULT, FA3, CASCADE, ours).result is not Result.INCONCLUSIVE


def test_a_baseline_of_another_setting_is_missing_in_this_one() -> None:
    there = [cell for system in CLAIM.options["needs"] for cell in runs(system, [1e3] * 3, b=64)]
    verdict = judge(DEFAULT, runs("granikv", [1000.0] * 3), there)
    assert verdict.reason == "of 3 runs: SGLang with FA3 0, SGLang-Cascade 0"


def test_what_is_needed_is_measured_by_the_command() -> None:
    experiment = yaml.safe_load((paper.ROOT / "conf/experiment/negative_control.yaml").read_text())
    systems = experiment["hydra"]["sweeper"]["params"]["system"].split(",")
    assert set(CLAIM.options["needs"]) <= set(systems)
    assert set(CLAIM.options["baselines"]) & set(systems) <= set(CLAIM.options["needs"])


def test_settings_are_not_mixed() -> None:
    """Twice as fast at another B is no gain."""
    other = runs("granikv", [2000.0, 2001.0, 1999.0], b=64)
    assert negative_control.gains([*DEFAULT, *other], ["sglang_default"]) == []
