"""Which backend serves a decode step (paper, §3.6), and the count of what went where.

Two rules: the paper's, `saturation` (Eq. 2, one threshold), and `cost`, which compares what the
step would take by each backend and may leave segments of the plan to the rows themselves. Neither
torch nor the engine is imported: a decision is host arithmetic on the plan and on token counts,
which are the same on every rank of a model, so all ranks decide alike.
"""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from granikv.cost import CostModel, Geometry, Reads
from granikv.hardware import HardwareProfile, ProfileError
from granikv.plan import DecodePlan, PagedRange, Segment

PAGED = "paged"
CASCADE = "cascade"
DENSE = "dense"
CONTIGUOUS_UNSHARED = "contiguous_unshared"
HYDRAGEN = "hydragen"
BACKENDS = (PAGED, CASCADE, DENSE, CONTIGUOUS_UNSHARED, HYDRAGEN)

AUTO = "auto"
SATURATION = "saturation"
COST = "cost"
RULES = (AUTO, SATURATION, COST)


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


class Decision(NamedTuple):
    """The backend of a step, and what it reads: the step's plan, perhaps with segments dropped."""

    backend: str
    plan: DecodePlan


class DispatchRule(ABC):
    """Chooses the backend of a step by name."""

    def __init__(self) -> None:
        # Making a new one each step would take longer than the rule.
        self._decision = Decision(PAGED, DecodePlan(0, (), ()))

    @abstractmethod
    def choose(self, shape: StepShape) -> str:
        """One of BACKENDS; `paged` whenever the step reads no segment."""

    def decide(self, shape: StepShape, plan: DecodePlan, tokens: int) -> Decision:
        """The backend and its plan.

        tokens: the sum of the sequence lengths of the plan's rows.
        """
        backend = self.choose(shape)
        if plan is not self._decision.plan or backend != self._decision.backend:
            self._decision = Decision(backend, plan)
        return self._decision

    @abstractmethod
    def sharing(self) -> tuple[str, ...]:
        """The backends other than `paged` that it can name."""

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

    def __init__(self, m_sat: int) -> None:
        """m_sat: rows of a product from which dense saturates the device (hardware profile)."""
        super().__init__()
        if m_sat < 1:
            raise ValueError(f"M_sat must be at least 1, not {m_sat}")
        self.m_sat = m_sat

    def choose(self, shape: StepShape) -> str:
        """The paper's rule."""
        if not shape.segment_rows:
            return PAGED
        return DENSE if shape.rows * shape.group_size >= self.m_sat else CASCADE

    def sharing(self) -> tuple[str, ...]:
        """Both of the paper's backends."""
        return (CASCADE, DENSE)

    def describe(self) -> str:
        """The rule with its threshold."""
        return f"dense when rows * n_q/kv >= {self.m_sat}, else cascade; paged without a segment"


