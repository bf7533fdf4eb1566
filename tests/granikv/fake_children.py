"""Children whose times follow a known cost model, and the timer that reads them: no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from granikv.bench.children import Arena, Child, Children, Launch, Scene, SharingChild
from granikv.calibrate import Timing
from granikv.calibrate_costs import Bench
from granikv.cost import CostModel, Geometry, Reads, SharedChild
from granikv.plan import DecodePlan


class FakeLaunch:
    """Says that it takes `us`, and is never called."""

    def __init__(self, us: float) -> None:
        self.us = us

    def __call__(self, layer: int) -> object:
        raise AssertionError("a fake is never launched")


def reads_of_plan(scene: Scene, plan: DecodePlan) -> Reads:
    """As the cost model sees this plan; rows that read a dropped range read the same tokens."""
    every = [(s.length, len(s.rows)) for s in scene.plan.segments]
    reads = Reads.of(plan.rows, scene.tokens - scene.plan.covered, every)
    kept = [segment in plan.segments for segment in scene.plan.segments]
    return reads.keeping(torch.tensor(kept, dtype=torch.bool).numpy())


class FakeChild(SharingChild):
    """A child that takes what `cost` says of the reads."""

    def __init__(self, cost: Callable[[Reads], float], tile: Any = None) -> None:
        self._cost, self.tile = cost, tile

    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        return FakeLaunch(self._cost(reads_of_plan(scene, plan)))


def fake_timer(launches: Sequence[Launch], layers: int) -> list[Timing]:
    """What the launches say."""
    assert layers >= 1
    return [Timing(launch.us * 1e-6, 0.0) for launch in launches if isinstance(launch, FakeLaunch)]


def fake_bench(model: CostModel, geometry: Geometry, rows: int, slots: int) -> Bench:
    """Children that follow `model` exactly, in next to no memory (one head of width 1)."""
    arena = Arena(
        Geometry(1, geometry.group, 1, 1, 4),
        torch.float32,
        torch.device("cpu"),
        slots=slots,
        rows=rows,
        context=20_000,
    )
    arena.geometry = geometry
    stock: dict[str, Child] = {
        name: FakeChild(partial(child.cost.microseconds, geometry=geometry))
        for name, child in model.paged.items()
    }
    sharing: dict[str, SharingChild] = {
        name: FakeChild(partial(_shared_us, child, geometry), child.tile)
        for name, child in model.shared.items()
    }
    return Bench(arena, Children(stock, sharing, {}), fake_timer)


def _shared_us(child: SharedChild, geometry: Geometry, reads: Reads) -> float:
    return child.microseconds(child.terms(reads, geometry))
