"""Agent sessions: each turn extends the former one; sessions share the system prompt alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.workloads.configs import shipped, small
from workloads import Request, Workload, WorkloadError, build, constant, with_arrivals

PREFIX, ANSWER = 16, 6


def agents(**changes: Any) -> Workload:
    return build(
        {
            "kind": "agents",
            "requests": 12,
            "turns": 4,
            "prefix_length": PREFIX,
            "message_min": 2,
            "message_max": 5,
            "output_tokens": ANSWER,
            "think_s": 0.5,
            "vocab_size": 512,
            **changes,
        }
    )


def sessions(workload: Workload) -> list[tuple[Request, ...]]:
    return [workload.requests[start : start + 4] for start in range(0, 12, 4)]


def test_a_turn_extends_the_former_one_by_an_answer_and_a_message() -> None:
    for turns in sessions(agents()):
        for former, later in pairwise(turns):
            assert np.array_equal(later.input_ids[: former.prompt_len], former.input_ids)
            assert ANSWER + 2 <= later.prompt_len - former.prompt_len <= ANSWER + 5
            assert later.after == former.index
            assert later.think_s > 0
        assert turns[0].after is None
        assert turns[0].think_s == 0


def test_sessions_share_the_system_prompt_and_no_more() -> None:
    first = [turns[-1].input_ids for turns in sessions(agents())]
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert np.array_equal(first[one][:PREFIX], first[other][:PREFIX])
        assert first[one][PREFIX] != first[other][PREFIX]


def test_hash_golden() -> None:
    built = build(shipped("agents_cpu", vocab_size=512))
    assert built.sha256 == "f7164df4ab70f9003082d751d76438c164cf4bc163c44c36c6132f27a8c07653"


def test_the_hash_follows_order_and_think_times() -> None:
    assert agents().sha256 == agents().sha256
    others = [agents(think_s=0.6), agents(seed=1), agents(turns=3), agents(message_max=6)]
    assert len({agents().sha256, *(other.sha256 for other in others)}) == 5


def test_think_times_have_their_mean() -> None:
    waits = [r.think_s for r in agents(requests=800).requests if r.after is not None]
    assert np.mean(waits) == pytest.approx(0.5, rel=0.15)
    assert not any(r.think_s for r in agents(think_s=0).requests)


def test_the_last_session_may_be_shorter() -> None:
    cut, whole = agents(requests=10), agents()
    assert len(cut.requests) == 10
    assert [r.after for r in cut.requests] == [r.after for r in whole.requests[:10]]
    assert np.array_equal(cut.requests[-1].input_ids, whole.requests[9].input_ids)


def test_arrivals_are_those_of_sessions() -> None:
    timed = with_arrivals(agents(), constant(2.0, 3))
    assert [r.due_s for r in timed.requests] == [0.0] * 4 + [0.5] * 4 + [1.0] * 4
    with pytest.raises(WorkloadError, match="12 arrivals for 3 requests"):
        with_arrivals(agents(), constant(2.0, 12))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"message_max": 1}, "message_min 2 is above message_max 1"),
        ({"think_s": -1}, "think_s must be a number of seconds"),
        ({"context_length": 59}, "exceed the model's context of 59"),
        ({"vocab_size": 5}, "3 different first tokens are needed"),
        ({"turn": 3}, "unknown workload key 'turn'"),
    ],
)
def test_what_cannot_be_built_is_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        agents(**changes)


def test_a_context_that_just_fits() -> None:
    built = agents(message_min=5, context_length=60)  # 16 + 4 × (5 + 6)
    assert max(r.prompt_len + r.max_new_tokens for r in built.requests) == 60


@pytest.mark.parametrize(
    ("index", "after", "think_s"), [(1, 1, 0.0), (0, -1, 0.0), (2, 0, -1.0), (2, 0, float("inf"))]
)
def test_a_request_follows_an_earlier_one(index: int, after: int, think_s: float) -> None:
    with pytest.raises(WorkloadError, match=r"follows request|think time"):
        Request(index, np.array([5]), 1, after=after, think_s=think_s)


def test_a_request_has_one_follower() -> None:
    opener = build(small("sharegpt")).requests[0]
    followers = [Request(i, opener.input_ids, 1, after=0) for i in (1, 2)]
    plain = Request(0, opener.input_ids, 1)
    with pytest.raises(WorkloadError, match="two requests follow the same one"):
        Workload("x", (plain, *followers), (), {}, "", 0)
