"""Claims on one number of a table, and on a whole grid, over made-up cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from granikv.dispatch import SaturationRule
from harness.analysis.claims.claim import FILE, Claim, Result, Verdict, load
from harness.analysis.claims.evaluate import evaluate
from harness.analysis.kernels import modelled_bytes
from harness.errors import HarnessError
from harness.verify import expected
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import BS, LADDER, kernel, serving

CLAIMS = {claim.id: claim for claim in load(FILE)}


def one(claim: Claim | str, cells: Sequence[MadeUpCell]) -> Verdict:
    chosen = CLAIMS[claim] if isinstance(claim, str) else claim
    (verdict,) = evaluate([chosen], cells, [], None)
    return verdict


def speedup(hot_us: float, paged_us: float) -> list[MadeUpCell]:
    walls = {"HOT": ("shared", hot_us), "paged": ("unshared", paged_us)}
    cells = [(kernel(layout, read), wall) for layout, (read, wall) in walls.items()]
    return [
        MadeUpCell(cell.id, cell.config, dict(cell.metrics) | {"kernel_wall_s": wall * 1e-6})
        for cell, wall in cells
    ]


def forced(dense: Sequence[float], cascade: Sequence[float]) -> list[MadeUpCell]:
    """TPOT of both children at B = 256, one value a repetition."""
    cells = []
    for system, values in (("granikv_dense", dense), ("granikv_cascade", cascade)):
        for n, value in enumerate(values):
            cell = serving(system, "synthetic", (8192,), 256, repetition=n)
            metrics = dict(cell.metrics) | {"tpot_p50_ms": value}
            cells.append(MadeUpCell(cell.id, cell.config, metrics))
    return cells


def test_a_number_at_least_as_large_passes() -> None:
    verdict = one("table5-speedup", speedup(449, 6988))
    assert (verdict.result, verdict.observed) == (Result.PASS, "15.6×")
    assert verdict.reason == "asked for at least 14.04×"


def test_a_smaller_number_fails() -> None:
    assert one("table5-speedup", speedup(449, 3000)).result is Result.FAIL


def test_at_most() -> None:
    claim = "table16-dense-at-1024"
    passed = one(claim, forced((6.6, 6.7, 6.8), (10.0, 10.0, 10.0)))
    assert (passed.result, passed.reason) == (Result.PASS, "asked for at most 0.737×")
    assert one(claim, forced((9.0, 9.1, 9.2), (10.0, 10.0, 10.0))).result is Result.FAIL
    across = one(claim, forced((6.0, 7.4, 8.8), (10.0, 10.0, 10.0)))
    assert across.result is Result.INCONCLUSIVE


def test_within_fails_on_either_side() -> None:
    claim = replace(
        CLAIMS["table16-dense-at-1024"],
        options=dict(CLAIMS["table16-dense-at-1024"].options, bound="within"),
    )
    assert one(claim, forced((6.7,) * 3, (10.0,) * 3)).result is Result.PASS
    assert one(claim, forced((4.0,) * 3, (10.0,) * 3)).result is Result.FAIL
    assert one(claim, forced((9.0,) * 3, (10.0,) * 3)).result is Result.FAIL


@pytest.mark.parametrize(
    ("share", "result"), [(1.001, Result.PASS), (1.1, Result.FAIL), (0.02, Result.FAIL)]
)
def test_a_deviation_fails_on_either_side_of_zero(share: float, result: Result) -> None:
    """Traffic far below the byte model contradicts it as traffic far above does."""
    cell = kernel("paged", "unshared", counted=True)
    metrics = dict(cell.metrics) | {"kernel_dram_bytes": share * (modelled_bytes(cell) or 0)}
    counted = MadeUpCell(cell.id, cell.config, metrics)
    assert one("table23-byte-model", [counted]).result is result


def test_too_few_runs_decide_nothing() -> None:
    verdict = one("table16-dense-at-1024", forced((6.7,), (10.0,)))
    assert (verdict.result, verdict.reason) == (Result.INCONCLUSIVE, "1 of 3 runs")


def test_counters_need_one_run() -> None:
    cell = serving("granikv", "synthetic", (8192,), 256)
    assert cell.state is not None
    routed = dict(cell.state) | {"counters": {"steps": 100, "steps_dense": 100, "rows": 25600}}
    always = MadeUpCell(cell.id, cell.config, cell.metrics, state=routed)
    assert one("table15-8k-b256", [always]).result is Result.PASS
    assert one("table15-8k-b256", [cell]).result is Result.FAIL


COST = "the least predicted time of paged, dense"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (COST, f"not chosen by Eq. 2 but by {COST}"),
        (SaturationRule(512).describe(), "chosen by Eq. 2"),
        (
            SaturationRule(64).describe(),
            "not chosen by Eq. 2 but by dense when rows * n_q/kv >= 64",
        ),
        ("", "not chosen by Eq. 2 but by an unknown rule"),
    ],
)
def test_the_share_of_rows_and_the_rule_stand_beside_the_share_of_steps(
    rule: str, said: str
) -> None:
    """Seven steps of two rows are 5% of the steps; what ran before the load is not counted."""
    cell = serving("granikv", "synthetic", (16384,), 256)
    before = {"steps": 50, "steps_dense": 50, "rows": 500, "rows_dense": 500}
    counted = {"steps": 185, "steps_dense": 178, "steps_paged": 7}
    counted |= {"rows": 33268, "rows_dense": 33254}
    state = {"counters": counted, "backends": {"rule": rule}}
    record = {"server": {"counters_before": before}}
    other = serving("granikv", "synthetic", (8192,), 256)  # whose rows are no business of this one
    verdict = one(
        "table15-16k-b256",
        [MadeUpCell(cell.id, cell.config, cell.metrics, state=state, record=record), other],
    )
    assert (verdict.result, verdict.observed) == (Result.FAIL, "94.8%")
    assert verdict.reason.startswith("asked for at least 98%; 99.957% of the rows dense; " + said)


@pytest.mark.parametrize(
    ("share", "rate", "said"),
    [
        (0.02, 94.78, "; L2 hit rate 95%: caches served the rest"),
        (0.02, 80.2, "; L2 hit rate 80%: caches served the rest"),
        (1.1, 94.78, "; L2 hit rate 95%"),
        (0.02, None, ""),
    ],
)
def test_the_l2_hit_rate_stands_beside_the_dram_traffic(
    share: float, rate: float | None, said: str
) -> None:
    cell = kernel("paged", "unshared", counted=True)
    counted = {"kernel_dram_bytes": share * (modelled_bytes(cell) or 0), "kernel_l2_hit_pct": rate}
    metrics = dict(cell.metrics) | counted
    verdict = one("table23-byte-model", [MadeUpCell(cell.id, cell.config, metrics)])
    assert verdict.reason == f"asked for -0.264% to 0.264%{said}"


def of_runs(claim: str, seconds: Sequence[float]) -> Verdict:
    cells = []
    for n, value in enumerate(seconds):
        cell = kernel("HOT", "shared", system="granikv")
        metrics = dict(cell.metrics) | {"dispatch_cpu_s": value}
        cells.append(MadeUpCell(f"{cell.id}-{n}", dict(cell.config, repetition=n), metrics))
    return one(claim, cells)


def test_a_wide_interval_is_still_written_with_two_digits() -> None:
    """0.7 [0.5, 1.0] says not which side of 1 the interval ends on."""
    verdict = of_runs("table17-host-time", (0.54e-6, 0.69e-6, 0.96e-6))
    assert (verdict.result, verdict.observed) == (Result.PASS, "0.73 µs [0.54, 0.96]")
    share = of_runs("table17-step-share", (40e-6, 64e-6, 88e-6))
    assert share.observed == "0.16% [0.10, 0.22]"
    sharp = of_runs("table17-host-time", (0.984e-6, 1.0e-6, 1.016e-6))
    assert sharp.observed == "1.00 µs [0.98, 1.02]"


def test_what_was_observed_has_its_unit_once() -> None:
    """A column's heading holds it where the numbers do not."""
    cell = kernel("HOT", "shared", system="granikv")
    assert one("table17-host-time", [cell]).observed == "0.50 µs"
    counted = kernel("paged", "unshared", counted=True)
    assert one("table23-byte-model", [counted]).observed.count("%") == 1


