"""Each experiment in conf/ gives the cells that its table reads: made up, they leave no dash."""

from __future__ import annotations

import functools

import pytest

from harness import config, paper
from harness.tables import registry
from harness.tables.entries import Missing
from harness.tables.sources import Sources
from harness.tables.table import Table
from tests.harness import campaign
from tests.harness.analysis.made_up import MadeUpCell

# The paper's other models are asked for by name there: they need more GPUs.
LLAMA_ROWS_ONLY = {3}
BESIDES = {22: ("table05",)}
TABLES = (3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 24)


@functools.cache
def cells(experiment: str) -> list[MadeUpCell]:
    """A made-up cell for each configuration that an experiment asks for, one repetition."""
    asked = config.sweep([f"experiment={experiment}", "hardware=h200", "repetition=0"])
    return [campaign.made_up(values) for values in config.compose_cells(asked)]


def built(number: int, *experiments: str) -> Table:
    made_up = [cell for experiment in experiments for cell in cells(experiment)]
    return registry.builders()[number](Sources.of(made_up, []))


def dashes(table: Table, model: str | None = None) -> list[str]:
    """Where a number of this machine is missing, with the reason."""
    return [
        f"{row.get('config', '')} {column.key}: {entry.reason}"
        for row in table.rows
        if model is None or row.get("config") in (None, model)
        for column in table.columns
        if column.source == "here" and isinstance(entry := row.get(column.key), Missing)
    ]


@pytest.mark.parametrize("number", TABLES)
def test_an_experiment_fills_its_table(number: int) -> None:
    table = built(number, f"table{number:02d}", *BESIDES.get(number, ()))
    assert any(column.source == "here" for column in table.columns)
    model = paper.LLAMA_8B if number in LLAMA_ROWS_ONLY else None
    assert dashes(table, model) == []


def test_three_experiments_fill_the_table_beyond_the_paper() -> None:
    assert dashes(built(25, "h200_6_beyond", "negative_control", "table21")) == []


@pytest.mark.parametrize("model", ["qwen25_14b", "qwen25_32b"])
def test_table_3_takes_the_papers_other_models(model: str) -> None:
    overrides = config.sweep(["experiment=table03", "hardware=h200", f"model={model}"])
    made_up = [campaign.made_up(values) for values in config.compose_cells(overrides)]
    table = registry.builders()[3](Sources.of(made_up, []))
    title = paper.QWEN_14B if model == "qwen25_14b" else paper.QWEN_32B
    assert dashes(table, title) == []


def test_a_step_of_a_campaign_asks_for_all_that_its_tables_show() -> None:
    def asked(experiment: str) -> set[frozenset[str]]:
        lines = config.sweep([f"experiment={experiment}", "hardware=h200", "repetition=0"])
        return {frozenset(line) for line in lines}

    for step, numbers in (("h200_1_kernels", (5, 17, 23)), ("h200_5_ablations", (13, 15, 16, 24))):
        for number in numbers:
            assert asked(f"table{number:02d}") <= asked(step), f"table {number}"


def test_an_experiment_that_asks_for_less_leaves_a_dash() -> None:
    """What the other tests rest on."""
    fewer = [cell for cell in cells("table20") if cell.config["workload"]["prefix_count"] != 64]
    assert dashes(registry.builders()[20](Sources.of(fewer, [])))


@pytest.mark.parametrize(
    ("permits", "full", "requests"),
    [(8, False, 64), (128, False, 256), (1024, False, 2048), (256, True, 500), (512, True, 1024)],
)
def test_how_many_requests_a_cell_sends(permits: int, full: bool, requests: int) -> None:
    overrides = ["experiment=table09", "hardware=h200", f"load.permits={permits}", f"full={full}"]
    assert config.compose_cell(overrides)["workload"]["requests"] == requests


@pytest.mark.parametrize("experiment", ["table03", "table06", "table21", "trace_replay"])
def test_the_client_s_lateness_is_judged_wherever_speed_is_measured(experiment: str) -> None:
    """A limit of null would let a client that cannot keep up pass as a slow server."""
    limits = config.compose_cell([f"experiment={experiment}", "hardware=h200"])["validation"]
    assert limits["send_lag_ttft_share"] <= 0.01
    assert limits["send_lag_floor_ms"] <= (50 if experiment == "table06" else 10)
    assert limits["loop_lag_tpot_share"] <= 0.25


def test_one_rate_for_all_systems_of_an_experiment() -> None:
    for experiment in ("table03", "table09", "table20", "table21"):
        assert {cell.config["load"]["rate"] for cell in cells(experiment)} == {400}


def test_the_cells_of_table_3_are_cells_of_table_9() -> None:
    """Measured once, they stand in both."""
    assert {cell.id for cell in cells("table03")} <= {cell.id for cell in cells("table09")}
