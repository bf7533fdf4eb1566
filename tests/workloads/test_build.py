"""The paper's kinds, from configurations: shapes, determinism, refusals."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.configs import CONF_NAMES, SMALL, shipped, small
from workloads import NO_PREFIX, Workload, WorkloadError, build, lengths
from workloads.build import KINDS
from workloads.request import Tokens

GOLDEN = {
    "sharegpt": "a4db8d26bba9b2e914baffb23668a5e755f86ee1ca2453fdda826413ce6472e7",
    "multi_prefix": "3f1100bf6744627ad883da9320b7b2e43c48d544344317275035792483ab5305",
    "synthetic": "c5d37c6103ba23385e2ab740901067744984e41d0074029ef4e9e99478b82a85",
    "negative_control": "b7c1651c232766f922d3232e759711a2de34c36a9b877a5284ff7b7a159968d8",
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_hash_golden(kind: str) -> None:
    assert build(small(kind)).sha256 == GOLDEN[kind]


def test_paper_sized_hash_golden() -> None:
    built = build(shipped("sharegpt", prefix_length=512))
    assert built.sha256 == "dae603ffa001e46992a125c9187416f5da0b9c1c447f6c8a09711010b722c50a"


def test_same_hash_in_another_process() -> None:
    code = (
        "from tests.workloads.configs import small; from workloads import build; "
        "print(build(small('multi_prefix')).sha256)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip() == build(small("multi_prefix")).sha256


CHANGES: list[tuple[str, dict[str, Any]]] = [
    *((kind, {"seed": 43}) for kind in GOLDEN),
    *((kind, {"requests": 11}) for kind in GOLDEN),
    *((kind, {"output_tokens": 7}) for kind in GOLDEN),
    *((kind, {"vocab_size": 513}) for kind in GOLDEN),
    ("sharegpt", {"prefix_length": 48}),
    ("sharegpt", {"turns": "first"}),
    ("sharegpt", {"shrink_turns_to": [4, 17]}),
    ("sharegpt", {"shrink_turns_to": None}),
    ("sharegpt", {"min_turn": 40}),
    ("sharegpt", {"max_turn": 100}),
    ("multi_prefix", {"prefix_lengths": [16, 48]}),
    ("multi_prefix", {"common_head": 6}),
    ("multi_prefix", {"assignment": "round_robin"}),
    ("synthetic", {"suffix_max": 10}),
    ("negative_control", {"prefix_length": 48}),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_hash_changes_with_every_parameter(kind: str, change: dict[str, Any]) -> None:
    assert build(small(kind, **change)).sha256 != GOLDEN[kind]


@pytest.mark.parametrize("kind", GOLDEN)
def test_labels_change_no_request(kind: str) -> None:
    labelled = build(small(kind, name="x", scale=32, hot_fraction=0.3, context_length=4096))
    assert labelled.sha256 == GOLDEN[kind]
    assert labelled.name == "x"
    assert labelled.parameters["scale"] == 32
    assert labelled.parameters["hot_fraction"] == 0.3


@pytest.mark.parametrize("kind", GOLDEN)
def test_parameters_build_the_same_workload(kind: str) -> None:
    built = build(small(kind))
    recorded = json.loads(json.dumps(built.parameters))
    recorded.pop("arrivals", None)
    assert build(recorded).sha256 == built.sha256


def check_lengths(workload: Workload, prefix_lengths: list[int], suffixes: range) -> None:
    assert [prefix.size for prefix in workload.prefixes] == prefix_lengths
    for request in workload.requests:
        assert request.prefix_len == prefix_lengths[request.prefix_class]
        assert request.prompt_len - request.prefix_len in suffixes


def test_sharegpt_prompts_have_the_lengths_asked_for() -> None:
    built = build(shipped("sharegpt", prefix_length=1024))
    check_lengths(built, [1024], range(16, 513))
    assert len(built.requests) == 500
    assert {request.max_new_tokens for request in built.requests} == {256}
    assert {request.due_s for request in built.requests} == {None}
    assert "shipped ShareGPT distribution (all turns)" in built.provenance
    suffixes = np.array([request.suffix_len for request in built.requests])
    assert 25 < np.median(suffixes) < 45
    assert 50 < suffixes.mean() < 90


def test_lengths_contents_and_classes_are_drawn_apart() -> None:
    # Failure kind 25: one generator for all would let a change of the one move the others.
    plain = build(small("multi_prefix"))
    for change in ({"prefix_lengths": [32, 64, 80]}, {"vocab_size": 600}, {"common_head": 0}):
        other = build(small("multi_prefix", **change))
        assert suffix_lengths(other) == suffix_lengths(plain)
        assert classes(other) == classes(plain)
    longer = build(small("multi_prefix", shrink_turns_to=[30, 90]))
    assert classes(longer) == classes(plain)
    for one, other_request in zip(plain.requests, longer.requests, strict=True):
        common = one.prompt_len
        assert np.array_equal(one.input_ids, other_request.input_ids[:common])
    robin = build(small("multi_prefix", assignment="round_robin"))
    assert suffix_lengths(robin) == suffix_lengths(plain)


def suffix_lengths(workload: Workload) -> list[int]:
    return [request.suffix_len for request in workload.requests]


def classes(workload: Workload) -> list[int]:
    return [request.prefix_class for request in workload.requests]


@pytest.mark.parametrize("k", [1, 4, 16, 64])
def test_equal_prefixes(k: int) -> None:
    built = build(shipped("multi_prefix_equal", prefix_count=k, prefix_length=64))
    check_lengths(built, [64] * k, range(16, 513))
    counts = Counter(classes(built))
    assert sorted(counts) == list(range(k))
    assert counts == Counter(classes(build(shipped("multi_prefix_equal", prefix_count=k))))
    # Within five standard deviations of an even share.
    assert all(abs(n - 500 / k) < 5 * (500 / k) ** 0.5 for n in counts.values())


def test_k4_is_the_paper_s() -> None:
    built = build(shipped("multi_prefix_k4"))
    check_lengths(built, [2048, 4096, 8192, 16384], range(16, 513))
    assert classes(built)[:5] == [0, 1, 2, 3, 0]
    assert set(Counter(classes(built)).values()) == {128}
    assert built.prefix_tokens == 30_720


def test_k8_ladder_sums_to_the_paper_s_53_2k() -> None:
    built = build(shipped("multi_prefix_k8"))
    check_lengths(built, [1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384], range(16, 513))
    assert set(Counter(classes(built)).values()) == {64}
    assert round(built.prefix_tokens / 1000, 1) == 53.2


def test_common_head_is_shared_by_every_class_and_counts_in_its_length() -> None:
    built = build(small("multi_prefix"))
    assert [prefix.size for prefix in built.prefixes] == [16, 48, 32]
    for one, other in itertools.combinations(built.prefixes, 2):
        assert np.array_equal(one[:5], other[:5])
        assert one[5] != other[5]


def test_synthetic_is_one_burst() -> None:
    built = build(shipped("synthetic", prefix_length=512, requests=32))
    check_lengths(built, [512], range(128, 129))
    assert [request.due_s for request in built.requests] == [0.0] * 32
    assert {request.max_new_tokens for request in built.requests} == {128}
    assert built.parameters["arrivals"]["kind"] == "burst"


def test_synthetic_suffixes_span_their_range() -> None:
    built = build(small("synthetic", requests=200))
    assert set(suffix_lengths(built)) == set(range(4, 10))


def test_negative_control_shares_nothing_and_is_as_long() -> None:
    control, shared = build(small("negative_control")), build(small("sharegpt"))
    assert [r.prompt_len for r in control.requests] == [r.prompt_len for r in shared.requests]
    assert control.prefixes == ()
    assert {request.prefix_class for request in control.requests} == {NO_PREFIX}
    assert len({int(request.input_ids[0]) for request in control.requests}) == 12
    assert len(windows(control)) == control.prompt_tokens - 12 * 2


def windows(workload: Workload) -> set[tuple[int, ...]]:
    """Runs of three tokens: any two prompts with a stretch in common would share some."""

    def runs(ids: Tokens) -> list[tuple[int, ...]]:
        return list(zip(*(ids[offset:].tolist() for offset in range(3)), strict=False))

    return {run for request in workload.requests for run in runs(request.input_ids)}


@pytest.mark.parametrize("kind", GOLDEN)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requests": 0}, "requests must be at least 1, not 0"),
        ({"requests": "12"}, "requests must be an integer, not '12'"),
        ({"requests": 12.0}, "requests must be an integer, not 12.0"),
        ({"requests": True}, "requests must be an integer, not True"),
        ({"output_tokens": -1}, "output_tokens must be at least 1, not -1"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"vocab_size": 3}, "vocab_size must be at least 4, not 3"),
        ({"vocab_size": None}, "the workload needs vocab_size"),
        ({"vocab_size": 12}, "vocab_size 12 leaves 9 token ids"),
        ({"context_length": 40}, "exceed the model's context of 40"),
        ({"context_length": 0}, "context_length must be at least 1"),
        ({"hot_fraction": 1.5}, "hot_fraction must lie between 0 and 1, not 1.5"),
        ({"scale": 0}, "scale must be at least 1"),
        ({"name": ""}, "name must be a word"),
        ({"prefix_lenght": 32}, "unknown workload key 'prefix_lenght'; this kind takes: .*seed"),
    ],
)
def test_refusals_of_every_kind(kind: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as refused:
        build(small(kind, **change))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("sharegpt", {"prefix_length": -5}, "prefix_length must be at least 1, not -5"),
        ("sharegpt", {"prefix_length": None}, "needs prefix_length"),
        ("sharegpt", {"turns": "last"}, "turns must be one of all, first, not 'last'"),
        ("sharegpt", {"min_turn": 600}, "min_turn 600 is above max_turn 512"),
        ("sharegpt", {"min_turn": 8}, "must lie in order within 16 and 512"),
        ("sharegpt", {"shrink_turns_to": [16, 4]}, r"must be \[smallest, largest\]"),
        ("sharegpt", {"shrink_turns_to": [4]}, r"must be \[smallest, largest\]"),
        ("sharegpt", {"shrink_turns_to": 4}, "must be a list of integers, not 4"),
        ("sharegpt", {"shrink_turns_to": "4"}, "must be a list of integers, not '4'"),
        ("sharegpt", {"min_turn": 512}, "needs min_turn below max_turn"),
        ("sharegpt", {"common_head": 4}, "unknown workload key 'common_head'"),
        ("multi_prefix", {"prefix_count": 4}, "give either prefix_lengths or"),
        ("multi_prefix", {"prefix_length": 4}, "give either prefix_lengths or"),
        ("multi_prefix", {"prefix_lengths": None}, "needs prefix_count"),
        ("multi_prefix", {"prefix_lengths": []}, "must be a list of integers"),
        ("multi_prefix", {"prefix_lengths": [16, -1]}, "integers of at least 1: -1"),
        ("multi_prefix", {"common_head": 16}, "shorter than the shortest prefix, 16"),
        ("multi_prefix", {"assignment": "hash"}, "must be one of seeded, round_robin"),
        ("synthetic", {"suffix_min": 10}, "suffix_min 10 is above suffix_max 9"),
        ("synthetic", {"turns": "all"}, "unknown workload key 'turns'"),
    ],
)
def test_refusals_of_one_kind(kind: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        build(small(kind, **change))


@pytest.mark.parametrize("kind", ["traces", None, ["sharegpt"]])
def test_unknown_kind(kind: object) -> None:
    with pytest.raises(WorkloadError, match="there are: sharegpt, multi_prefix, synthetic"):
        build({**small("sharegpt"), "kind": kind})


@pytest.mark.parametrize("kind", GOLDEN)
def test_context_is_filled_to_the_last_token(kind: str) -> None:
    longest = max(request.prompt_len for request in build(small(kind)).requests)
    assert build(small(kind, context_length=longest + 6)).sha256 == GOLDEN[kind]
    with pytest.raises(WorkloadError, match=f"prompt of {longest} tokens and 6 output tokens"):
        build(small(kind, context_length=longest + 5))


def test_a_prefix_over_the_context_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(lengths, "draw")
    with pytest.raises(WorkloadError, match="exceed the model's context of 8192"):
        build(shipped("sharegpt", context_length=8192))


def test_every_kind_has_a_small_configuration() -> None:
    assert {*SMALL, "trace", "agents"} == set(KINDS)


def test_every_shipped_configuration_is_built_somewhere() -> None:
    assert {shipped(name)["kind"] for name in CONF_NAMES} == set(KINDS)
