"""Verdicts on made-up cells: right numbers pass, wrong ones fail, missing ones decide nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from granikv.dispatch import SaturationRule
from harness import paper
from harness.analysis.cells import group_size
from harness.analysis.claims import claim as claim_parts
from harness.analysis.claims import dispatch, slabs
from harness.analysis.claims.claim import Claim, Result, Verdict
from harness.analysis.claims.evaluate import evaluate
from harness.analysis.claims.ratio import bounds
from harness.errors import HarnessError
from harness.sweeps.entry import schedule
from harness.tables import registry
from harness.tables.entries import Printed
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import (
    MadeUpCell,
    cpu_cell,
    gpu_cell,
    pools,
    tree_node,
)

CLAIMS = {claim.id: claim for claim in claim_parts.load(paper.ROOT / "claims.yaml")}
LENGTHS = (2048, 4096, 8192, 16384)


def judge(
    name: str,
    here: Sequence[MadeUpCell] = (),
    shipped: Sequence[MadeUpCell] = (),
    report: Path | None = None,
) -> list[Verdict]:
    return evaluate([CLAIMS[name]], here, shipped, report)


def one(name: str, here: Sequence[MadeUpCell]) -> Verdict:
    (verdict,) = judge(name, here)
    return verdict


def runs(system: str, values: Sequence[float], **parts: Any) -> list[MadeUpCell]:
    return [
        gpu_cell(system, value, repetition=index, **parts) for index, value in enumerate(values)
    ]


def pair(granikv: Sequence[float], default: Sequence[float], **parts: Any) -> list[MadeUpCell]:
    return runs("granikv", granikv, **parts) + runs("sglang_default", default, **parts)


# --- claims.yaml itself ---------------------------------------------------------------------------


WORDS = {
    "table6-tpot": (2.6, "≈2.6×"),
    "table13-cascade-saves": (3.66, "3.66×"),
    "table13-storage-agnostic": (1.0, "within"),
    "short-prefix-llama": (0.97, "0.97×"),
    "short-prefix-qwen14b": (0.97, "0.97×"),
    "short-prefix-qwen32b": (0.97, "0.97×"),
}
"""Ratios that the paper gives in its text."""


def test_each_expected_ratio_is_the_papers() -> None:
    compared = 0
    for claim in CLAIMS.values():
        if claim.judge != "ratio" or claim.table is None:
            continue
        if claim.id in WORDS:
            assert claim.expected == WORDS[claim.id][0]
            continue
        at, compared = claim.options["at"], compared + 1
        rows = paper.select(paper.table(claim.table), config=at["config"], system="granikv")
        if claim.options["system"] != "granikv":
            rows = paper.select(paper.table(claim.table), system=claim.options["system"])
        for name in ("l_p", "k"):
            if name in at and rows[name].notna().any():
                rows = paper.select(rows, **{name: at[name]})
        fraction = at.get("traits", {}).get("hot_fraction")
        if fraction is not None:
            rows = paper.select(rows, case=f"f_p = {fraction}")
        baseline = str(claim.options["baseline"])
        names = {f"ratio_to_{baseline}", f"ratio_to_{baseline.removeprefix('sglang_')}"}
        (expected,) = rows.loc[rows["metric"].isin(names), "value"]
        assert claim.expected == expected, claim.id
    assert compared >= 18 + 4 + 5 + 5 + 3


def test_each_expected_number_of_a_table_is_the_papers() -> None:
    """What the paper's own column holds confirms the claim, where the paper has that number."""
    without = {"table16-dense-at-1024", "table16-parity-at-512", "table12-peak-llama"}
    for claim in CLAIMS.values():
        if claim.judge == "table" and claim.id not in without:
            table = registry.builders()[claim.table or 0](Sources.of([], []))
            labels = [str(one) for one in claim.options["row"]]
            names = [column.key for column in table.columns if column.is_label]
            (row,) = [r for r in table.rows if [str(r[n]) for n in names] == labels]
            printed = row[f"paper.{claim.options['column']}"]
            assert isinstance(printed, Printed)
            low, high = bounds(claim)
            assert low <= printed.value <= high, claim.id


def test_each_claim_says_how_to_decide_it() -> None:
    for claim in CLAIMS.values():
        assert claim.sentence.endswith(".")
        assert claim.command
        assert claim.source
        assert claim.minutes > 0


