"""Which COLD nodes become slabs: one policy, one class (paper §3.2, B.10, Limitations).

Every input is a count that all tensor-parallel ranks share; there is no wall clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class Candidate(NamedTuple):
    """A COLD node, as a policy sees it."""

    readers: int
    """Live requests whose sequence runs through the node."""
    prompt: bool
    """All of its tokens belong to a prompt; none was generated."""
    pinned: bool
    """It lies on a declared prefix."""
    refusals: int
    """How often no contiguous range was to be had for it."""


class AdmissionPolicy(ABC):
    """Decides which COLD nodes are worth one relocation into HOT.

    Args:
        min_tokens: the shortest run of nodes, in tokens, that is made a slab (L_min).
    """

    name: str
    at_lookup = False
    """Whether a node can become wanted by being looked up, not only by being inserted."""

    def __init__(self, min_tokens: int) -> None:
        if min_tokens < 1:
            raise ValueError(f"the shortest slab must have at least 1 token, not {min_tokens}")
        self.min_tokens = min_tokens

    @abstractmethod
    def wants(self, candidate: Candidate) -> bool:
        """Whether this node may become (part of) a slab."""

    def long_enough(self, run_tokens: int) -> bool:
        """Whether a run of wanted nodes is worth a slab of its own."""
        return run_tokens >= self.min_tokens


class Eager(AdmissionPolicy):
    """The paper's policy: a slab as soon as a prompt node is inserted.

    A prefix that found no contiguous range stays in COLD for its lifetime (B.10).
    """

    name = "eager"

    def wants(self, candidate: Candidate) -> bool:
        return candidate.pinned or (candidate.prompt and candidate.refusals == 0)


class OnShare(AdmissionPolicy):
    """The paper's future work: a slab once ``min_readers`` live requests share the node.

    Until then nothing reads the slab more than once a step, so it would only cost a copy. Refusals
    are forgiven: while the node is shared, room in HOT is worth asking for again.
    """

    name = "on_share"
    at_lookup = True

    def __init__(self, min_tokens: int, min_readers: int = 2) -> None:
        super().__init__(min_tokens)
        if min_readers < 1:
            raise ValueError(f"a slab needs at least 1 reader, not {min_readers}")
        self.min_readers = min_readers

    def wants(self, candidate: Candidate) -> bool:
        return candidate.pinned or candidate.readers >= self.min_readers


class Pinned(AdmissionPolicy):
    """Slabs for declared prefixes only; a declared prefix may be shorter than ``min_tokens``."""

    name = "pinned"

    def wants(self, candidate: Candidate) -> bool:
        return candidate.pinned

    def long_enough(self, run_tokens: int) -> bool:
        return run_tokens > 0


_POLICIES: dict[str, type[AdmissionPolicy]] = {p.name: p for p in (Eager, OnShare, Pinned)}
ADMISSION_POLICIES = tuple(_POLICIES)


def admission_policy(name: str, min_tokens: int) -> AdmissionPolicy:
    """The policy called ``name``.

    Raises:
        ValueError: there is no such policy.
    """
    if name not in _POLICIES:
        raise ValueError(f"no admission policy {name!r}; choose one of {', '.join(_POLICIES)}")
    return _POLICIES[name](min_tokens)
