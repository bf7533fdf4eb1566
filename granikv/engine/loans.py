"""Which of HOT's loans to COLD could be ended now, and what cached nodes stand in the way.

A loan can be ended when all its slots are free, or held by cached nodes that nobody came back for.
One look at the device answers for all loans and nodes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from granikv.pools import HotPool
from granikv.ranges import Range

Slots = NDArray[np.int64]


class Reclaimable(NamedTuple):
    """Loans that can be ended, and the stale nodes to evict for it."""

    loans: list[Range]
    nodes: list[Any]


def reclaimable(hot: HotPool, free: torch.Tensor, stale: Sequence[Any]) -> Reclaimable:
    """What can be had back.

    Args:
        free: [n] COLD's free slots.
        stale: unlocked COLD nodes that no request looked up since they were inserted.
    """
    held = [node.value for node in stale]
    everything = torch.cat([free, *held]).cpu().numpy()
    free_slots, node_slots = everything[: len(free)], everything[len(free) :]
    had = _marked(hot, everything)
    loans = [r for r in hot.donated_ranges() if had[r.base - hot.start : r.end - hot.start].all()]
    if not loans or not held:
        return Reclaimable(loans, [])
    wanted = np.zeros(hot.size, dtype=bool)
    for loan in loans:
        wanted[loan.base - hot.start : loan.end - hot.start] = True
    wanted[free_slots[_inside(hot, free_slots)] - hot.start] = False
    met = np.zeros(len(node_slots), dtype=bool)
    inside = _inside(hot, node_slots)
    met[inside] = wanted[node_slots[inside] - hot.start]
    starts = np.cumsum([0, *(len(value) for value in held[:-1])])
    meets = np.logical_or.reduceat(met, starts)
    return Reclaimable(loans, [node for node, hit in zip(stale, meets, strict=True) if hit])


def _marked(hot: HotPool, slots: Slots) -> NDArray[np.bool_]:
    marks = np.zeros(hot.size, dtype=bool)
    marks[slots[_inside(hot, slots)] - hot.start] = True
    return marks


def _inside(hot: HotPool, slots: Slots) -> NDArray[np.bool_]:
    return (slots >= hot.start) & (slots < hot.end)
