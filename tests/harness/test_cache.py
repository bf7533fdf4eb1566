"""The state of the cache before a load: what a prefix may find there."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harness import cache
from harness.errors import ServerError

SYSTEM = [1, 2, 3, 4]
PREFIXES = [[*SYSTEM, 10, 11], [*SYSTEM, 20], [9, 9, 9], SYSTEM[:2]]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cached tokens that the server tells of each prompt, to be filled in by the test."""
    told: list[int] = []

    def ask(url: str, prompts: Sequence[Sequence[int]], timeout_s: float) -> list[Any]:
        return [SimpleNamespace(cached_tokens=told[i]) for i in range(len(prompts))]

    monkeypatch.setattr(cache, "ask", ask)
    return told


def test_the_common_head_is_that_with_any_prefix_before() -> None:
    assert cache.shared_heads(PREFIXES) == [0, 4, 0, 2]
    assert cache.shared_heads([]) == []


def test_a_common_head_may_be_cached(answer: list[int]) -> None:
    answer += [0, 4, 0, 1]
    assert cache.prime("", PREFIXES, 1.0) == [0, 4, 0, 1]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([3, 4, 0, 2], "3 tokens of prefix 0 were cached, and it shares 0 with"),
        ([0, 5, 0, 2], "5 tokens of prefix 1 were cached, and it shares 4 with"),
        ([0, 4, 1, 2], "1 tokens of prefix 2 were cached, and it shares 0 with"),
    ],
)
def test_a_warm_prefix_is_noticed_wherever_it_stands(
    answer: list[int], told: list[int], words: str
) -> None:
    answer += told
    with pytest.raises(ServerError, match="the cache was not empty before priming") as caught:
        cache.prime("", PREFIXES, 1.0)
    assert words in str(caught.value)


def test_without_a_prefix_nothing_is_primed(answer: list[int]) -> None:
    assert cache.prime("", [], 1.0) == []
