"""Systems: what each asks of a server, and the proof that it got it."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import config, systems
from harness.errors import HarnessError
from harness.systems import SYSTEMS, Hardware, ServerInfo, System, Traffic

CPU = Hardware("cpu", "cpu", Path("/p/cpu.yaml"))
H200 = Hardware("h200", "cuda", Path("/p/h200.yaml"))
A100 = Hardware("a100_40gb", "cuda", Path("/p/a100_40gb.yaml"))
STORAGE = {"hot_fraction": 0.3, "admission": "eager", "min_tokens": None, "eviction": "lru"}
ONE_PREFIX = Traffic([512], shared_by_all=True)
FOUR_PREFIXES = Traffic([64, 128, 256, 512], shared_by_all=False)


def system(name: str) -> System:
    text = (config.DIRECTORY / "system" / f"{name}.yaml").read_text()
    return systems.make(yaml.safe_load(text), STORAGE)


def granikv_info(backend: str = "auto", /, **counters: int) -> ServerInfo:
    state = {
        "system": "granikv",
        "config": {**STORAGE, "min_tokens": 128},
        "backends": {"decode": "granikv", "forced": None if backend == "auto" else backend},
        "pools": {"hot_size": 4000},
        "counters": counters,
    }
    return ServerInfo(
        {
            "attention_backend": "torch_native",
            "page_size": 1,
            "internal_states": [{"granikv": [state]}],
        }
    )


def test_every_system_has_a_file_and_every_file_a_system() -> None:
    files = {path.stem for path in (config.DIRECTORY / "system").glob("*.yaml")}
    assert files == {*SYSTEMS, "kernel"}, "kernel: benchmarks, which serve nothing"
    for name in SYSTEMS:
        assert system(name).options["name"] == name
        assert system(name).options["title"]


COMMANDS = {
    "sglang_default": "--attention-backend flashinfer --page-size 16",
    "sglang_flashinfer_p1": "--attention-backend flashinfer --page-size 1",
    "sglang_fa3": "--attention-backend fa3 --page-size 1",
    "sglang_cascade": "--attention-backend flashinfer --page-size 16 --sglang-cascade",
}
STORAGE_FLAGS = (
    "--granikv-hardware /p/h200.yaml --granikv-hot-fraction 0.3 --granikv-admission eager "
    "--granikv-eviction lru"
)
BACKENDS = {
    "granikv": "auto",
    "granikv_dense": "dense",
    "granikv_cascade": "cascade",
    "cascade_on_granikv": "cascade",
    "granikv_hydragen": "hydragen",
    "granikv_contiguous_unshared": "paged",
}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_arguments_of_the_systems_without_storage(name: str) -> None:
    assert " ".join(system(name).arguments(H200)) == COMMANDS[name]


@pytest.mark.parametrize(("name", "backend"), BACKENDS.items())
def test_arguments_of_the_storage_systems(name: str, backend: str) -> None:
    expected = f"--page-size 1 --granikv --granikv-backend {backend} {STORAGE_FLAGS}"
    assert " ".join(system(name).arguments(H200)) == expected


def test_the_cpu_has_its_own_choices() -> None:
    assert system("sglang_default").arguments(CPU) == [
        "--attention-backend",
        "torch_native",
        "--page-size",
        "1",
    ]


@pytest.mark.parametrize("name", ["sglang_flashinfer_p1", "sglang_fa3", "granikv_hydragen"])
def test_what_the_cpu_cannot_run_is_refused_in_one_line(name: str) -> None:
    refusal = system(name).refusal(CPU)
    assert refusal is not None
    assert name in refusal
    assert "needs a GPU" in refusal
    assert "\n" not in refusal
    assert system(name).refusal(H200) is None


def test_slabs_that_every_row_reads_need_another_backend_on_either_device() -> None:
    one = system("granikv_contiguous_unshared")
    assert "--granikv-backend contiguous_unshared" in " ".join(one.arguments(CPU))
    assert one.refusal(CPU) is None
    assert one.refusal(H200) is None


def test_fa3_is_refused_on_an_a100() -> None:
    assert "Hopper" in str(system("sglang_fa3").refusal(A100))


def test_an_unknown_system_is_named() -> None:
    with pytest.raises(HarnessError, match="unknown system 'vllm'; there are: sglang_default"):
        systems.make({"name": "vllm"}, STORAGE)


def test_a_device_without_a_choice_is_named() -> None:
    options = {"name": "sglang_default", "attention_backend": {"cuda": "fa3"}, "page_size": 1}
    with pytest.raises(HarnessError, match="no choice for device 'cpu'"):
        systems.make(options, STORAGE).arguments(CPU)


STOCK_INFO: dict[str, Any] = {
    "attention_backend": "torch_native",
    "page_size": 1,
    "radix_cache_backend": None,
    "internal_states": [{}],
}


def test_a_stock_server_as_asked() -> None:
    assert system("sglang_default").misuse(ServerInfo(STOCK_INFO), CPU) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention_backend": "triton"}, "attention_backend is 'triton'"),
        ({"page_size": 16}, "page_size is 16"),
        ({"page_size": None}, "page_size is None"),
        ({"radix_cache_backend": "granikv"}, "radix_cache_backend was set"),
        ({"decode_attention_backend": "granikv"}, "decode_attention_backend was set"),
        ({"internal_states": [{"granikv": [{}]}]}, "plugin is active"),
    ],
)
def test_another_server_than_stock_is_noticed(changes: dict[str, Any], words: str) -> None:
    wrong = system("sglang_default").misuse(ServerInfo({**STOCK_INFO, **changes}), CPU)
    assert words in "; ".join(wrong)


def test_granikv_as_asked() -> None:
    assert system("granikv").misuse(granikv_info(), CPU) == []
    assert system("granikv_dense").misuse(granikv_info("dense"), CPU) == []


@pytest.mark.parametrize("name", [n for n in SYSTEMS if not n.startswith("sglang_f")])
def test_a_fallback_to_stock_is_noticed(name: str) -> None:
    wrong = system(name).misuse(ServerInfo(STOCK_INFO), CPU)
    assert (wrong == []) == (name == "sglang_default")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("system",), "sglang_cascade", "the system is 'sglang_cascade'"),
        (("backends", "decode"), "torch_native", "decode runs on 'torch_native'"),
        (("backends", "forced"), "dense", "the backend is 'dense', not 'auto'"),
        (("config", "hot_fraction"), 0.2, "hot_fraction is 0.2, 0.3 was asked for"),
        (("config", "admission"), "on_share", "admission is 'on_share'"),
    ],
)
def test_another_granikv_than_asked_is_noticed(
    path: tuple[str, ...], value: Any, words: str
) -> None:
    raw = copy.deepcopy(dict(granikv_info().raw))
    second = copy.deepcopy(raw["internal_states"][0]["granikv"][0])
    part = second
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    raw["internal_states"][0]["granikv"].append(second)
    raw["tp_size"] = 2
    (wrong,) = system("granikv").misuse(ServerInfo(raw), CPU)
    assert wrong.startswith("rank 1: ")
    assert words in wrong


def test_every_rank_must_tell_its_state() -> None:
    raw = {**granikv_info().raw, "tp_size": 2}
    (wrong,) = system("granikv").misuse(ServerInfo(raw), CPU)
    assert wrong == "1 of the server's 2 ranks tell their state"


BEFORE = granikv_info(steps=5, relocations=2, steps_dense=5, steps_cascade=1)


@pytest.mark.parametrize(
    ("name", "after", "words"),
    [
        ("granikv", {"steps": 9, "relocations": 3}, ""),
        ("granikv", {"steps": 5, "relocations": 3}, "no decode step"),
        ("granikv", {"steps": 9, "relocations": 2}, "no prefix became a slab"),
        ("granikv", {"relocations": 3}, "no counter 'steps'"),
        ("granikv_dense", {"steps": 9, "relocations": 3, "steps_dense": 6}, ""),
        ("granikv_dense", {"steps": 9, "relocations": 3, "steps_dense": 5}, "dense backend never"),
        ("cascade_on_granikv", {"steps": 9, "relocations": 3, "steps_cascade": 2}, ""),
        (
            "cascade_on_granikv",
            {"steps": 9, "relocations": 3, "steps_cascade": 1},
            "cascade backend never",
        ),
        ("granikv_contiguous_unshared", {"steps": 9, "relocations": 3, "steps_paged": 2}, ""),
    ],
)
def test_a_feature_that_never_fired_is_noticed(
    name: str, after: dict[str, int], words: str
) -> None:
    info = granikv_info(BACKENDS[name], **after)
    wrong = system(name).silent(BEFORE, info, FOUR_PREFIXES)
    assert (wrong == []) == (words == "")
    assert words in "; ".join(wrong)


FORCED = [name for name in SYSTEMS if name != "granikv" and "granikv" in name]


@pytest.mark.parametrize("name", [*FORCED, "sglang_cascade"])
def test_a_forced_backend_may_leave_no_step_to_pages(name: str) -> None:
    info = partial(granikv_info, BACKENDS.get(name, "auto"))
    before, spilled = info(steps_overflowed=3), info(steps_overflowed=5)
    assert system(name).overflowed(before, before) == []
    (reason,) = system(name).overflowed(before, spilled)
    assert "were served paged: the counter 'steps_overflowed' rose by 2" in reason
    (reason,) = system(name).overflowed(before, info(steps=5))
    assert reason == "/server_info has no counter 'steps_overflowed'"


def test_a_server_that_does_not_say_what_it_forces_is_judged_all_the_same() -> None:
    """Its own word names the backend; whether one was forced is known without it."""
    silent = ServerInfo({})
    assert system("granikv_dense").overflowed(silent, silent)
    after = granikv_info(steps=9, relocations=3, steps_dense=9, steps_overflowed=5)
    assert system("granikv_dense").silent(BEFORE, after, FOUR_PREFIXES)
    assert system("granikv_dense").overflowed(granikv_info(steps_overflowed=3), after)


@pytest.mark.parametrize("name", ["granikv", "sglang_default"])
def test_what_forces_no_backend_has_none_to_leave(name: str) -> None:
    assert system(name).overflowed(granikv_info(), granikv_info(steps_overflowed=5)) == []


@pytest.mark.parametrize("lengths", [[], [100], [5000]])
def test_no_slab_is_expected_of_prefixes_too_short_or_too_long(lengths: list[int]) -> None:
    after = granikv_info(steps=9, relocations=2)
    assert system("granikv").silent(BEFORE, after, Traffic(lengths, False)) == []


def test_cascade_must_fire_only_where_all_share_one_prefix() -> None:
    idle = granikv_info(steps=9, steps_cascade=1)
    assert system("sglang_cascade").silent(BEFORE, idle, FOUR_PREFIXES) == []
    assert "never served" in system("sglang_cascade").silent(BEFORE, idle, ONE_PREFIX)[0]
    fired = granikv_info(steps=9, steps_cascade=2)
    assert system("sglang_cascade").silent(BEFORE, fired, ONE_PREFIX) == []
