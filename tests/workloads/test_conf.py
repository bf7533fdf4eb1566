"""conf/workload/: the paper's numbers, and the same divided by 32."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.workloads.configs import CONF, CONF_NAMES, VOCAB_SIZE, shipped
from workloads import build

BEYOND_THE_PAPER = ("trace", "agents")
PAPER_NAMES = [
    name for name in CONF_NAMES if not name.endswith("_cpu") and name not in BEYOND_THE_PAPER
]
CPU_NAMES = [f"{name}_cpu" for name in PAPER_NAMES]

TURN_KEYS = {"turns", "min_turn", "max_turn", "shrink_turns_to", "sharegpt_file", "tokenizer"}
BASIC_KEYS = {"kind", "name", "seed", "scale", "hot_fraction"}
COMMON_KEYS = BASIC_KEYS | {"requests", "output_tokens"}
KEYS = {
    "sharegpt": {"prefix_length"} | TURN_KEYS,
    "negative_control": {"prefix_length"} | TURN_KEYS,
    "synthetic": {"prefix_length", "suffix_min", "suffix_max"},
    "multi_prefix": {"common_head", "assignment"} | TURN_KEYS,
}
OWN_KEYS = {
    "trace": {"trace", "trace_file", "block_tokens", "skip", "requests", "max_prompt"},
    "agents": {
        "requests",
        "turns",
        "prefix_length",
        "message_min",
        "message_max",
        "output_tokens",
        "think_s",
    },
}


def prefix_lengths(config: dict[str, Any]) -> list[int]:
    lengths: list[int] = config.get("prefix_lengths") or [config["prefix_length"]]
    return lengths


def test_names() -> None:
    kinds = ["sharegpt", "multi_prefix_equal", "multi_prefix_k4", "multi_prefix_k8", "synthetic"]
    kinds += ["negative_control"]
    assert sorted(kinds) == PAPER_NAMES
    every = [*kinds, *BEYOND_THE_PAPER]
    assert sorted([*every, *(f"{kind}_cpu" for kind in every)]) == CONF_NAMES


@pytest.mark.parametrize("name", CONF_NAMES)
def test_every_key_is_written_out(name: str) -> None:
    # Hydra refuses to override a key that a file does not have.
    config = shipped(name)
    kind = config["kind"]
    own = BASIC_KEYS | OWN_KEYS[kind] if kind in OWN_KEYS else COMMON_KEYS | KEYS[kind]
    expected = own | {"vocab_size"}
    if config["kind"] == "multi_prefix":
        unequal = "prefix_lengths" in config
        expected |= {"prefix_lengths"} if unequal else {"prefix_count", "prefix_length"}
    assert set(config) == expected
    assert config["name"] == name
    assert config["seed"] == 42


@pytest.mark.parametrize("name", [*PAPER_NAMES, *CPU_NAMES])
def test_prefixes_are_whole_pages(name: str) -> None:
    assert all(length % 16 == 0 for length in prefix_lengths(shipped(name)))


@pytest.mark.parametrize("name", CPU_NAMES)
def test_cpu_configuration_is_the_paper_s_scaled_down(name: str) -> None:
    small, paper = shipped(name), shipped(name.removesuffix("_cpu"))
    assert (small["scale"], paper["scale"]) == (32, 1)
    assert [32 * length for length in prefix_lengths(small)] == prefix_lengths(paper)
    for key in ("kind", "turns", "min_turn", "max_turn", "assignment", "hot_fraction"):
        assert small.get(key) == paper.get(key)
    assert small["requests"] == (24 if name == "multi_prefix_k8_cpu" else 16)
    assert small["output_tokens"] == 16
    built = build(small | {"vocab_size": 512, "context_length": 1024})
    suffixes = [request.prompt_len - prefix_or_private(small, request.prefix_len)
                for request in built.requests]  # fmt: skip
    assert 4 <= min(suffixes) < max(suffixes) <= 16


def prefix_or_private(config: dict[str, Any], shared: int) -> int:
    private: int = config["prefix_length"] if config["kind"] == "negative_control" else shared
    return private


@pytest.mark.parametrize("name", PAPER_NAMES)
def test_omegaconf_object_builds_as_it_is(name: str) -> None:
    loaded = OmegaConf.load(CONF / f"{name}.yaml")
    config = OmegaConf.merge(loaded, {"vocab_size": VOCAB_SIZE, "requests": 8})
    assert isinstance(config, DictConfig)
    built = build(cast("Mapping[str, Any]", config))
    assert built.sha256 == build(shipped(name, requests=8)).sha256
    assert json.loads(json.dumps(built.parameters)) == built.parameters


@pytest.mark.parametrize("name", ["multi_prefix_k4", "multi_prefix_k8"])
def test_hot_fraction_admits_all_slabs_in_the_paper_s_budget(name: str) -> None:
    config = shipped(name)
    budget = 7420 / 0.05  # slots: Table 24's 7,420 at f_p = 0.05
    assert sum(prefix_lengths(config)) <= config["hot_fraction"] * budget
    assert config["hot_fraction"] == {"multi_prefix_k4": 0.3, "multi_prefix_k8": 0.4}[name]


@pytest.mark.parametrize("name", BEYOND_THE_PAPER)
def test_scaled_down_beyond_the_paper(name: str) -> None:
    small, large = shipped(f"{name}_cpu"), shipped(name)
    assert small["scale"] == 32
    assert small.get("prefix_length", 0) * 32 == large.get("prefix_length", 0)
    built = build(small | {"vocab_size": 512, "context_length": 1024})
    assert len(built.requests) == 16
    assert max(request.prompt_len for request in built.requests) <= 512
