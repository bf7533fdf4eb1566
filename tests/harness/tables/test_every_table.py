"""Every table of the paper on a made-up campaign whose answers are known beforehand."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from granikv.cost import CostModel, Geometry
from granikv.dispatch import CostRule, Forced, SaturationRule
from harness import paper
from harness.analysis import amdahl
from harness.analysis.roofline import LLAMA_8B_HEADLINE
from harness.tables import registry
from harness.tables.entries import Kind
from harness.tables.sources import Sources
from harness.tables.table import Table
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import campaign, kernel, serving, throughput

Lines: TypeAlias = dict[tuple[str, str], dict[str, Any]]

CELLS = campaign()
SOURCES = Sources.of([], CELLS)
TABLES = {number: build(SOURCES) for number, build in registry.builders().items()}


def rows(table: Table, source: str = "shipped") -> Lines:
    """The tidy lines of one source, by (row, metric)."""
    found: Lines = {}
    for record in table.frame().to_dict("records"):
        line = {str(name): content for name, content in record.items()}
        if line["source"] == source:
            found[(line["row"], line["metric"])] = line
    return found


def cells_of(lines: Lines) -> set[str]:
    """Every cell behind some numbers."""
    return {name for line in lines.values() for name in line["cells"].split()}


def value(number: int, row: str, metric: str, source: str = "shipped") -> float:
    return float(rows(TABLES[number], source)[(row, metric)]["value"])


def printed(number: int, row: str, metric: str, source: str = "shipped") -> str:
    return str(rows(TABLES[number], source)[(row, metric)]["printed"])


def test_there_is_a_module_for_each_table_of_the_paper_and_one_beyond() -> None:
    assert list(registry.builders()) == list(range(1, 26))


@pytest.mark.parametrize("number", range(3, 26))
def test_no_dash_where_a_matching_shipped_cell_is(number: int) -> None:
    shipped = rows(TABLES[number])
    assert shipped
    assert {line["missing"] for line in shipped.values()} == {""}


@pytest.mark.parametrize(
    ("number", "row"),
    [
        (3, "Llama-3.1-8B/TP=1 | 16K | GraniKV"),
        (4, "4 | 2K/4K/8K/16K | GraniKV"),
        (6, "1K | 8 | GraniKV"),
        (11, "16K | 1,024 | GraniKV"),
        (20, "full | 16 | GraniKV"),
        (21, "full | 8 | ladder 1K–16K | GraniKV"),
    ],
)
def test_a_table_has_what_a_user_of_the_gpu_gets_without_granikv(number: int, row: str) -> None:
    """SGLang on the same pages and prefill backend: or a gain could be theirs."""
    assert value(number, row, "ratio_to_sglang_fa3") == pytest.approx(2.0 / 1.1)
    assert not any("fa3" in metric for _, metric in rows(TABLES[number], "paper"))
    assert any("SGL-FA3, not in the paper" in note for note in TABLES[number].notes)


@pytest.mark.parametrize("number", range(2, 25))
def test_every_number_of_the_paper_stands_in_its_table(number: int) -> None:
    """Whole tables, as printed: what is transcribed is shown, once for each place."""
    transcribed = paper.table(number)
    expected = Counter(transcribed.loc[transcribed["metric"] != "m_eff", "printed"])
    shown = Counter(
        re.sub(r"[×%,]| [MG]B$", "", line["printed"])
        for line in rows(TABLES[number], "paper").values()
    )
    assert expected <= shown


@pytest.mark.parametrize("number", range(3, 26))
def test_every_shown_number_names_its_cells(number: int) -> None:
    numbers = {
        key: line for key, line in rows(TABLES[number]).items() if not math.isnan(line["value"])
    }
    assert numbers
    assert all(line["cells"] for line in numbers.values())
    assert cells_of(numbers) <= {cell.id for cell in CELLS}


def test_all_cells_of_the_campaign_are_shown() -> None:
    shown = set().union(*(cells_of(rows(TABLES[number])) for number in range(3, 26)))
    assert {cell.id for cell in CELLS} - shown == set()


@pytest.mark.parametrize(("number", "b"), [(6, 8), (7, 128), (8, 256), (9, 1024), (11, 512)])
def test_the_grids(number: int, b: int) -> None:
    row = f"4K | {b:,} | GraniKV"
    speed = throughput("granikv", 4096)
    assert value(number, row, "output_tok_s") == pytest.approx(speed)
    assert value(number, row, "ratio_to_sglang_default") == pytest.approx(2.0)
    assert value(number, row, "tpot_p50_ms") == pytest.approx(1000 * b / speed)
    assert value(number, row, "ttft_p50_s") == 0.5
    assert value(
        number, row.replace("GraniKV", "SGLang with FA3"), "output_tok_s"
    ) == pytest.approx(throughput("sglang_fa3", 4096))
    assert (f"4K | {b:,} | SGLang default", "ratio_to_sglang_default") not in rows(TABLES[number])


def test_the_grids_have_every_point() -> None:
    assert [len(TABLES[number].rows) for number in range(6, 12)] == [80] * 3 + [144] * 3


def test_table_5_tells_layout_and_sharing_apart() -> None:
    hot, paged = "contiguous (HOT)", "paged"
    once, each = "once for all rows", "by each row"
    assert value(5, f"{hot} | {once}", "kernel_wall_us") == pytest.approx(500)
    assert value(5, f"{hot} | {once}", "speedup") == pytest.approx(10.0)
    assert value(5, f"{hot} | {each}", "speedup") == pytest.approx(2.0)
    assert value(5, f"{paged} | {once}", "speedup") == pytest.approx(5.0)
    assert value(5, f"{paged} | {each}", "speedup") == pytest.approx(1.0)
    once_read = 8192 * 2 * 8 * 128 * 2
    assert value(5, f"{hot} | {once}", "kernel_modelled_gb_s") == pytest.approx(
        once_read / 500e-6 / 1e9
    )
    assert value(5, f"{paged} | {each}", "kernel_modelled_gb_s") == pytest.approx(
        256 * once_read / 5000e-6 / 1e9
    )
    assert printed(5, f"{hot} | {once}", "speedup", "paper") == "15.6×"


def test_table_12_names_the_best_b() -> None:
    assert value(12, paper.LLAMA_8B, "peak_b", "paper") == 512
    faster = [
        MadeUpCell(cell.id, cell.config, dict(cell.metrics) | {"output_tok_s": 999.0})
        if cell.id.startswith("granikv-sharegpt-16384-b512-k1-llama")
        else cell
        for cell in CELLS
    ]
    table = registry.builders()[12](Sources.of([], faster))
    assert rows(table)[(paper.LLAMA_8B, "peak_b")]["value"] == 512
    assert value(12, paper.LLAMA_8B, "peak_b") == 256  # of equals the smallest
    assert value(12, paper.LLAMA_8B, "output_tok_s_b512") == pytest.approx(
        throughput("granikv", 16384)
    )


def test_table_12_has_no_best_b_before_every_b_is_measured() -> None:
    one = serving("granikv", "sharegpt", (16384,), 256)
    table = registry.builders()[12](Sources.of([one], []))
    assert "not measured here" in rows(table, "here")[(paper.LLAMA_8B, "peak_b")]["missing"]


@pytest.mark.parametrize(
    ("number", "config", "model"),
    [
        (13, paper.LLAMA_8B, "llama"),
        (14, paper.QWEN_32B, "qwen25_32b"),
        (14, "Qwen-2.5-32B/TP=2", "qwen25_32b"),
    ],
)
def test_kernel_categories(number: int, config: str, model: str) -> None:
    assert value(number, f"{config} | Prefix attention | GraniKV", "kernel_ms") == 600
    assert value(number, f"{config} | Prefix attention | GraniKV", "kernel_ms_per_step") == 6.0
    assert value(number, f"{config} | Total kernel | SGL-C/GKV", "kernel_ms") == 1000
    cells = cells_of(rows(TABLES[number]))
    assert cells
    assert all("profile" in name and model in name for name in cells)


def test_a_traced_cell_is_in_no_table_of_throughput() -> None:
    for number in (3, 6, 9, 12, 20, 21, 24):
        assert not any("profile" in name for name in cells_of(rows(TABLES[number])))


def test_table_15_is_the_counters_share() -> None:
    assert value(15, "8K", "dense_step_pct_b256") == 90.0
    assert value(15, "8K", "dense_step_pct_b8") == 3.0
    # 3 + 3 + 3 + 90 dense and 3 · 95 + 8 cascade of 400 steps.
    assert printed(15, "8K", "majority") == "cascade (73%)"
    assert printed(15, "16K", "dense_step_pct_b128", "paper") == "13%"


def test_a_window_without_its_steps_has_no_time_for_one_step() -> None:
    cell = serving("granikv", "sharegpt", (8192,), 256, profile={"kind": "kineto"})
    metrics = {name: value for name, value in cell.metrics.items() if name != "profile_steps"}
    table = registry.builders()[13](Sources.of((replace(cell, metrics=metrics),), ()))
    found = rows(table, "here")
    row = f"{paper.LLAMA_8B} | Prefix attention | GraniKV"
    assert found[(row, "kernel_ms")]["value"] == 600
    assert "has no step_ms_prefix_attention" in found[(row, "kernel_ms_per_step")]["missing"]


def test_table_15_counts_the_measured_load_alone() -> None:
    cells = [serving("granikv", "synthetic", (8192,), b) for b in (8, 32, 128, 256)]
    before = {"server": {"counters_before": {"steps": 50, "steps_dense": 50}}}
    state = {"counters": {"steps": 150, "steps_dense": 75, "steps_cascade": 75}}
    used = [MadeUpCell(c.id, c.config, c.metrics, state=state, record=before) for c in cells]
    table = registry.builders()[15](Sources.of(used, []))
    here = rows(table, "here")
    assert here[("8K", "dense_step_pct_b256")]["value"] == pytest.approx(25.0)
    assert here[("8K", "majority")]["printed"] == "cascade (75%)"


def test_table_15_tells_most_steps_of_four_valid_b_alone() -> None:
    """On the way from 8 to 256 rows the backend changes: three B say nothing of the fourth."""
    *rest, last = [serving("granikv", "synthetic", (8192,), b) for b in (8, 32, 128, 256)]
    late = replace(last, valid=False, reasons=("the client read late",))
    for cells, lacking in (([*rest, late], "256"), (rest[1:], "8, 256")):
        table = registry.builders()[15](Sources.of(cells, []))
        missing = rows(table, "here")[("8K", "majority")]["missing"]
        assert missing == f"no valid cell counts its decode steps at B = {lacking}"


def _chosen(rule: str) -> list[str]:
    cell = serving("granikv", "synthetic", (8192,), 256)
    state = dict(cell.state or {}) | {"backends": {"rule": rule}}
    table = registry.builders()[15](Sources.of([replace(cell, state=state)], []))
    return [note.partition(": chosen ")[2] for note in table.notes if ": chosen " in note]


def test_table_15_says_by_which_rule_the_servers_chose() -> None:
    rule = CostRule(CostModel(), Geometry(8, 4, 128, 128, 2), "fa3")
    (fitted,) = _chosen(rule.describe())
    assert fitted.startswith("by the fitted cost model, not by Eq. 2; paged also holds")
    assert _chosen(SaturationRule(512).describe()) == [
        "by Eq. 2, with M_sat of the hardware profile."
    ]
    assert _chosen(Forced("cascade").describe()) == [f"{Forced('cascade').describe()}."]
    assert _chosen("") == []


def test_table_16_forces_both_children() -> None:
    # At the same L_p, TPOT goes as 1/gain: 1.8/1.9 and 1.6/2.0.
    assert value(16, "256 | 1,024", "dense_to_cascade") == pytest.approx(1.8 / 1.9)
    assert value(16, "256 | 1,024", "dispatched_to_dense") == pytest.approx(1.9 / 2.0)
    assert value(16, "256 | 1,024", "tpot_ratio_to_sglang_cascade") == pytest.approx(0.8)
    assert printed(16, "256 | 1,024", "tpot_ratio_to_sglang_cascade", "paper") == "0.67×"
    assert value(16, "128 | 512", "mean_m_eff") == 512
    assert any("M_sat is 32 or less" in note for note in TABLES[16].notes)


def test_table_16_states_where_the_crossover_lies() -> None:
    def forced(system: str, b: int, tpot: float) -> MadeUpCell:
        cell = serving(system, "synthetic", (8192,), b)
        return MadeUpCell(cell.id, cell.config, dict(cell.metrics) | {"tpot_p50_ms": tpot})

    cells = [forced("granikv_cascade", b, 10.0) for b in (8, 32, 128, 256)]
    cells += [
        forced("granikv_dense", b, tpot)
        for b, tpot in ((8, 30.0), (32, 9.9), (128, 12.0), (256, 7.0))
    ]
    table = registry.builders()[16](Sources.of(cells, []))
    assert any("above 512 and at or below 1,024" in note for note in table.notes)


def test_table_25_has_what_the_paper_has_not() -> None:
    control = "prompts of their own, B = 256"
    assert value(25, f"{control} | GraniKV", "ratio_to_sglang_fa3") == pytest.approx(2.0 / 1.1)
    assert rows(TABLES[25], "paper") == {}
    eager, on_share = (
        rows(TABLES[25])[(f"{load} | {system}", "output_tok_s")]["cells"]
        for load, system in ((control, "GraniKV"), (control, "GraniKV, on_share"))
    )
    assert eager != on_share
    replays = [f"trace of {name} | GraniKV" for name in ("tool-using agents", "conversations")]
    assert len({rows(TABLES[25])[(row, "output_tok_s")]["cells"] for row in replays}) == 2


def test_no_admission_stands_in_for_another() -> None:
    eager = serving("granikv", "negative_control", (4096,), 256)
    found = rows(registry.builders()[25](Sources.of([], [eager])))
    missing = found[("prompts of their own, B = 256 | GraniKV, on_share", "output_tok_s")]
    assert missing["missing"] == "no shipped cell: not measured yet"


def test_table_17() -> None:
    assert value(17, "Dense launches in 15 s", "GraniKV") == 90
    assert value(17, "Kernel wall a launch (µs)", "GraniKV") == pytest.approx(500)
    host = "Choice on the host a step (µs; the paper: below)"
    assert value(17, host, "GraniKV") == pytest.approx(0.5)
    share = value(17, "Its share of the step (the paper: below)", "GraniKV")
    assert share == pytest.approx(100 * 0.5e-6 / 0.04)
    assert printed(17, "Its share of the step (the paper: below)", "GraniKV", "paper") == "0.2%"
    assert value(17, "Work list and snapshot, p99 (µs)", "GraniKV") == pytest.approx(80 + 20)
    assert value(17, "Plan of a step, classes change, p99 (µs)", "GraniKV") == pytest.approx(60)
    assert value(17, "Attention of a step (µs)", "GraniKV") == pytest.approx(40_000)


def test_table_18_spread() -> None:
    speeds = {1: 1000.0, 4: 990.0, 16: 995.0}
    cells = []
    for size, speed in speeds.items():
        cell = serving("granikv", "synthetic", (8192,), 256, page_size=size)
        cells.append(MadeUpCell(cell.id, cell.config, dict(cell.metrics) | {"output_tok_s": speed}))
    here = rows(registry.builders()[18](Sources.of(cells, [])), "here")
    assert here[(paper.LLAMA_8B, "output_tok_s_page4")]["value"] == 990
    assert here[(paper.LLAMA_8B, "spread_pct")]["value"] == pytest.approx(1.0)


def test_table_19_by_tensor_parallel_degree() -> None:
    assert value(19, "Qwen-2.5-32B/TP=2", "ratio_to_sglang_default") == pytest.approx(2.0)
    assert value(19, "Qwen-2.5-14B/TP=4", "kv_heads_per_rank") == 2
    assert value(19, "Llama-3.1-8B/TP=2", "kv_tokens") == 845_617
    assert value(19, "Llama-3.1-8B/TP=2", "beta_pct") == pytest.approx(2.0)
    assert printed(19, "Qwen-2.5-32B/TP=2", "regime", "paper") == "KV-ceil"


@pytest.mark.parametrize("budget", ["148,400", "full"])
def test_table_20_stands_at_both_budgets(budget: str) -> None:
    row = f"{budget} | 16 | GraniKV"
    assert value(20, row, "ratio_to_sglang_cascade") == pytest.approx(1.25)
    assert value(20, row, "hit_rate") == 0.9
    of_paper = budget == "148,400"
    assert ((row, "output_tok_s") in rows(TABLES[20], "paper")) is of_paper


def test_table_22_is_amdahls_law_of_the_measured_terms() -> None:
    row, s = paper.LLAMA_8B, 10.0
    assert value(22, row, "alpha_pct") == pytest.approx(60.0)
    assert value(22, row, "gamma_pct") == pytest.approx(5.0)
    assert value(22, row, "predicted_kernel_s") == pytest.approx(1 / (1 - 0.6 / 0.95 * (1 - 1 / s)))
    assert value(22, row, "predicted_with_beta_gamma") == pytest.approx(1 / (0.4 + 0.06))
    assert value(22, row, "measured") == pytest.approx(2.0)
    assert value(22, row, "s_eff") == pytest.approx(0.6 / (0.5 - 0.4))
    assert value(22, row, "s_eff") == pytest.approx(amdahl.effective_kernel_speedup(0.6, 2.0))


def test_table_22_interval_is_the_range_over_the_terms() -> None:
    def traced(alpha: float, repetition: int) -> MadeUpCell:
        cell = serving(
            "sglang_default",
            "sharegpt",
            (16384,),
            256,
            repetition=repetition,
            profile={"kind": "kineto"},
        )
        metrics = {"share_prefix_attention": alpha, "share_nccl": 0.0, "share_host_gap": 0.0}
        return MadeUpCell(cell.id, cell.config, dict(cell.metrics) | metrics)

    runs = [traced(alpha, n) for n, alpha in enumerate((0.5, 0.6, 0.7))]
    kernels = [kernel("HOT", "shared"), kernel("paged", "unshared")]
    repeated = [
        MadeUpCell(f"{one.id}-{n}", dict(one.config) | {"repetition": n}, one.metrics)
        for one in kernels
        for n in range(3)
    ]
    here = rows(registry.builders()[22](Sources.of([*runs, *repeated], [])), "here")
    line = here[(paper.LLAMA_8B, "predicted_with_beta_gamma")]
    assert line["value"] == pytest.approx(amdahl.speedup(0.6, 10.0))
    assert line["runs"] == 3
    assert amdahl.speedup(0.5, 10.0) <= line["low"] < line["value"]
    assert line["value"] < line["high"] <= amdahl.speedup(0.7, 10.0)
    assert "not measured" in here[(paper.LLAMA_8B, "s_eff")]["missing"]


def test_table_22_reproduces_the_papers_numbers_from_the_papers_inputs() -> None:
    """The paper's shares, kernels and throughputs as cells give its printed predictions."""
    cells = [
        _with(kernel("HOT", "shared"), kernel_wall_s=449e-6),
        _with(kernel("paged", "unshared"), kernel_wall_s=449e-6 * 15.6),
    ]
    speeds = paper.select(paper.table(3), l_p=16384, metric="output_tok_s")
    shares = paper.table(22)
    names = dict(zip(paper.CONFIGS, ("llama31_8b", "qwen25_14b", "qwen25_32b"), strict=True))
    for config, model in names.items():
        of_config = paper.select(shares, config=config)
        alpha, beta, gamma = (
            paper.value(of_config, metric=f"{name}_pct") / 100
            for name in ("alpha", "beta", "gamma")
        )
        traced = serving(
            "sglang_default", "sharegpt", (16384,), 256, model=model, profile={"kind": "kineto"}
        )
        cells.append(
            _with(
                traced,
                share_prefix_attention=alpha,
                share_nccl=beta,
                share_host_gap=gamma,
            )
        )
        for system in ("sglang_default", "granikv"):
            speed = paper.value(speeds, config=config, system=system)
            cell = serving(system, "sharegpt", (16384,), 256, model=model)
            cells.append(_with(cell, output_tok_s=speed))
    table = registry.builders()[22](Sources.of([], cells))
    ours, theirs = rows(table), rows(table, "paper")
    for config in paper.CONFIGS:
        for metric in ("predicted_kernel_s", "predicted_with_beta_gamma", "measured"):
            assert ours[(config, metric)]["printed"] == theirs[(config, metric)]["printed"]
        s_eff = ours[(config, "s_eff")]["value"]
        assert f"{s_eff:.1f}×" == theirs[(config, "s_eff")]["printed"]


