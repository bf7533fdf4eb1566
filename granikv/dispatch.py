"""Which backend serves a decode step (paper, §3.6), and the count of what went where.

Neither torch nor the engine is imported: the decision is host arithmetic on three integers.
"""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

PAGED = "paged"
CASCADE = "cascade"
DENSE = "dense"
CONTIGUOUS_UNSHARED = "contiguous_unshared"
BACKENDS = (PAGED, CASCADE, DENSE, CONTIGUOUS_UNSHARED)


# Neither a NamedTuple nor frozen: building one of those every step takes about twice as long.
@dataclass(slots=True)
class StepShape:
    """What the rules look at.

    rows          B_step, rows decoded in this step
    group_size    n_q/kv, query heads to a KV head
    segment_rows  (segment, row) pairs: how many rows read how many shared ranges; 0 when the step
                  shares nothing
    """

    rows: int
    group_size: int
    segment_rows: int


class DispatchRule(ABC):
    """Chooses the backend of a step by name."""

    @abstractmethod
    def choose(self, shape: StepShape) -> str:
        """One of BACKENDS; `paged` whenever the step reads no segment."""

    @abstractmethod
    def describe(self) -> str:
        """The rule in one line, for a server's own report."""


class SaturationRule(DispatchRule):
    """Eq. 2: dense when M_eff = B_step * n_q/kv >= M_sat, else cascade.

    The paper counts the whole batch of the step, not the rows of one prefix class: with four
    classes of 64 rows M_eff is that of 256 rows, though each product has a quarter of them.
    Segments must be slabs, since dense reads nothing else; where they lie on ordinary pages,
    force `cascade`.
    """

    __slots__ = ("m_sat",)

    def __init__(self, m_sat: int) -> None:
        """m_sat: rows of a product from which dense saturates the device (hardware profile)."""
        if m_sat < 1:
            raise ValueError(f"M_sat must be at least 1, not {m_sat}")
        self.m_sat = m_sat

    def choose(self, shape: StepShape) -> str:
        """The paper's rule."""
        if not shape.segment_rows:
            return PAGED
        return DENSE if shape.rows * shape.group_size >= self.m_sat else CASCADE

    def describe(self) -> str:
        """The rule with its threshold."""
        return f"dense when rows * n_q/kv >= {self.m_sat}, else cascade; paged without a segment"


class Forced(DispatchRule):
    """One backend for every step that reads a segment: ablations and tests."""

    __slots__ = ("backend",)

    def __init__(self, backend: str) -> None:
        if backend not in BACKENDS:
            known = ", ".join(BACKENDS)
            raise ValueError(f"no backend {backend!r} to force; there are: {known}")
        self.backend = backend

    def choose(self, shape: StepShape) -> str:
        """The forced backend, or `paged` where there is nothing shared to read."""
        return self.backend if shape.segment_rows else PAGED

    def describe(self) -> str:
        """Which backend is forced."""
        return f"{self.backend} in every step that reads a segment, paged otherwise"


class DispatchCounters:
    """What each backend served since start."""

    __slots__ = ("_tallies",)

    def __init__(self) -> None:
        # Per backend: steps, rows, segment rows, hot tokens.
        self._tallies = {name: [0, 0, 0, 0] for name in BACKENDS}

    def count(self, backend: str, shape: StepShape, hot_tokens: int) -> None:
        """Add one step.

        hot_tokens: tokens in the step's segments, each segment counted once however many rows
        read it.
        """
        tally = self._tallies[backend]
        tally[0] += 1
        tally[1] += shape.rows
        tally[2] += shape.segment_rows
        tally[3] += hot_tokens

    def as_dict(self) -> dict[str, int]:
        """steps, rows, segment_rows and hot_tokens_read: each in all, and `<counter>_<backend>`.

        Under `paged` the shared tokens are read by every row for itself; elsewhere but in
        `contiguous_unshared` once a step and layer.
        """
        counters: dict[str, int] = {}
        for place, counter in enumerate(("steps", "rows", "segment_rows", "hot_tokens_read")):
            counters[counter] = sum(tally[place] for tally in self._tallies.values())
            for name, tally in self._tallies.items():
                counters[f"{counter}_{name}"] = tally[place]
        return counters


def overhead_ns(rule: DispatchRule | None = None, steps: int = 20_000, repeats: int = 7) -> float:
    """Host time that dispatch adds to one decode step, ns: shape, choice and counting.

    Median over `repeats` of the mean over `steps` steps, the loop's own time included, so it errs
    upwards. For comparison with the paper's "below one microsecond" (§3.6, B.5).
    """
    rule = rule or SaturationRule(1024)
    means = []
    for _ in range(repeats):
        counters = DispatchCounters()
        begin = time.perf_counter_ns()
        for rows in range(steps):
            shape = StepShape(rows, 4, rows)
            counters.count(rule.choose(shape), shape, 8192)
        means.append((time.perf_counter_ns() - begin) / steps)
    return statistics.median(means)