def test_all_of_table_3_and_both_k_of_table_21_are_claimed() -> None:
    assert sum(claim.table == 3 for claim in CLAIMS.values()) == 18
    assert {"table21-k4-granikv", "table21-k8-granikv"} <= set(CLAIMS)


# --- ratios ---------------------------------------------------------------------------------------


def test_a_ratio_as_printed_passes() -> None:
    verdict = one("table3-llama-16k-default", pair([2943, 2950, 2936], [1362, 1360, 1364]))
    assert verdict.result is Result.PASS
    assert verdict.observed.startswith("2.16×")
    assert verdict.hardware == "h200"


def test_a_larger_gain_passes_too() -> None:
    assert one("table3-llama-16k-default", pair([9000] * 3, [1362] * 3)).result is Result.PASS


def test_a_wrong_number_fails() -> None:
    verdict = one("table3-llama-16k-default", pair([2000, 2010, 2020], [1362, 1360, 1364]))
    assert verdict.result is Result.FAIL
    assert "1.94×" in verdict.reason  # 2.16 less a tenth


@pytest.mark.parametrize(
    ("granikv", "result"),
    [
        (1020.0, Result.PASS),
        (1000.0, Result.PASS),
        (990.0, Result.FAIL),  # within a tenth of 1.09, but no gain
    ],
)
def test_no_tolerance_confirms_a_gain_without_one(granikv: float, result: Result) -> None:
    cells = [
        cell
        for system, speed in (("granikv", granikv), ("sglang_cascade", 1000.0))
        for cell in runs(system, [speed] * 3, lengths=(8192,))
    ]
    verdict = one("table3-llama-8k-cascade", cells)
    assert (verdict.result, verdict.reason) == (result, "asked for at least 1.00×")


@pytest.mark.parametrize(
    ("bound", "expected", "parts", "asked"),
    [
        ("at_least", 1.35, {}, (1.215, math.inf)),
        ("at_least", 1.05, {}, (1.0, math.inf)),
        ("at_least", 0.97, {}, (0.873, math.inf)),
        ("at_least", 1.0, {}, (0.9, math.inf)),
        ("at_most", 0.67, {}, (-math.inf, 0.737)),
        ("at_most", 0.95, {}, (-math.inf, 1.0)),
        ("at_most", 1.0, {}, (-math.inf, 1.1)),
        ("within", 1.05, {}, (0.945, 1.155)),
        ("at_least", 1.05, {"judge": "table", "unit": "×"}, (1.0, math.inf)),
        ("at_least", 1.05, {"judge": "table", "unit": "%"}, (0.945, math.inf)),
        ("at_most", 0.95, {"judge": "table", "unit": " µs"}, (-math.inf, 1.045)),
    ],
)
def test_the_bounds_of_a_tenth(
    bound: str, expected: float, parts: dict[str, str], asked: tuple[float, float]
) -> None:
    options = {"bound": bound, "unit": parts.get("unit", "")}
    judge_name = parts.get("judge", "ratio")
    claim = Claim("x", "S.", "s", None, "c", 1, "g", judge_name, expected, 0.1, options)
    assert bounds(claim) == pytest.approx(asked)


def test_a_gain_in_place_of_parity_fails_within() -> None:
    parts = {"kind": "multi_prefix", "lengths": LENGTHS}
    cells = runs("sglang_cascade", [1500.0] * 3, **parts) + runs(
        "sglang_default", [1000.0] * 3, **parts
    )
    assert one("table21-k4-cascade", cells).result is Result.FAIL


def test_parity_passes_within() -> None:
    parts = {"kind": "multi_prefix", "lengths": LENGTHS}
    cells = runs("sglang_cascade", [990.0] * 3, **parts) + runs(
        "sglang_default", [1000.0] * 3, **parts
    )
    assert one("table21-k4-cascade", cells).result is Result.PASS


def test_an_interval_across_the_bound_decides_nothing() -> None:
    verdict = one("table3-llama-16k-default", pair([2000, 2943, 3800], [1362] * 3))
    assert verdict.result is Result.INCONCLUSIVE
    assert verdict.observed