def test_a_missing_cell_decides_nothing() -> None:
    verdict = one("table5-speedup", [serving("granikv", "sharegpt", (512,), 8)])
    assert verdict.result is Result.INCONCLUSIVE
    assert "not measured" in verdict.reason
    assert one("table5-speedup", []).result is Result.INCONCLUSIVE


def test_a_cpu_decides_none() -> None:
    for name in ("table5-speedup", "ours-no-worse-default"):
        verdict = one(name, [cpu_cell("granikv", 1.0)])
        assert verdict.result is Result.INCONCLUSIVE
        assert "functional check" in verdict.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row": ["nowhere"], "column": "speedup"}, "has no row"),
        ({"row": ["paged", "by each row"], "column": "nothing"}, "has no column 'nothing'"),
        ({"row": ["paged", "by each row"], "column": "speedup", "bound": "about"}, "none of"),
    ],
)
def test_a_claim_on_no_such_number_is_an_error(options: dict[str, object], message: str) -> None:
    claim = replace(CLAIMS["table5-speedup"], options=options | {"runs": 1})
    with pytest.raises(HarnessError, match=message):
        one(claim, speedup(449, 6988))


def test_every_claim_can_be_judged_on_a_few_cells() -> None:
    cells = [*speedup(449, 6988), *forced((6.7,) * 3, (10.0,) * 3)]
    verdicts = evaluate(list(CLAIMS.values()), cells, [], None)
    assert len(verdicts) == len(CLAIMS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table3-llama-16k-default", "2.16× ± 10%"),
        ("ours-16k-default", "3.00×"),
        ("table17-host-time", "at most 1 µs"),
        ("table12-peak-llama", "256"),
        ("table15-8k-b256", "at least 100% ± 2%"),
        ("greedy-equality", ""),
    ],
)
def test_what_is_expected_in_words(name: str, text: str) -> None:
    assert expected(CLAIMS[name]) == text


