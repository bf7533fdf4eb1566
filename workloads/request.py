"""Requests and workloads: what is asked of a server, made once from a seed and hashed."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Tokens: TypeAlias = NDArray[np.int32]

NO_PREFIX = -1
"""The prefix class of a request that shares nothing."""

_HASH_LAYOUT = "granikv-workload-1"
_NOT_SCHEDULED = -1


class WorkloadError(ValueError):
    """A workload that cannot be built; the message is one line that says what to change."""


def read_only(ids: Sequence[int] | NDArray[Any]) -> Tokens:
    """`ids` as a read-only int32 array of shape [n]; raises WorkloadError if they are not ids."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise WorkloadError("token ids must be a flat list of integers")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < 2**31:
        raise WorkloadError("token ids must lie in [0, 2**31)")
    tokens = array.astype(np.int32, copy=True)
    tokens.flags.writeable = False
    return tokens


@dataclass(frozen=True, eq=False)
class Request:
    """One request.

    index: its place in the workload, from 0.
    input_ids: int32 [prompt_len], read-only; kept out of repr() since ids of real text are text.
    max_new_tokens: the output length, in tokens.
    prefix_class: which of the workload's prefixes it starts with, or NO_PREFIX.
    prefix_len: tokens of that prefix (0 without one). Other requests of the class share at least
        these; with generated tokens they share exactly these.
    due_s: seconds after the start of the load, to the nanosecond; None while no arrivals are set.
        For one that follows another, the opening request's.
    after: the request whose answer must have come before this one is asked, or None. One request
        has one follower at most: a dialogue.
    think_s: seconds between that answer and this request.
    """

    index: int
    input_ids: Tokens = field(repr=False)
    max_new_tokens: int
    prefix_class: int = NO_PREFIX
    prefix_len: int = 0
    due_s: float | None = None
    after: int | None = None
    think_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_ids", read_only(self.input_ids))
        if self.input_ids.size == 0:
            raise WorkloadError(f"request {self.index} has an empty prompt")
        if self.max_new_tokens < 1:
            raise WorkloadError(f"request {self.index} asks for {self.max_new_tokens} tokens")
        if self.due_s is not None and not 0 <= self.due_s < float("inf"):
            raise WorkloadError(f"request {self.index} is due at {self.due_s} s")
        if self.after is not None and not 0 <= self.after < self.index:
            raise WorkloadError(
                f"request {self.index} follows request {self.after}, not an earlier"
            )
        if not 0 <= self.think_s < float("inf"):
            raise WorkloadError(f"request {self.index} has a think time of {self.think_s} s")

    @property
    def prompt_len(self) -> int:
        """Prompt tokens, prefix included: what the server must count."""
        return int(self.input_ids.size)

    @property
    def suffix_len(self) -> int:
        """Prompt tokens after the shared prefix."""
        return self.prompt_len - self.prefix_len

    @property
    def due_ns(self) -> int | None:
        """due_s in whole nanoseconds."""
        return None if self.due_s is None else round(self.due_s * 1e9)


@dataclass(frozen=True, eq=False)
class Workload:
    """A named list of requests, with the prefixes they share (for priming) and where it came from.

    prefixes: int32 [L_p] each, read-only, indexed by Request.prefix_class.
    parameters: JSON values, enough to build it again.
    provenance: one line on the source of lengths and tokens, to print in reports.
    reuse_is_timed: whether more than the prefixes can be shared, depending on what is still cached
        when a request comes, so that no hit rate can be designed.
    Raises WorkloadError if a request does not start with its class's prefix, or if the due times
    are incomplete or run backwards.
    """

    name: str
    requests: tuple[Request, ...] = field(repr=False)
    prefixes: tuple[Tokens, ...] = field(repr=False)
    parameters: dict[str, Any]
    provenance: str
    seed: int
    reuse_is_timed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", tuple(self.requests))
        object.__setattr__(self, "prefixes", tuple(read_only(p) for p in self.prefixes))
        for index, request in enumerate(self.requests):
            if request.index != index:
                raise WorkloadError(f"request {index} carries the index {request.index}")
            self._check_prefix(request)
        self._check_due_times()
        leaders = [request.after for request in self.requests if request.after is not None]
        if len(set(leaders)) < len(leaders):
            raise WorkloadError("two requests follow the same one")

    def _check_prefix(self, request: Request) -> None:
        if not NO_PREFIX <= request.prefix_class < len(self.prefixes):
            raise WorkloadError(f"request {request.index} has no class {request.prefix_class}")
        prefix = (
            read_only([])
            if request.prefix_class == NO_PREFIX
            else self.prefixes[request.prefix_class]
        )
        if request.prefix_len != prefix.size:
            raise WorkloadError(
                f"request {request.index} counts {request.prefix_len} prefix tokens, "
                f"its class has {prefix.size}"
            )
        if not np.array_equal(request.input_ids[: prefix.size], prefix):
            raise WorkloadError(f"request {request.index} does not start with its class's prefix")

    def _check_due_times(self) -> None:
        due = [request.due_s for request in self.requests]
        known = [time for time in due if time is not None]
        if known and len(known) != len(due):
            raise WorkloadError("some requests have a due time and some have none")
        if any(later < earlier for earlier, later in pairwise(known)):
            raise WorkloadError("due times must not run backwards")

    @property
    def openers(self) -> tuple[Request, ...]:
        """The requests that wait for no other's answer."""
        return tuple(request for request in self.requests if request.after is None)

    @property
    def recorded_s(self) -> tuple[float, ...] | None:
        """The openers' due times in s, where the workload brings them along; else None."""
        times = [request.due_s for request in self.openers]
        return None if None in times else tuple(time for time in times if time is not None)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all requests together."""
        return sum(request.prompt_len for request in self.requests)

    @property
    def output_tokens(self) -> int:
        """Output tokens of all requests together."""
        return sum(request.max_new_tokens for request in self.requests)

    @property
    def prefix_tokens(self) -> int:
        """Tokens of all prefixes together: what HOT must hold for every slab to be admitted."""
        return sum(int(prefix.size) for prefix in self.prefixes)

    @cached_property
    def sha256(self) -> str:
        """Hash of the seed, the prefixes and every field of every request, byte-order fixed.

        The name, the parameters and the provenance are left out: they describe, they are not sent.
        """
        digest = hashlib.sha256()
        header = [_HASH_LAYOUT, self.seed, len(self.prefixes), len(self.requests)]
        digest.update(json.dumps(header).encode())
        for prefix in self.prefixes:
            digest.update(struct.pack("<q", prefix.size))
            digest.update(prefix.astype("<i4").tobytes())
        for request in self.requests:
            digest.update(_packed(request))
        return digest.hexdigest()


def _packed(request: Request) -> bytes:
    due_ns = request.due_ns
    fields = struct.pack(
        "<6q",
        request.index,
        request.prompt_len,
        request.max_new_tokens,
        request.prefix_class,
        request.prefix_len,
        _NOT_SCHEDULED if due_ns is None else due_ns,
    )
    follows = (
        b""
        if request.after is None
        else struct.pack("<2q", request.after, round(request.think_s * 1e9))
    )
    return fields + follows + request.input_ids.astype("<i4").tobytes()
