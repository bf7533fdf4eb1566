"""Kernel timelines of a profiled decode window: category times and the shares of Eq. 4 (B.3, B.9).

A timeline is a DataFrame with one row a kernel: rank, stream, category (one of CATEGORIES),
start_us and end_us on one clock. Overlapping kernels count once in the shares, as the paper's do
("interval-merged"), and in full in the category times, which the paper sums. A stream's kernels
overlap only where one was launched early (programmatic dependent launch) and waits for the one
before it: there the later one's time begins with the earlier one's end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

PREFIX, NCCL = "prefix_attention", "nccl"
CATEGORIES = (PREFIX, "decode_attention", "gemm", NCCL, "sampling", "other")
COLUMNS = ("rank", "stream", "category", "start_us", "end_us")

Intervals = npt.NDArray[np.float64]


def merged(intervals: Intervals) -> Intervals:
    """Disjoint intervals that cover the same time, ascending; shape [n, 2] in and out."""
    if not len(intervals):
        return intervals.reshape(0, 2)
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ordered[:, 1])
    first = np.concatenate(([True], ordered[1:, 0] > ends[:-1]))
    starts = ordered[first, 0]
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((starts, ends[last]))


def covered_us(intervals: Intervals) -> float:
    """Time during which at least one of the intervals runs, µs."""
    spans = merged(intervals)
    return float((spans[:, 1] - spans[:, 0]).sum())


def unstacked(kernels: pd.DataFrame) -> pd.DataFrame:
    """The timeline without what a kernel overlaps earlier ones of its own stream."""
    ordered = kernels.sort_values(["start_us", "end_us"], kind="stable")
    streams = [ordered["rank"], ordered["stream"]]
    reached = ordered["end_us"].groupby(streams).cummax().groupby(streams).shift()
    begun = np.minimum(np.fmax(ordered["start_us"], reached), ordered["end_us"])
    return ordered.assign(start_us=begun)


def category_ms(kernels: pd.DataFrame) -> dict[str, float]:
    """Kernel time by category and in all, ms, summed over kernels and averaged over ranks."""
    _check(kernels)
    ranks = kernels["rank"].nunique()
    apart = unstacked(kernels)
    spent = (apart["end_us"] - apart["start_us"]).groupby(apart["category"]).sum()
    times = {name: float(spent.get(name, 0.0)) / ranks / 1e3 for name in CATEGORIES}
    return times | {"total": sum(times.values())}


def shares(kernels: pd.DataFrame) -> dict[str, float]:
    """alpha, beta and gamma: fractions of the window's wall time, averaged over ranks.

    The window of a rank runs from its first kernel's start to its last one's end. alpha: prefix
    attention runs; beta: NCCL runs and prefix attention does not; gamma: the GPU is idle. They
    never add up to more than one.
    """
    _check(kernels)
    apart = unstacked(kernels)
    found = [_rank_shares(of_rank) for _, of_rank in apart.groupby("rank", sort=True)]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def _rank_shares(kernels: pd.DataFrame) -> dict[str, float]:
    wall = float(kernels["end_us"].max() - kernels["start_us"].min())
    if wall <= 0:
        raise ValueError("a timeline of no length: the trace holds no decode step")
    prefix = covered_us(_spans(kernels, (PREFIX,)))
    both = covered_us(_spans(kernels, (PREFIX, NCCL)))
    busy = covered_us(_spans(kernels, CATEGORIES))
    return {"alpha": prefix / wall, "beta": (both - prefix) / wall, "gamma": 1.0 - busy / wall}


def _spans(kernels: pd.DataFrame, categories: Iterable[str]) -> Intervals:
    chosen = kernels[kernels["category"].isin(list(categories))]
    return chosen[["start_us", "end_us"]].to_numpy(dtype=np.float64)


def _check(kernels: pd.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in kernels]
    if missing:
        raise ValueError(f"a timeline needs the column {missing[0]}")
    if kernels.empty:
        raise ValueError("a timeline without a kernel: nothing was traced")
    unknown = sorted(set(kernels["category"]) - set(CATEGORIES))
    if unknown:
        known = ", ".join(CATEGORIES)
        raise ValueError(f"unknown kernel category {unknown[0]!r}; there are {known}")


def metrics(kernels: pd.DataFrame, steps: int) -> dict[str, float]:
    """What a profiled cell stores beside its other metrics: the names that Tables 13, 14, 22 read.

    steps: decode steps in the window, so that systems with different windows can be compared.
    """
    if steps < 1:
        raise ValueError("a profiled window needs at least one decode step")
    times = {f"kernel_ms_{name}": ms for name, ms in category_ms(kernels).items()}
    split = shares(kernels)
    return times | {
        "profile_steps": float(steps),
        "share_prefix_attention": split["alpha"],
        "share_nccl": split["beta"],
        "share_host_gap": split["gamma"],
    }