def grid(ratios: dict[tuple[int, int], Sequence[float]] | None = None) -> list[MadeUpCell]:
    """Three runs at every point, GraniKV 1.1 times as fast but where `ratios` says otherwise."""
    cells = []
    for l_p in LADDER:
        for b in BS:
            for n, factor in enumerate((ratios or {}).get((l_p, b), (1.1, 1.1, 1.1))):
                for system, speed in (("sglang_default", 1000.0), ("granikv", 1000.0 * factor)):
                    cell = serving(system, "sharegpt", (l_p,), b, repetition=n)
                    cells.append(MadeUpCell(cell.id, cell.config, {"output_tok_s": speed}))
    return cells


NO_WORSE = "ours-no-worse-default"


def everywhere(*runs: float) -> dict[tuple[int, int], Sequence[float]]:
    return {(l_p, b): runs for l_p in LADDER for b in BS}


def test_nowhere_worse_passes() -> None:
    verdict = one(NO_WORSE, grid({(512, 8): (0.97, 1.0, 1.03)}))
    reason = "all 36 points: 36 of 3 runs or more, no interval wholly below 1.00×"
    assert (verdict.result, verdict.reason) == (Result.PASS, reason)
    lowest = "lowest 1.00× at L_p = 512, B = 8 (3 runs)"
    assert verdict.observed == f"{lowest}, geometric mean 1.10×"


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ((0.90, 0.90, 0.90), "0.90×, below 0.95×"),
        ((0.80, 0.95, 1.05), "0.93×, below 0.95×"),
        ((0.97, 0.98, 0.98), "the interval [0.97, 0.98] lies below 1.00×"),
    ],
)
def test_one_worse_point_fails(runs: Sequence[float], reason: str) -> None:
    verdict = one(NO_WORSE, grid({(1024, 128): runs}))
    assert verdict.result is Result.FAIL
    assert verdict.reason == f"L_p = 1K, B = 128: {reason}"