def test_two_runs_decide_nothing() -> None:
    verdict = one("table3-llama-16k-default", pair([2943] * 2, [1362] * 3))
    assert verdict.result is Result.INCONCLUSIVE
    assert verdict.reason == "2 of 3 runs"


@pytest.mark.parametrize("system", ["granikv", "sglang_default"])
def test_a_missing_cell_decides_nothing(system: str) -> None:
    cells = [c for c in pair([2943] * 3, [1362] * 3) if c.config["system"]["name"] != system]
    verdict = one("table3-llama-16k-default", cells)
    assert verdict.result is Result.INCONCLUSIVE
    assert verdict.reason == "not measured"


def test_an_invalid_cell_decides_nothing() -> None:
    bad = runs("granikv", [2943] * 3, valid=False, reasons=("a request failed",))
    verdict = one("table3-llama-16k-default", bad + runs("sglang_default", [1362] * 3))
    assert verdict.result is Result.INCONCLUSIVE
    assert "a request failed" in verdict.reason


def test_no_cell_at_all_decides_nothing() -> None:
    for claim in CLAIMS:
        assert [v.result for v in judge(claim)] == [Result.INCONCLUSIVE]


@pytest.mark.parametrize("name", [c.id for c in CLAIMS.values() if c.judge == "ratio"])
def test_a_cpu_never_decides_a_ratio(name: str) -> None:
    cells = [
        cpu_cell(system, speed, lengths=lengths, kind=kind, repetition=repetition)
        for system, speed in (("granikv", 900.0), ("sglang_cascade", 5.0), ("sglang_default", 1.0))
        for kind, lengths in (("sharegpt", (512,)), ("multi_prefix", (64, 128, 256, 512)))
        for repetition in range(3)
    ]
    verdict = one(name, cells)
    assert verdict.result is Result.INCONCLUSIVE
    assert not verdict.observed


def test_shipped_cells_and_cells_from_here_are_judged_apart() -> None:
    good, bad = pair([2943] * 3, [1362] * 3), pair([1362] * 3, [1362] * 3)
    verdicts = judge("table3-llama-16k-default", here=bad, shipped=good)
    assert [(v.hardware, v.result) for v in verdicts] == [
        ("h200", Result.FAIL),
        ("h200 (shipped)", Result.PASS),
    ]


# --- dispatch -------------------------------------------------------------------------------------


EQ_2 = SaturationRule(8).describe()


def chosen(rule: str, **counters: int) -> dict[str, Any]:
    """A server's state."""
    return {"backends": {"rule": rule}, "counters": counters}


def routed(
    dense: int, cascade: int, rows_dense: int, rows_cascade: int, *, b: int = 16, **more: int
) -> MadeUpCell:
    """A CPU cell (M_sat = 8, n_q/kv = 2) with these counters over its load, by Eq. 2."""
    names = ("steps_dense", "steps_cascade", "rows_dense", "rows_cascade")
    counts = dict(zip(names, (dense, cascade, rows_dense, rows_cascade), strict=True))
    return cpu_cell("granikv", 1.0, b=b, state=chosen(EQ_2, **counts, **more))


def test_dense_fires_where_the_batch_can_saturate() -> None:
    verdict = one("dispatch-fires", [routed(30, 4, 300, 6, steps_paged=3)])
    assert verdict.result is Result.PASS
    assert verdict.observed == "30 dense, 4 cascade and 3 paged steps in 1 cell"


def test_dense_that_never_fires_fails() -> None:
    assert one("dispatch-fires", [routed(0, 40, 0, 90)]).result is Result.FAIL


def test_dense_below_the_threshold_fails() -> None:
    # B = 3 at n_q/kv = 2 is M_eff = 6, below 8.
    assert one("dispatch-fires", [routed(5, 9, 15, 20, b=3)]).result is Result.FAIL
    both = [routed(0, 9, 0, 20, b=3), routed(30, 0, 300, 0)]
    assert one("dispatch-fires", both).result is Result.PASS


@pytest.mark.parametrize("name", ["dispatch-fires", "dispatch-routes"])
def test_steps_on_one_side_of_the_threshold_confirm_nothing(name: str) -> None:
    above = one(name, [routed(30, 0, 300, 0)])
    below = one(name, [routed(0, 9, 0, 20, b=3)])
    assert (above.result, above.reason) == (Result.INCONCLUSIVE, "no step below M_sat = 8")
    assert (below.result, below.reason) == (Result.INCONCLUSIVE, "no step at or above M_sat = 8")


