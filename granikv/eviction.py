"""Which slab or cached node goes first under memory pressure.

A policy orders nodes; it never looks at a wall clock or an address, so that all tensor-parallel
ranks, which see the same requests in the same order, evict the same nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol


class Evictable(Protocol):
    """What a policy may know of a tree node."""

    @property
    def id(self) -> int:
        """The node's number, given in order of creation; the same on every rank."""

    @property
    def last_use(self) -> int:
        """The logical tick of the node's last hit."""

    @property
    def hits(self) -> int:
        """Prefix hits since the node was inserted."""

    @property
    def length(self) -> int:
        """Tokens of the node."""


class EvictionPolicy(ABC):
    """An order over evictable nodes."""

    name: ClassVar[str]

    @abstractmethod
    def key(self, node: Evictable) -> tuple[int, ...]:
        """The node with the smallest key is evicted first; the last item is the node's id.

        Integers only: equal on every rank whatever its floating-point library.
        """


class Lru(EvictionPolicy):
    """Least recently used first (paper §3.2)."""

    name = "lru"

    def key(self, node: Evictable) -> tuple[int, ...]:
        """(last use, id)."""
        return (node.last_use, node.id)


class Hotness(EvictionPolicy):
    """Fewest hits first, hits fading with the time since the last one (the paper's future work).

    A node is worth (1 + hits) · 2^(-age / half_life), age = now - last_use in logical ticks. Its
    logarithm orders the same and leaves `now` out: last_use + half_life · log2(1 + hits), so a
    doubling of the hits is worth half_life ticks of recency. Length cancels: a slab of n tokens
    saves n tokens of work a hit and occupies n slots.
    """

    name = "hotness"

    def __init__(self, half_life: int = 1024) -> None:
        if half_life < 1:
            raise ValueError(f"half-life {half_life} is not positive: give logical ticks >= 1")
        self.half_life = half_life

    def key(self, node: Evictable) -> tuple[int, ...]:
        """(last use in ticks, put forward for the hits; id)."""
        return (node.last_use + _scaled_log2(1 + node.hits, self.half_life), node.id)


def _scaled_log2(value: int, scale: int) -> int:
    """scale · log2(value), linear between powers of two (at most 0.09 · scale below), floored."""
    exponent = value.bit_length() - 1
    return scale * exponent + (scale * (value - (1 << exponent)) >> exponent)


_POLICIES: dict[str, type[EvictionPolicy]] = {policy.name: policy for policy in (Lru, Hotness)}
EVICTION_POLICIES = tuple(_POLICIES)


def eviction_policy(name: str) -> EvictionPolicy:
    """The policy of that name. Raises ValueError for an unknown one."""
    if name not in _POLICIES:
        known = ", ".join(sorted(_POLICIES))
        raise ValueError(f"unknown eviction policy {name!r}: choose one of {known}")
    return _POLICIES[name]()
