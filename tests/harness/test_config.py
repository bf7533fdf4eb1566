"""Every file in conf/ composes, and every experiment becomes cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import config, jobs
from harness.errors import HarnessError
from harness.load import LOADS

GROUPS = ("system", "model", "workload", "load", "hardware")
EXPERIMENTS = sorted(path.stem for path in (config.DIRECTORY / "experiment").glob("*.yaml"))
BASES = ("cpu_base", "paper_base", "saturated")
SWEPT = [name for name in EXPERIMENTS if name not in BASES]


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (config.DIRECTORY / group).glob("*.yaml"))


@pytest.mark.parametrize(
    ("group", "option"), [(group, option) for group in GROUPS for option in options(group)]
)
def test_every_option_of_every_group_composes(group: str, option: str) -> None:
    values = config.compose_cell([f"{group}={option}"])
    assert values[group]
    # A scaled or derived profile may be named apart from its file; a choice of code may not.
    if group in ("system", "model", "hardware"):
        assert values[group]["name"] == option
    if group == "load":
        assert values[group]["kind"] in LOADS


@pytest.mark.parametrize("group", ["system", "model", "workload", "load", "experiment"])
def test_every_file_says_what_it_is(group: str) -> None:
    for option in options(group):
        first, *rest = (config.DIRECTORY / group / f"{option}.yaml").read_text().splitlines()
        comment = rest[0] if first == "# @package _global_" else first
        assert comment.startswith("# "), f"{group}/{option}.yaml has no comment at its top"


def test_the_main_file_says_how_to_run_it() -> None:
    text = (config.DIRECTORY / "config.yaml").read_text()
    assert "python -m harness system=" in text


@pytest.mark.parametrize("experiment", SWEPT)
def test_every_experiment_becomes_cells(experiment: str, tmp_path: Path) -> None:
    profile = "cpu" if experiment.endswith("_cpu") else "h200"
    cells = config.sweep([f"experiment={experiment}", f"hardware={profile}", f"output={tmp_path}"])
    ends = [jobs.plan(values) for values in config.compose_cells([cells[0], cells[-1]])]
    assert (ends[0].id != ends[1].id) == (len(cells) > 1)


def test_an_experiments_parameters_give_way_to_the_command_line() -> None:
    cells = config.sweep(["experiment=table03_cpu", "system=granikv", "repetition=0,1"])
    assert len(cells) == 3 * 2
    assert all("system=granikv" in cell for cell in cells)
    values = [config.compose_cell(cell) for cell in cells]
    assert {value["system"]["name"] for value in values} == {"granikv"}
    assert {value["repetition"] for value in values} == {0, 1}


def test_an_experiment_overrides_the_main_file() -> None:
    values = config.compose_cell(["experiment=table03_cpu"])
    assert values["engine"]["max_running_requests"] == 24
    assert values["storage"]["min_tokens"] == 16


@pytest.mark.parametrize(
    "override",
    [
        "system=vllm",
        "workload.prefix=3",
        "nonsense",
        "load.rate=${nowhere}",
        "model.vocab_size=???",
    ],
)
def test_a_bad_override_is_one_line(override: str) -> None:
    with pytest.raises(HarnessError) as caught:
        config.compose_cell([override])
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("configuration: ")