@pytest.mark.parametrize("name", ["dispatch-fires", "dispatch-routes"])
def test_another_rule_says_nothing_of_eq_2(name: str) -> None:
    """Right or wrong by Eq. 2: the H200's profile has costs, and one row there is M_sat already."""
    cost = "the least predicted time of paged, cascade, dense; paged is fa3"
    counts = {"steps_dense": 40, "rows_dense": 400, "steps_paged": 9, "segment_rows_paged": 30}
    cell = gpu_cell("granikv", 1.0, state=chosen(cost, **counts))
    verdict = one(name, [cell])
    assert verdict.result is Result.INCONCLUSIVE
    assert verdict.reason == f"Eq. 2 was not used: the servers chose by {cost}"
    hardware = dict(cell.config["hardware"], dispatch={"m_sat": 4})
    low = MadeUpCell("low", dict(cell.config, hardware=hardware), {}, state=cell.state)
    assert "one row alone reaches M_sat = 4" in one(name, [low]).reason
    unknown = cpu_cell("granikv", 1.0, state={"counters": counts})
    assert "an unknown rule" in one(name, [unknown]).reason


@pytest.mark.parametrize("name", ["dispatch-fires", "dispatch-routes"])
def test_steps_that_share_nothing_are_no_business_of_eq_2(name: str) -> None:
    paged = routed(0, 0, 0, 0, steps_paged=40, rows_paged=600)
    verdict = one(name, [paged])
    assert verdict.result is Result.INCONCLUSIVE
    assert verdict.reason == "no step reads a shared segment"
    assert one(name, [paged, routed(30, 4, 300, 6)]).result is Result.PASS


def test_a_paged_step_that_reads_a_segment_fails() -> None:
    wrong = {"steps_paged": 5, "rows_paged": 60, "segment_rows_paged": 50}
    assert one("dispatch-routes", [routed(30, 4, 300, 6, **wrong)]).result is Result.FAIL
    full = routed(30, 4, 300, 6, **wrong, steps_overflowed=5)
    assert one("dispatch-routes", [full]).result is Result.PASS
    # All of them: dense did not fire.
    assert one("dispatch-fires", [routed(0, 0, 0, 0, **wrong)]).result is Result.FAIL