class Forced(DispatchRule):
    """One backend for every step that reads a segment: ablations and tests."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        if backend not in BACKENDS:
            known = ", ".join(BACKENDS)
            raise ValueError(f"no backend {backend!r} to force; there are: {known}")
        self.backend = backend

    def choose(self, shape: StepShape) -> str:
        """The forced backend, or `paged` where there is nothing shared to read."""
        return self.backend if shape.segment_rows else PAGED

    def sharing(self) -> tuple[str, ...]:
        """The forced backend."""
        return () if self.backend == PAGED else (self.backend,)

    def describe(self) -> str:
        """Which backend is forced."""
        return f"{self.backend} in every step that reads a segment, paged otherwise"


_BUCKETS_PER_OCTAVE = 16
"""Own tokens are told apart to 4.4%, so that a step that grew a little needs no new decision."""
_REMEMBERED = 256
"""Compositions whose decision is kept."""

_Choice = tuple[str, tuple[int, ...]]
"""A backend and the segments that it drops."""


class CostRule(DispatchRule):
    """The backend that the device's cost model predicts to be the fastest.

    What stock does is kept unless sharing is predicted to win by more than the median error of its
    own fit: a prediction closer than that would lose about as often as it won.

    A segment whose shared read costs more than its readers' own is dropped from the plan, so the
    classes of one step can be served differently. What was decided stands for as long as the plan
    is the same object and the tokens outside its segments stay in their bucket (at most 2.2% from
    the count that was looked at); compositions with equal segment sizes share one decision.
    """

    def __init__(
        self,
        costs: CostModel,
        geometry: Geometry,
        stock: str,
        children: Collection[str] = (CASCADE, DENSE),
    ) -> None:
        """
        stock     the engine's decode backend, which is the child `paged`
        children  the sharing children that can serve here; those without a cost are left out
        """
        super().__init__()
        self.costs = costs
        self.geometry = geometry
        self.stock = stock
        self.children = tuple(name for name in sorted(children) if name in costs.shared)
        self._known: dict[tuple[object, ...], _Choice] = {}
        self._choice: _Choice = (PAGED, ())
        self._plan: DecodePlan | None = None
        self._sizes: tuple[tuple[int, int], ...] = ()
        self._covered = 0
        self._low = self._high = 0.0

    def choose(self, shape: StepShape) -> str:
        """`paged`: a shape alone does not say what sharing saves; `decide` looks at the plan."""
        return PAGED

    def decide(self, shape: StepShape, plan: DecodePlan, tokens: int) -> Decision:
        """The fastest child by prediction."""
        if plan is self._plan and self._low <= tokens < self._high:
            return self._decision
        return self._reconsidered(plan, tokens)

    def predictions(self, reads: Reads) -> dict[str, float]:
        """µs of one layer by child, each with the segments that it would keep."""
        predicted = {PAGED: self.costs.paged_cost(self.stock, reads, self.geometry)}
        for name in self.children:
            predicted[name] = self._shared(name, reads)[0]
        return predicted

    def sharing(self) -> tuple[str, ...]:
        """The children that have a cost."""
        return self.children

    def describe(self) -> str:
        """What is compared."""
        children = ", ".join((PAGED, *self.children))
        known = "" if self.stock in self.costs.paged else ", taken to be as fast as the fastest"
        return f"the least predicted time of {children}; paged is {self.stock}{known}"

    def _reconsidered(self, plan: DecodePlan, tokens: int) -> Decision:
        fresh = plan is not self._plan
        if fresh:
            self._plan = plan
            table = plan.table
            self._sizes = tuple(zip(table.length.tolist(), table.rows.tolist(), strict=True))
            self._covered = sum([length * rows for length, rows in self._sizes])
        bucket = _bucket(tokens - self._covered)
        self._low, self._high = (self._covered + bound for bound in _bounds(bucket))
        key = (plan.rows, bucket, self._sizes)
        choice = self._known.get(key) or self._learn(key, plan.rows, bucket)
        if fresh or choice != self._choice:
            self._choice = choice
            backend, dropped = choice
            self._decision = Decision(backend, plan.without(dropped) if dropped else plan)
        return self._decision

    def _learn(self, key: tuple[object, ...], rows: int, bucket: int) -> _Choice:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        choice = self._known[key] = self._evaluated(Reads.of(rows, _middle(bucket), self._sizes))
        return choice

    def _evaluated(self, reads: Reads) -> _Choice:
        """The fastest child and the segments that it drops."""
        if not reads.lengths.size:
            return PAGED, ()
        best: _Choice = (PAGED, ())
        paged = least = self.costs.paged_cost(self.stock, reads, self.geometry)
        for name in self.children:
            predicted, kept = self._shared(name, reads)
            surely = paged * (1.0 - self.costs.shared[name].residuals.median)
            if predicted < least and predicted < surely:
                best, least = (name, tuple(np.flatnonzero(~kept).tolist())), predicted
        return best

    def _shared(self, name: str, reads: Reads) -> tuple[float, NDArray[np.bool_]]:
        """µs by a sharing child, and which segments it keeps: all, or those worth it."""
        child = self.costs.shared[name]
        terms = child.terms(reads, self.geometry)
        worth = terms.worth_sharing(child.cost)
        every, predicted = np.ones_like(worth), child.microseconds(terms)
        if worth.all() or not worth.any():  # what shares nothing is stock's to serve
            return predicted, every
        trimmed = child.microseconds(terms, worth)
        return (trimmed, worth) if trimmed < predicted else (predicted, every)


def _bucket(own: float) -> int:
    """The number of the bucket that holds so many own tokens; -1 for none."""
    return math.floor(_BUCKETS_PER_OCTAVE * math.log2(own)) if own >= 1 else -1


def _bounds(bucket: int) -> tuple[float, float]:
    """Own tokens from which and below which a bucket reaches."""
    low = 2 ** (bucket / _BUCKETS_PER_OCTAVE) if bucket >= 0 else 0.0
    return low, 2 ** ((bucket + 1) / _BUCKETS_PER_OCTAVE)


def _middle(bucket: int) -> float:
    return 2 ** ((bucket + 0.5) / _BUCKETS_PER_OCTAVE) if bucket >= 0 else 0.0


def auto_rule(
    profile: HardwareProfile, geometry: Geometry, stock: str, children: Collection[str], rule: str
) -> DispatchRule:
    """The rule of `--granikv-backend auto` on this hardware.

    stock, children  as `CostRule` takes them
    rule             COST, SATURATION, or AUTO: the cost model where the profile has one

    Raises ProfileError where the profile lacks what the rule needs, or where what the saturation
    rule can name does not serve here.
    """
    if rule == SATURATION or (rule == AUTO and profile.cost is None):
        missing = {DENSE, CASCADE} - set(children)
        if missing:
            raise ProfileError(
                f"the saturation rule needs the backend {', '.join(sorted(missing))}, which does "
                f"not serve here; use the cost rule (`granikv calibrate --device {profile.device} "
                "--out FILE`, FILE to --granikv-hardware) or force one with --granikv-backend"
            )
        return SaturationRule(profile.m_sat_or_raise())
    return CostRule(profile.cost_or_raise(), geometry, stock, children)


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
    """Host time that dispatch adds to one decode step of a standing plan, ns: decide and count.

    Median over `repeats` of the mean over `steps` steps, the loop's own time included, so it errs
    upwards. For comparison with the paper's "below one microsecond" (§3.6, B.5).
    """
    rule = rule or SaturationRule(1024)
    plan = DecodePlan(
        256, (Segment(1, 0, 8192, tuple(range(256))),), ((PagedRange(8192, None),),) * 256
    )
    means = []
    for _ in range(repeats):
        counters = DispatchCounters()
        begin = time.perf_counter_ns()
        for rows in range(steps):
            shape = StepShape(rows, 4, rows)
            counters.count(rule.decide(shape, plan, 2_113_536).backend, shape, 8192)
        means.append((time.perf_counter_ns() - begin) / steps)
    return statistics.median(means)
