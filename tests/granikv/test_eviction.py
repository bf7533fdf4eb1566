"""Eviction policies: the order, the ties, and what they must not depend on."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from granikv.eviction import Evictable, EvictionPolicy, Hotness, Lru, eviction_policy


@dataclass
class Node:
    id: int
    last_use: int
    hits: int = 0
    length: int = 16


def order(policy: EvictionPolicy, *nodes: Evictable) -> list[int]:
    return [node.id for node in sorted(nodes, key=policy.key)]


def test_lru_evicts_the_least_recently_used_first() -> None:
    assert order(Lru(), Node(1, 30), Node(2, 10, hits=99), Node(3, 20)) == [2, 3, 1]


def test_hotness_without_hits_is_lru() -> None:
    nodes = [Node(1, 30), Node(2, 10), Node(3, 20)]
    assert order(Hotness(), *nodes) == order(Lru(), *nodes)


def test_hotness_keeps_a_hot_old_prefix_over_a_cold_recent_one() -> None:
    hot, scan = Node(1, last_use=100, hits=63), Node(2, last_use=300)
    assert order(Hotness(half_life=100), hot, scan) == [2, 1]
    assert order(Lru(), hot, scan) == [1, 2]


@pytest.mark.parametrize(("age", "first"), [(599, 2), (601, 1)])
def test_hits_fade_by_half_every_half_life(age: int, first: int) -> None:
    # 63 hits are worth six doublings: 600 ticks at a half-life of 100.
    hot, scan = Node(1, last_use=1000, hits=63), Node(2, last_use=1000 + age)
    assert order(Hotness(half_life=100), hot, scan)[0] == first


def test_hotness_orders_as_the_decayed_hits_do() -> None:
    rng, half_life, now = Random(7), 50, 1000
    nodes = [Node(i, rng.randrange(now), rng.randrange(200)) for i in range(200)]
    by_id = {node.id: node for node in nodes}

    def decayed(node: Node) -> float:
        return (1 + node.hits) * float(2 ** ((node.last_use - now) / half_life))

    ids = order(Hotness(half_life), *nodes)
    values = [decayed(by_id[i]) for i in ids]
    # The integer logarithm is at most 0.09 low and floored to one tick: 2 ** (0.09 + 1 / 50).
    assert all(b >= a / 2**0.11 for i, a in enumerate(values) for b in values[i + 1 :])
    assert ids != order(Lru(), *nodes)


@pytest.mark.parametrize("hits", range(300))
def test_hotness_never_falls_with_a_hit(hits: int) -> None:
    policy = Hotness(half_life=3)
    assert policy.key(Node(1, 0, hits)) <= policy.key(Node(1, 0, hits + 1))


@pytest.mark.parametrize("name", ["lru", "hotness"])
def test_ties_are_broken_by_id_on_every_rank(name: str) -> None:
    policy = eviction_policy(name)
    nodes = [Node(i, last_use=5, hits=3, length=16 * i) for i in range(20)]
    shuffled = Random(1).sample(nodes, len(nodes))
    assert order(policy, *shuffled) == list(range(20))
    assert all(isinstance(item, int) for item in policy.key(nodes[0]))


@pytest.mark.parametrize(("name", "kind"), [("lru", Lru), ("hotness", Hotness)])
def test_policies_are_found_by_name(name: str, kind: type[EvictionPolicy]) -> None:
    policy = eviction_policy(name)
    assert type(policy) is kind
    assert policy.name == name


def test_an_unknown_policy_is_one_clear_line() -> None:
    line = "^unknown eviction policy 'fifo': choose one of hotness, lru$"
    with pytest.raises(ValueError, match=line):
        eviction_policy("fifo")


def test_a_half_life_must_be_positive() -> None:
    with pytest.raises(ValueError, match="half-life 0"):
        Hotness(half_life=0)