@pytest.mark.parametrize("name", ["dispatch-fires", "dispatch-routes"])
def test_what_measures_eq_2_has_batches_on_both_sides(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    line = CLAIMS[name].command.removeprefix("python -m harness -m ").split()
    batches = {
        entry.values["load"]["permits"] * group_size(cpu_cell("granikv", 1.0))
        >= entry.values["hardware"]["dispatch"]["m_sat"]
        for entry in schedule([[*line, f"output={tmp_path}"]]).entries
    }
    assert batches == {False, True}


def test_steps_on_their_side_of_the_threshold_pass() -> None:
    assert one("dispatch-routes", [routed(10, 10, 40, 30)]).result is Result.PASS


def test_steps_on_the_wrong_side_fail() -> None:
    # 3 rows a dense step are M_eff = 6; 4 rows a cascade step are 8.
    assert one("dispatch-routes", [routed(10, 0, 30, 0)]).result is Result.FAIL
    assert one("dispatch-routes", [routed(0, 10, 0, 40)]).result is Result.FAIL


def test_what_the_server_did_before_the_load_does_not_count() -> None:
    cell = cpu_cell(
        "granikv",
        1.0,
        b=16,
        state=chosen(EQ_2, steps_dense=50, steps_cascade=9, rows_cascade=9),
        record={"server": {"counters_before": {"steps_dense": 50}}},
    )
    assert one("dispatch-fires", [cell]).result is Result.FAIL


def test_cells_that_do_not_dispatch_decide_nothing() -> None:
    state = chosen(EQ_2, steps_dense=9, rows_dense=99, steps_cascade=3, rows_cascade=3)
    forced = cpu_cell("granikv_dense", 1.0, state=state)
    unfitted = gpu_cell("granikv", 1.0, state=state)
    hardware = dict(unfitted.config["hardware"], dispatch={"m_sat": None})
    unfitted = MadeUpCell("u", dict(unfitted.config, hardware=hardware), {}, state=unfitted.state)
    invalid = cpu_cell("granikv", 1.0, valid=False, state=state)
    idle = routed(0, 0, 0, 0)
    for cell in (forced, unfitted, invalid, idle):
        assert one("dispatch-fires", [cell]).result is Result.INCONCLUSIVE
    assert dispatch.read(unfitted) is None


# --- slabs ----------------------------------------------------------------------------------------


def stored(bases: dict[int, int | None], **parts: Any) -> MadeUpCell:
    """A cell of prefixes of 64, 128 and 256 tokens whose tree has a node for each length."""
    tree = [
        tree_node(index, None, 0, length, base)
        for index, (length, base) in enumerate(bases.items(), 1)
    ]
    tree += [tree_node(10 + node["id"], node["id"], node["length"], 9, None) for node in tree]
    state = {"tree": tree, "pools": pools(1000, 600, 448, 50, 100)}
    lengths = (64, 128, 256)
    return cpu_cell("granikv", 1.0, lengths=lengths, kind="multi_prefix", layout=state, **parts)


def test_each_class_in_its_slab_passes() -> None:
    verdict = one("heterogeneous-slabs", [stored({64: 1000, 128: 1064, 256: 1192})])
    assert (verdict.result, verdict.observed) == (Result.PASS, "1 cell")


def test_a_class_in_cold_fails() -> None:
    verdict = one("heterogeneous-slabs", [stored({64: 1000, 128: None, 256: 1192})])
    assert verdict.result is Result.FAIL
    assert verdict.reason.endswith("no slab for prefixes of 128 tokens")


def tree_cell(lengths: Sequence[int], *tree: dict[str, Any]) -> MadeUpCell:
    state = {"tree": list(tree), "pools": pools(1000, 9000, 4000, 50, 100)}
    return cpu_cell("granikv", 1.0, lengths=lengths, kind="multi_prefix", state=state)


OTHER = tree_node(90, None, 0, 64, 9000)
"""A second prefix, in its slab."""


def test_a_prefix_in_two_nodes_side_by_side_is_one_slab() -> None:
    halves = tree_node(1, None, 0, 100, 1000), tree_node(2, 1, 100, 156, 1100)
    assert slabs.unserved(tree_cell((64, 256), *halves, OTHER)) == []


def test_a_prefix_in_two_nodes_apart_is_no_slab() -> None:
    halves = tree_node(1, None, 0, 100, 1000), tree_node(2, 1, 100, 156, 1101)
    verdict = one("heterogeneous-slabs", [tree_cell((64, 256), *halves, OTHER)])
    assert verdict.result is Result.FAIL
    assert verdict.reason.endswith("no slab for prefixes of 256 tokens")


@pytest.mark.parametrize("base", [2800, 4000])
def test_a_private_suffix_does_not_fill_up_a_prefix(base: int) -> None:
    """1,800 tokens of it and a suffix of 327 are more than 2,048, but not the prefix."""
    short = tree_node(1, None, 0, 1800, 1000), tree_node(2, 1, 1800, 327, base)
    assert slabs.unserved(tree_cell((64, 2048), *short, OTHER)) == [2048]


def test_a_node_must_end_where_the_prefix_does() -> None:
    whole = tree_node(1, None, 0, 2375, 1000)
    assert slabs.unserved(tree_cell((64, 2048), whole, OTHER)) == [2048]


def test_suffixes_behind_a_prefix_do_not_matter() -> None:
    nodes = [tree_node(1, None, 0, 2048, 1000), tree_node(2, 1, 2048, 327, 3048)]
    nodes += [tree_node(3, 1, 2048, 200, 5000), tree_node(4, 1, 2048, 9, None)]
    assert slabs.unserved(tree_cell((64, 2048), *nodes, OTHER)) == []


def test_a_slab_elsewhere_is_no_beginning_of_a_prefix() -> None:
    """HOT behind a COLD beginning, or from token 100 on."""
    behind = tree_node(1, None, 0, 100, None), tree_node(2, 1, 100, 156, 1000)
    assert slabs.unserved(tree_cell((64, 156), *behind, OTHER)) == [156]
    assert slabs.unserved(tree_cell((64, 256), *behind, OTHER)) == [256]


def test_two_prefixes_in_one_slab_have_not_one_each() -> None:
    shared = tree_node(1, None, 0, 128, 1000), tree_node(2, 1, 128, 128, 1128)
    assert slabs.unserved(tree_cell((128, 256), *shared)) == [128]
    assert slabs.unserved(tree_cell((128, 256), *shared, tree_node(3, None, 0, 256, 2000))) == []
    assert slabs.unserved(tree_cell((64, 64, 256), tree_node(1, None, 0, 256, 2000), OTHER)) == [64]


def test_a_slab_may_lack_less_than_a_page() -> None:
    cell = stored({64: 1000, 128: 1064, 256: 1192})
    assert cell.layout is not None
    cell.layout["pools"]["page_size"] = 16
    for node in cell.layout["tree"]:
        if node["length"] == 256:
            node["length"] = 241
    assert slabs.unserved(cell) == []
    for node in cell.layout["tree"]:
        if node["length"] == 241:
            node["length"] = 240
    assert slabs.unserved(cell) == [256]


def test_a_system_without_storage_decides_nothing() -> None:
    cell = cpu_cell("sglang_default", 1.0, lengths=(64, 128), kind="multi_prefix")
    assert one("heterogeneous-slabs", [cell]).result is Result.INCONCLUSIVE


# --- tests ----------------------------------------------------------------------------------------

EQUALITY = '<testcase classname="tests.engine.test_equality" name="test_granikv_equals_stock[{}]">'


def report(tmp_path: Path, *bodies: str) -> Path:
    path = tmp_path / "tests.xml"
    cases = "".join(
        EQUALITY.format(index) + body + "</testcase>" for index, body in enumerate(bodies)
    )
    other = '<testcase classname="tests.x" name="test_y"><failure/></testcase>'
    path.write_text(f"<testsuites><testsuite>{cases}{other}</testsuite></testsuites>")
    return path


def of_tests(path: Path | None) -> Verdict:
    (verdict,) = judge("greedy-equality", here=[cpu_cell("granikv", 1.0)], report=path)
    return verdict


def test_passed_tests_pass(tmp_path: Path) -> None:
    verdict = of_tests(report(tmp_path, "", "<skipped/>"))
    assert (verdict.result, verdict.observed) == (Result.PASS, "1 of 2 tests passed")


def test_one_failed_test_fails(tmp_path: Path) -> None:
    assert of_tests(report(tmp_path, "", "<failure/>")).result is Result.FAIL
    assert of_tests(report(tmp_path, "", "<error/>")).result is Result.FAIL


def test_tests_that_did_not_run_decide_nothing(tmp_path: Path) -> None:
    assert of_tests(None).result is Result.INCONCLUSIVE
    assert of_tests(tmp_path / "absent.xml").result is Result.INCONCLUSIVE
    assert of_tests(report(tmp_path)).result is Result.INCONCLUSIVE
    assert of_tests(report(tmp_path, "<skipped/>")).result is Result.INCONCLUSIVE


def test_a_broken_report_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "tests.xml"
    path.write_text("<testsuites>")
    with pytest.raises(HarnessError, match="run the tests again"):
        of_tests(path)


# --- files ----------------------------------------------------------------------------------------

GOOD = """- {id: a, sentence: S., source: s, table: 3, command: c, minutes: 1, gpu: g, judge: ratio}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "must be a list"),
        ("- 3", "mapping with an id"),
        (GOOD + GOOD, "twice"),
        (GOOD.replace("gpu", "gpus"), "unknown key 'gpus'"),
        (GOOD.replace("minutes: 1, ", ""), "incomplete"),
        ("- {", "cannot be read"),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(HarnessError, match=message) as caught:
        claim_parts.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="cannot be read"):
        claim_parts.load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("judge_name", "message"), [("guess", "no judge"), ("ratio", "ratio claim")]
)
def test_a_claim_that_cannot_be_judged_is_an_error(judge_name: str, message: str) -> None:
    claim = Claim("x", "S.", "s", None, "c", 1, "g", judge_name)
    with pytest.raises(HarnessError, match=message):
        evaluate([claim], [gpu_cell("granikv", 1.0)], [], None)