def _with(cell: MadeUpCell, **metrics: float) -> MadeUpCell:
    return MadeUpCell(cell.id, cell.config, dict(cell.metrics) | metrics)


def test_table_23_by_hand() -> None:
    hot, paged = "HOT, read once", "paged, read by each row"
    assert value(23, "DRAM bytes read a launch", hot) == pytest.approx(36.0)
    assert printed(23, "DRAM bytes read a launch", paged, "paper") == "8.61 GB"
    assert printed(23, "DRAM bytes read a launch", hot, "paper") == "36.7 MB"
    model = LLAMA_8B_HEADLINE
    over = 100 * (36e6 / model.bytes_read(shared=True) - 1)
    assert value(23, "over the byte model", hot) == pytest.approx(over)
    assert value(23, "Useful throughput (TFLOP/s)", paged) == pytest.approx(
        model.flop / 5000e-6 / 1e12
    )
    assert value(23, "DRAM bandwidth (GB/s)", paged) == pytest.approx(9e9 / 5000e-6 / 1e9)
    assert value(23, "Arithmetic intensity (FLOP/byte)", hot) == pytest.approx(model.flop / 36e6)
    assert value(23, "Waves per SM", hot) == 4.5


def test_table_23_reproduces_the_papers_derived_rows_from_its_measured_ones() -> None:
    cells = [
        _with(kernel(*launch, counted=True), kernel_wall_s=wall, kernel_dram_bytes=read)
        for launch, wall, read in (
            (("HOT", "shared"), 455e-6, 36.7e6),
            (("paged", "unshared"), 7004e-6, 8.61e9),
        )
    ]
    table = registry.builders()[23](Sources.of([], cells))
    ours, theirs = rows(table), rows(table, "paper")
    rounding = {
        "Useful throughput (TFLOP/s)": 0.05,
        "DRAM bandwidth (GB/s)": 0.5,
        "Arithmetic intensity (FLOP/byte)": 0.5,
    }
    for (quantity, layout), line in ours.items():
        if quantity in rounding and (quantity, layout) in theirs:
            printed = theirs[(quantity, layout)]["value"]
            assert line["value"] == pytest.approx(printed, abs=rounding[quantity])