def test_worse_points_are_all_named_the_lowest_first() -> None:
    verdict = one(NO_WORSE, grid({(512, 8): (0.94,) * 3, (16384, 1024): (0.80,) * 3}))
    assert verdict.reason == (
        "L_p = 16K, B = 1,024: 0.80×, below 0.95×; L_p = 512, B = 8: 0.94×, below 0.95×"
    )


@pytest.mark.parametrize("runs", [(0.93,), (0.97,), (1.0,), (1.09,), (0.5, 0.5), (1.09, 1.5)])
def test_fewer_runs_that_go_below_the_spread_are_asked_for_more(runs: Sequence[float]) -> None:
    """One bad run may be chance, and a good one too: two runs count by the lower of them."""
    verdict = one(NO_WORSE, grid({(1024, 128): runs}))
    assert verdict.result is Result.INCONCLUSIVE
    said = "one run" if len(runs) == 1 else "2 runs"
    point = f"{sum(runs) / len(runs):.2f}× at L_p = 1K, B = 128 ({said})"
    assert verdict.reason == f"measure again, 3 runs, what goes below 1.10× in fewer: {point}"


def test_one_run_beside_three_of_the_baseline_is_one_run() -> None:
    cells = [c for c in grid({(512, 8): (0.9,) * 3}) if not _again(c, "granikv-sharegpt-512-b8-")]
    verdict = one(NO_WORSE, cells)
    assert verdict.result is Result.INCONCLUSIVE
    assert "0.90× at L_p = 512, B = 8 (one run)" in verdict.observed


def _again(cell: MadeUpCell, place: str) -> bool:
    return cell.id.startswith(place) and cell.config["repetition"] > 0


def test_points_to_measure_again_are_named_the_lowest_first() -> None:
    verdict = one(NO_WORSE, grid({(512, 8): (1.01,), (512, 32): (0.90,), (512, 128): (1.11,)}))
    assert verdict.reason.endswith(
        ": 0.90× at L_p = 512, B = 32 (one run), 1.01× at L_p = 512, B = 8 (one run)"
    )


def test_what_is_below_one_is_never_rounded_to_one() -> None:
    verdict = one(NO_WORSE, grid({(512, 8): (0.996,), (512, 32): (0.996, 0.996, 0.999)}))
    assert verdict.observed.startswith("lowest 0.996× at L_p = 512, B = 8 (one run)")


def test_one_run_above_the_spread_is_not_worse() -> None:
    verdict = one(NO_WORSE, grid(everywhere(1.11) | {(512, 8): (0.99, 1.0, 1.01)}))
    assert verdict.result is Result.PASS
    assert verdict.reason == (
        "all 36 points: 1 of 3 runs or more, no interval wholly below 1.00×; "
        "35 of fewer, at least 1.10×"
    )
    single = one(NO_WORSE, grid(everywhere(1.11)))
    assert (single.result, single.reason) == (
        Result.PASS,
        "all 36 points: 36 of fewer, at least 1.10×",
    )


def test_one_run_counts_for_the_mean_from_one_less_the_spread_on() -> None:
    counted = one(NO_WORSE, grid(everywhere(1.1) | {(512, 8): (0.91,)}))
    assert counted.observed.endswith("geometric mean 1.09×")
    left_out = one(NO_WORSE, grid(everywhere(1.1) | {(512, 8): (0.89,)}))
    assert left_out.observed.endswith("geometric mean 1.10× of 35 points")
    alone = one(NO_WORSE, grid(everywhere(0.89)))
    assert alone.result is Result.INCONCLUSIVE
    assert alone.observed == "lowest 0.89× at L_p = 512, B = 8 (one run)"


@pytest.mark.parametrize("runs", [(0.90, 0.96, 1.05), (0.98,)])
def test_a_mean_below_one_fails_though_each_point_is_uncertain(runs: Sequence[float]) -> None:
    verdict = one(NO_WORSE, grid(everywhere(*runs)))
    assert (verdict.result, verdict.reason) == (
        Result.FAIL,
        "the geometric mean is below 1.00×",
    )


