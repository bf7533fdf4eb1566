"""Our flags: what they become, and the one line that a wrong one gets."""

from __future__ import annotations

import pytest

from granikv import flags
from granikv.config import ConfigError, GraniKVConfig, stored_config


def test_without_the_switch_nothing_is_ours() -> None:
    config, rest = flags.split(["--model-path", "m", "--port", "1"])
    assert config is None
    assert rest == ["--model-path", "m", "--port", "1"]


def test_the_switch_and_its_companions_become_a_configuration() -> None:
    given = "--model-path m --granikv --granikv-hot-fraction 0.3 --granikv-admission on_share"
    config, rest = flags.split(given.split())
    assert config is not None
    assert (config.hot_fraction, config.admission, config.system) == (0.3, "on_share", "granikv")
    assert rest == ["--model-path", "m"]
    assert flags.engine_arguments(config, rest) == [
        *rest,
        *("--decode-attention-backend", "granikv"),
        *("--radix-cache-backend", "granikv"),
    ]


def test_sglang_cascade_leaves_the_engines_tree_alone() -> None:
    config, rest = flags.split(["--sglang-cascade", "--page-size", "16"])
    assert config is not None
    assert config.backend == "cascade"
    assert "radix_cache_backend" not in flags.engine_options(config)
    assert rest == ["--page-size", "16"]


def test_every_server_has_its_own_secret_and_shows_it_to_nobody() -> None:
    first, second = flags.split(["--granikv"])[0], flags.split(["--granikv"])[0]
    assert first is not None
    assert second is not None
    assert first.control_token != second.control_token
    assert "control_token" not in first.public()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--granikv-admission eager", "--granikv-admission needs --granikv"),
        ("--granikv --granikv-hot-fractoin 1", "--granikv-hot-fractoin is no flag"),
        ("--granikv --granikv-hot-fraction 1.5", "between 0 and 0.95"),
        ("--granikv --granikv-hot-fraction lots", "invalid float value"),
        ("--granikv --granikv-admission lazy", "eager, on_share, pinned"),
        ("--granikv --granikv-eviction fifo", "choose one of"),
        ("--granikv --granikv-backend triton", "auto, dense, cascade, paged"),
        ("--granikv --granikv-min-tokens 0", "at least 1"),
        ("--granikv --granikv-pin-budget -1", "between 0 and 1"),
        ("--granikv --sglang-cascade", "two systems"),
        ("--sglang-cascade --granikv-backend dense", "no slabs for dense"),
        ("--sglang-cascade --granikv-backend auto", "no slabs for auto"),
    ],
)
def test_a_wrong_choice_is_one_line(arguments: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        flags.split(arguments.split())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("taken", ["--decode-attention-backend", "--radix-cache-backend"])
def test_what_is_ours_to_set_may_not_be_set(taken: str) -> None:
    config, rest = flags.split(["--granikv", taken, "triton"])
    assert config is not None
    with pytest.raises(ConfigError, match="GraniKV's to set"):
        flags.engine_arguments(config, rest)


def test_the_configuration_reaches_the_processes_that_are_started() -> None:
    environment: dict[str, str] = {}
    config = GraniKVConfig(hot_fraction=0.35, admission="pinned", control_token="secret")
    config.store(environment)
    assert stored_config(environment) == config
    assert stored_config({}) is None


def test_a_damaged_configuration_is_one_line() -> None:
    with pytest.raises(ConfigError, match="not a GraniKV configuration"):
        stored_config({"GRANIKV_CONFIG": '{"no_such": 1}'})
