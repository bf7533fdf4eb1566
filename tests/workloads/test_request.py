"""Request and Workload: the hash covers everything that is sent (failure kinds 27 and 28)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workloads import NO_PREFIX, Request, Workload, WorkloadError
from workloads.request import read_only

PREFIXES = (read_only([5, 6, 7]), read_only([8, 9]))


def workload(**changes: Any) -> Workload:
    requests = (
        Request(0, read_only([5, 6, 7, 10]), 4, prefix_class=0, prefix_len=3, due_s=0.5),
        Request(1, read_only([8, 9, 11, 12]), 4, prefix_class=1, prefix_len=2, due_s=1.25),
        Request(2, read_only([13, 14]), 4, due_s=1.25),
    )
    fields: dict[str, Any] = {
        "name": "test",
        "requests": requests,
        "prefixes": PREFIXES,
        "parameters": {},
        "provenance": "by hand",
        "seed": 1,
    }
    return Workload(**{**fields, **changes})


def with_last(**changes: Any) -> Workload:
    requests = workload().requests
    return workload(requests=(*requests[:2], replace(requests[2], **changes)))


def test_counts() -> None:
    built = workload()
    assert [request.prompt_len for request in built.requests] == [4, 4, 2]
    assert [request.suffix_len for request in built.requests] == [1, 2, 2]
    assert (built.prompt_tokens, built.output_tokens, built.prefix_tokens) == (10, 12, 5)
    assert built.requests[2].prefix_class == NO_PREFIX


def test_hash_golden() -> None:
    assert workload().sha256 == "748dfc742810fb11644bcce042df92a2927826576dc178603044f5620e939411"


@pytest.mark.parametrize(
    "other",
    [
        workload(seed=2),
        workload(prefixes=(*PREFIXES, [1])),
        workload(requests=workload().requests[:2]),
        with_last(input_ids=[13, 15]),
        with_last(input_ids=[13, 14, 0]),
        with_last(max_new_tokens=5),
        with_last(due_s=1.250000001),
        workload(requests=[replace(request, due_s=None) for request in workload().requests]),
        workload(
            requests=(
                *workload().requests[:2],
                Request(2, read_only([5, 6, 7]), 4, 0, 3, due_s=1.25),
            ),
        ),
    ],
    ids=["seed", "prefixes", "requests", "token", "length", "output", "due", "no due", "class"],
)
def test_hash_changes_with_every_field(other: Workload) -> None:
    assert other.sha256 != workload().sha256


def test_hash_tells_class_and_prefix_length_apart() -> None:
    # The same prompt, cut into prefix and suffix in three ways.
    ids, prefixes = read_only([5, 6, 7]), (read_only([5, 6]), read_only([5]))
    cuts = [Request(0, ids, 4, 0, 2), Request(0, ids, 4, 1, 1), Request(0, ids, 4)]
    hashes = {Workload("", (request,), prefixes, {}, "", 1).sha256 for request in cuts}
    assert len(hashes) == 3


def test_hash_leaves_descriptions_out() -> None:
    described = workload(name="other", parameters={"kind": "x"}, provenance="elsewhere")
    assert described.sha256 == workload().sha256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": []}, "empty prompt"),
        ({"input_ids": [[1, 2]]}, "flat list"),
        ({"input_ids": [1.5]}, "flat list"),
        ({"input_ids": [-1]}, "must lie in"),
        ({"input_ids": [2**31]}, "must lie in"),
        ({"max_new_tokens": 0}, "asks for 0 tokens"),
        ({"due_s": -0.1}, "due at -0.1"),
        ({"due_s": float("nan")}, "due at nan"),
        ({"index": 3}, "carries the index 3"),
        ({"prefix_class": 2}, "no class 2"),
        ({"prefix_class": -2}, "no class -2"),
        ({"prefix_class": 1}, "counts 0 prefix tokens, its class has 2"),
        ({"prefix_class": 1, "prefix_len": 2}, "does not start with"),
        ({"due_s": None}, "some have none"),
        ({"due_s": 1.0}, "run backwards"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        with_last(**changes)


def test_token_ids_cannot_be_changed_from_outside() -> None:
    ids = np.array([13, 14], dtype=np.int32)
    built = with_last(input_ids=ids)
    ids[0] = 99
    assert built.sha256 == workload().sha256
    with pytest.raises(ValueError, match="read-only"):
        built.requests[2].input_ids[0] = 99
    with pytest.raises(ValueError, match="read-only"):
        built.prefixes[0][0] = 99


def test_repr_shows_no_token_ids() -> None:
    # Ids of real text are that text to anyone with the tokenizer.
    built = with_last(input_ids=[123_456, 123_457])
    assert "123456" not in repr(built) + repr(built.requests[2])