@pytest.mark.parametrize("fraction", ["0.05", "0.8"])
def test_table_24_sweeps_f_p(fraction: str) -> None:
    row = f"148,400 | {fraction}"
    cells = rows(TABLES[24])[(row, "output_tok_s")]["cells"]
    assert cells.endswith(f"storage{fraction}")
    assert "-paper-" in cells
    assert value(24, row, "ratio_to_sglang_cascade") == pytest.approx(1.25)
    assert value(24, row, "slabs") == 1
    assert value(24, "148,400 | Cascade", "ratio_to_sglang_cascade") == pytest.approx(1.0)
    assert ("148,400 | Cascade", "slabs") not in rows(TABLES[24])
    assert printed(24, "148,400 | 0.05", "hot_slots", "paper") == "7,420"


def test_other_tables_show_the_papers_f_p_where_several_were_measured() -> None:
    cells = rows(TABLES[6])[("8K | 256 | GraniKV", "output_tok_s")]["cells"].split()
    assert cells
    assert all("storage" not in name for name in cells)


@pytest.mark.parametrize("number", range(3, 25))
def test_a_cpu_column_compares_no_speeds(number: int) -> None:
    cpu = [
        cpu_cell(system, 9.0, lengths=(256,), kind=kind, metrics={"tpot_p50_ms": 1.0})
        for system in ("sglang_default", "sglang_cascade", "granikv")
        for kind in ("sharegpt", "synthetic")
    ]
    table = registry.builders()[number](Sources.of(cpu, []))
    functional = [column for column in table.columns if "functional check" in column.group]
    assert all(column.kind is not Kind.RATIO for column in functional)
    assert not any("× " in column.title or "best" in column.title.lower() for column in functional)