def test_a_mean_without_every_point_does_not_fail() -> None:
    verdict = one(NO_WORSE, grid(everywhere(0.98) | {(512, 8): (0.89,)}))
    assert verdict.result is Result.INCONCLUSIVE


def test_a_missing_point_decides_nothing() -> None:
    cells = [cell for cell in grid({(512, 32): (0.9,)}) if "-512-b8-" not in cell.id]
    verdict = one(NO_WORSE, cells)
    assert verdict.result is Result.INCONCLUSIVE
    missing, again = verdict.reason.split("; ")
    assert missing == "35 of 36 points measured"
    assert again.startswith("measure again")
    assert one("ours-no-worse-fa3", cells).reason == "not measured"


def bursts(*ttft_s: float) -> list[MadeUpCell]:
    """Table 6's grid: a run of GraniKV for each TTFT p99, beside one of 0.1 s of SGLang with FA3;
    it delivers 1.2 times as much.
    """
    cells = []
    for l_p, b in ((l_p, b) for l_p in LADDER[:-1] for b in BS[:4]):
        for n, late in enumerate(ttft_s):
            for system, speed, ttft in (("sglang_fa3", 10.0, 0.1), ("granikv", 12.0, late)):
                cell = serving(system, "synthetic", (l_p,), b, repetition=n)
                metrics = {"output_tok_s": speed, "ttft_p99_s": ttft}
                cells.append(MadeUpCell(cell.id, cell.config, metrics))
    return cells


def test_a_metric_that_is_better_when_it_is_less_has_the_claimed_system_below() -> None:
    late = one("ours-bursts-ttft-fa3", bursts(0.12, 0.13, 0.12))
    assert late.result is Result.FAIL
    assert late.reason.count("0.81×, below 0.95×") == 20
    assert one("ours-bursts-ttft-fa3", bursts(0.1, 0.09, 0.1)).result is Result.PASS
    faster = one("ours-bursts-no-worse-fa3", bursts(0.12, 0.13, 0.12))
    assert (faster.result, faster.reason) == (
        Result.PASS,
        "all 20 points: 20 of 3 runs or more, no interval wholly below 1.00×",
    )
    assert one("ours-bursts-no-worse-default", bursts(0.1)).reason == "not measured"


def test_the_floor_and_the_spread_are_the_claims() -> None:
    claim = CLAIMS[NO_WORSE]
    cells = grid({(512, 8): (0.94,) * 3, (512, 32): (1.02,)})
    lenient = replace(claim, options=dict(claim.options, floor=0.9, spread=0.01))
    fails = one(lenient, cells)
    assert fails.reason.startswith("L_p = 512, B = 8: the interval")
    wavering = grid({(512, 8): (0.8, 0.94, 1.08), (512, 32): (1.02,)})
    assert one(claim, wavering).result is Result.FAIL
    assert one(lenient, wavering).result is Result.PASS
    without = {name: value for name, value in claim.options.items() if name != "spread"}
    with pytest.raises(HarnessError, match="'spread'"):
        one(replace(claim, options=without), cells)


def test_a_single_run_is_trusted_no_further_than_the_file_says_runs_differ() -> None:
    said = re.search(r"differ by up to (\d+)%", FILE.read_text("utf-8"))
    assert said
    for claim in CLAIMS.values():
        if claim.judge == "no_worse":
            assert claim.options["spread"] == int(said[1]) / 100
            assert (
                f"of fewer each point at least {1 + claim.options['spread']:.2f}" in claim.sentence
            )


SERVED = {12, 15, 16, 18, 22}
"""Tables of cells that are served."""


@pytest.mark.parametrize(
    "name", [c.id for c in CLAIMS.values() if c.judge == "table" and c.table in SERVED]
)
def test_a_missing_number_is_missing_alike_here_and_shipped(name: str) -> None:
    """Neither is told to measure here, nor by the command of another model's table."""
    cells = [kernel("HOT", "shared")]
    verdicts = evaluate([CLAIMS[name]], cells, cells, None)
    assert [verdict.reason for verdict in verdicts] == ["not measured"] * 2
