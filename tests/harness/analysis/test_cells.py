"""Reading a cell's configuration into the paper's terms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from harness import paper
from harness.analysis import cells
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell


def test_a_gpu_cell() -> None:
    at = cells.standing(gpu_cell("granikv", 1.0, lengths=(8192,), b=128, repetition=2))
    assert (at.hardware, at.functional, at.model) == ("h200", False, paper.LLAMA_8B)
    assert (at.system, at.kind, at.k, at.b, at.repetition) == ("granikv", "sharegpt", 1, 128, 2)
    assert at.paper_lengths == (8192,)


def test_a_cpu_cell_stands_for_longer_prefixes() -> None:
    at = cells.standing(cpu_cell("granikv", 1.0, lengths=(512, 64), kind="multi_prefix"))
    assert at.functional
    assert at.paper_lengths == (2048, 16384)
    assert (at.k, at.unequal) == (2, True)


def test_equal_prefixes_by_count() -> None:
    workload = {"kind": "multi_prefix", "prefix_count": 4, "prefix_length": 8192}
    at = cells.standing(MadeUpCell("x", {"workload": workload}, {}))
    assert at.prefix_lengths == (8192,) * 4
    assert (at.k, at.unequal) == (4, False)


def test_another_degree_of_parallelism_is_another_model() -> None:
    cell = gpu_cell("granikv", 1.0, model={"name": "qwen25_14b", "tp": 4})
    assert cells.standing(cell).model == "Qwen-2.5-14B/TP=4"


def test_an_odd_cell_is_read_without_an_error() -> None:
    at = cells.standing(MadeUpCell("x", {"system": None, "workload": "?"}, {}))
    assert (at.system, at.kind, at.prefix_lengths, at.b) == ("", "", (), None)


@pytest.mark.parametrize("raw", [None, math.nan, math.inf, "12", True])
def test_what_is_not_measured_is_no_number(raw: object) -> None:
    assert cells.number(MadeUpCell("x", {}, {"ttft_p50_s": raw}), "ttft_p50_s") is None


def test_counters_are_those_of_the_load_alone() -> None:
    cell = gpu_cell(
        "granikv",
        1.0,
        state={"counters": {"steps_dense": 90, "steps_cascade": 7}},
        record={"server": {"counters_before": {"steps_dense": 50}}},
    )
    assert cells.counters(cell) == {"steps_dense": 40, "steps_cascade": 7}
    assert cells.counters(gpu_cell("sglang_default", 1.0)) == {}


def test_settings_differ_by_what_is_asked_and_not_by_system_or_hot_fraction() -> None:
    one, other = gpu_cell("granikv", 1.0), gpu_cell("sglang_default", 1.0)
    with_f_p = MadeUpCell(
        "x", dict(one.config) | {"workload": dict(one.config["workload"], hot_fraction=0.4)}, {}
    )
    assert cells.setting(one) == cells.setting(other) == cells.setting(with_f_p)
    assert cells.variant(one) != cells.variant(other)
    paper_budget = MadeUpCell("y", dict(one.config) | {"kv_budget": "paper"}, {})
    assert cells.setting(paper_budget) != cells.setting(one)


def test_group_sizes_come_from_the_models() -> None:
    sizes = [
        cells.group_size(gpu_cell("granikv", 1.0, model={"name": name, "tp": 1}))
        for name in ("llama31_8b", "qwen25_14b", "qwen25_32b", "someone's")
    ]
    assert sizes == [4, 5, 5, None]
    assert cells.group_size(cpu_cell("granikv", 1.0)) == 2


@pytest.mark.parametrize("experiment", ["table03", "table03_cpu", "table21", "table21_cpu"])
def test_real_configurations_are_read(experiment: str) -> None:
    directory = str(Path(paper.ROOT) / "conf")
    with initialize_config_dir(directory, version_base=None):
        hardware = "cpu" if experiment.endswith("_cpu") else "h200"
        chosen = [f"experiment={experiment}", f"hardware={hardware}", "system=granikv"]
        config = compose("config", chosen)
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    at = cells.standing(MadeUpCell("x", {str(key): plain[key] for key in plain}, {}))
    assert at.functional is experiment.endswith("_cpu")
    assert at.model == ("tiny/TP=1" if at.functional else paper.LLAMA_8B)
    assert at.kind == ("sharegpt" if "03" in experiment else "multi_prefix")
    assert at.paper_lengths in ((16384,), (2048, 4096, 8192, 16384))
    assert at.b == plain["load"]["permits"]
