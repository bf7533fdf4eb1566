"""The decode window of a kernel trace, whichever profiler made it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from harness.analysis.kernel_names import classify
from harness.analysis.timeline import COLUMNS, unstacked
from harness.errors import HarnessError

KERNEL_COLUMNS = ("launch_us", "stream", "start_us", "end_us", "name")


class ReportError(HarnessError):
    """A profiler's report that cannot be used, in one line."""


class NoKernelError(ReportError):
    """A report of a program that ran no kernel on a GPU, or whose kernels could not be seen."""


@dataclass
class Profiled:
    """What a profiler gave. record: for cell.json, with `missing` where it could not be used.

    reasons: against the cell, one line each: it was used and its report is not what was asked for.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


class Step(NamedTuple):
    """A forward step of the engine: when the CPU began it in µs, and whether it only decoded."""

    at_us: float
    decode: bool


@dataclass(frozen=True)
class RankTrace:
    """One rank. kernels: KERNEL_COLUMNS, on the clock of `steps`, which are in order of time."""

    rank: int
    kernels: pd.DataFrame
    steps: Sequence[Step]


class Stretch(NamedTuple):
    """Decode steps without another kind between them. starts: of each; end: of the last, in µs."""

    starts: tuple[float, ...]
    end: float

    def first(self, count: int) -> tuple[float, float]:
        """Beginning and end of the first `count` of its steps."""
        return self.starts[0], self.starts[count] if count < len(self.starts) else self.end


def stretches(steps: Sequence[Step]) -> list[Stretch]:
    """Every run of decode steps. The trace's very last step is left out: it may be cut off."""
    found, index = [], 0
    for decode, group in itertools.groupby(steps, key=lambda step: step.decode):
        starts = [step.at_us for step in group]
        index += len(starts)
        if not decode:
            continue
        end = steps[index].at_us if index < len(steps) else starts.pop()
        if starts:
            found.append(Stretch(tuple(starts), end))
    return found


def decode_window(ranks: Sequence[RankTrace]) -> tuple[pd.DataFrame, int]:
    """The longest steady stretch of decoding: its timeline, and how many steps it holds.

    The timeline is what `harness.analysis.timeline` takes: the kernels that were launched in the
    stretch. Prefill steps are outside, so that a share is of decoding alone. Every rank gives
    equally many steps. Raises ReportError where there is no whole decode step, NoKernelError where
    there is no kernel at all.
    """
    if not ranks or all(rank.kernels.empty for rank in ranks):
        raise NoKernelError("the trace holds no GPU kernel")
    longest = [max(stretches(rank.steps), key=_length, default=None) for rank in ranks]
    known = [stretch for stretch in longest if stretch is not None]
    if len(known) < len(ranks):
        raise ReportError("the trace holds no whole decode step: profile.steps more, or later")
    count = min(len(stretch.starts) for stretch in known)
    parts = [_launched(r, *s.first(count)) for r, s in zip(ranks, known, strict=True)]
    kernels = pd.concat(parts, ignore_index=True)
    if any(part.empty for part in parts):
        raise ReportError("the trace holds a rank without a kernel in its decode steps")
    kernels["category"] = [classify(name) for name in kernels["name"]]
    return kernels[[*COLUMNS, "name"]], count


def _length(stretch: Stretch) -> int:
    return len(stretch.starts)


def _launched(trace: RankTrace, begin: float, end: float) -> pd.DataFrame:
    at = trace.kernels["launch_us"]
    return trace.kernels[(at >= begin) & (at < end)].assign(rank=trace.rank)


def longest_kernels(kernels: pd.DataFrame, count: int = 20) -> list[dict[str, object]]:
    """The names that took most time, so that a wrong category shows: name, category, ms, launches.

    kernels: as `decode_window` gives them; times are summed over all ranks.
    """
    apart = unstacked(kernels)
    ms = (apart["end_us"] - apart["start_us"]) / 1e3
    of_name = ms.groupby([apart["name"], apart["category"]]).agg(["sum", "size"])
    top = of_name.sort_values("sum", ascending=False, kind="stable").head(count)
    return [
        {"name": str(name)[:160], "category": category, "ms": float(total), "launches": int(times)}
        for (name, category), total, times in zip(top.index, top["sum"], top["size"], strict=True)
    ]
