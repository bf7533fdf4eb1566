"""The second half of calibration: time the children of a step, and fit what they cost (§3.6).

Steps of a designed grid are measured in a fixed random order until the time is up, so that a short
run is a thinner sample of the same grid. No step of the grid has a prefix length that
`granikv.bench.regret` judges the dispatcher on.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from granikv.bench.children import (
    Arena,
    Children,
    Timer,
    composition,
    eager_timer,
    fused_children,
    graph_timer,
    reads_of,
    torch_children,
)
from granikv.bench.kernels import Case
from granikv.calibrate import Crossover
from granikv.cost import CostModel, Geometry
from granikv.dispatch import CASCADE, DENSE
from granikv.fit import Sample, fit_paged, fit_shared

Report = Callable[[dict[str, object]], None]

_CLOSE = 1.5
_CLOSE_WEIGHT = 3.0
"""Where the children are within 1.5 x of one another an error can change the choice."""
_LEAST_STEPS = 24
"""Steps that are measured however little time there is."""
_REPORT_EVERY = 20


class Survey(NamedTuple):
    """The grid of one kind of device.

    lengths: of each prefix; suffixes: own tokens of a row; classes: prefixes that rows spread over.
    context: width of the page table (FA3 splits a sequence by it). step_seconds: for one step.
    """

    geometries: tuple[Geometry, ...]
    dtype: torch.dtype
    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    suffixes: tuple[int, ...]
    classes: tuple[int, ...]
    context: int
    step_seconds: float


SURVEYS = {
    "cpu": Survey(
        (Geometry(2, 2, 32, 32, 4),),
        torch.float32,
        (1, 2, 3, 4, 6, 8),
        (48, 96, 192, 384),
        (8, 32),
        (1, 2),
        512,
        0.02,
    ),
    "cuda": Survey(
        (Geometry(8, 4, 128, 128, 2), Geometry(4, 5, 128, 128, 2)),
        torch.bfloat16,
        (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256),
        (192, 384, 768, 1536, 3072, 6144, 12288),
        (32, 128, 512),
        (1, 1, 4),
        131_072,
        0.06,
    ),
}
"""cuda: the heads of Llama-3.1-8B, and of one rank of Qwen-2.5-14B at TP = 2."""


class Bench(NamedTuple):
    """One geometry's memory and children, and how they are timed."""

    arena: Arena
    children: Children
    timer: Timer


def benches(device: str, survey: Survey) -> list[Bench]:
    """One for each geometry of the survey."""
    on_gpu = device == "cuda"
    l2_bytes = torch.cuda.get_device_properties().L2_cache_size if on_gpu else 0
    timer = (graph_timer if on_gpu else eager_timer)(survey.step_seconds)
    rows = max(survey.rows)
    slots = 1 + rows * max(survey.suffixes) + max(survey.classes) * max(survey.lengths)
    made = []
    for geometry in survey.geometries:
        arena = Arena(
            geometry,
            survey.dtype,
            torch.device(device),
            slots=slots,
            rows=rows,
            context=survey.context,
            l2_bytes=l2_bytes,
        )
        made.append(Bench(arena, (fused_children if on_gpu else torch_children)(arena), timer))
    return made


def steps_of(survey: Survey) -> list[tuple[int, Case]]:
    """(geometry's place, step) over the grid in a fixed random order."""
    draw = random.Random(0)
    steps = []
    places = range(len(survey.geometries))
    for place, rows, length in itertools.product(places, survey.rows, survey.lengths):
        classes = min(draw.choice(survey.classes), rows)
        suffix = draw.choice(survey.suffixes)
        lengths = [length] * classes
        steps.append((place, composition(rows, suffix, lengths, survey.geometries[place])))
    draw.shuffle(steps)
    return steps


class Measured(NamedTuple):
    """Samples by child: the engine's name of a stock backend, our name of a sharing child."""

    stock: dict[str, list[Sample]]
    sharing: dict[str, list[Sample]]


def measure_costs(
    made: Sequence[Bench], steps: Sequence[tuple[int, Case]], end: float, report: Report
) -> CostModel:
    """Measure until `end` (of time.perf_counter) and fit."""
    measured = Measured({}, {})
    for name, reason in made[0].children.missing.items():
        report({"event": "missing", "child": name, "reason": reason})
    for number, (place, case) in enumerate(steps):
        if number >= _LEAST_STEPS and time.perf_counter() > end:
            break
        measure_step(made[place], case, measured, unshared=number % 2 == 0)
        if number % _REPORT_EVERY == 0:
            report({"event": "children", "steps": number + 1, "of": len(steps)})
    model = CostModel(
        {name: fit_paged(samples) for name, samples in measured.stock.items()},
        {
            name: fit_shared(samples, made[0].children.sharing[name].tile)
            for name, samples in measured.sharing.items()
        },
    )
    for name, residuals in model.residuals.items():
        report({"event": "cost", "child": name, **residuals._asdict()})
    return model


def measure_step(bench: Bench, case: Case, measured: Measured, unshared: bool) -> None:
    """All children on one step; with `unshared` the sharing ones with no segment, too."""
    scene, children = bench.arena.scene(case), bench.children
    reads, geometry = reads_of(case), bench.arena.geometry
    names = (*children.stock, *children.sharing)
    launches = [
        child.prepare(scene, scene.plan)
        for child in (*children.stock.values(), *children.sharing.values())
    ]
    times = [1e6 * t.median for t in bench.timer(launches, len(scene.k))]
    paged, sharing = min(times[: len(children.stock)]), min(times[len(children.stock) :])
    weight = _CLOSE_WEIGHT if max(paged, sharing) < _CLOSE * min(paged, sharing) else 1.0
    for name, us in zip(names, times, strict=True):
        kind = measured.stock if name in children.stock else measured.sharing
        kind.setdefault(name, []).append(Sample(reads, geometry, us, weight))
    if unshared:
        dropped = scene.plan.without(range(len(scene.plan.segments)))
        launches = [child.prepare(scene, dropped) for child in children.sharing.values()]
        alone = reads.keeping(reads.lengths < 0)
        for name, timing in zip(children.sharing, bench.timer(launches, len(scene.k)), strict=True):
            sample = Sample(alone, geometry, 1e6 * timing.median, 1.0)
            measured.sharing[name].append(sample)


def measure_saturation(
    bench: Bench, m_effs: Sequence[int], length: int, suffix: int, report: Report
) -> list[Crossover]:
    """Dense and cascade on whole steps behind one prefix, for each M_eff; empty without both."""
    sharing, geometry = bench.children.sharing, bench.arena.geometry
    if not {DENSE, CASCADE} <= set(sharing):
        return []
    points = []
    for m_eff in m_effs:
        rows = m_eff // geometry.group
        scene = bench.arena.scene(composition(rows, suffix, [length], geometry))
        launches = [sharing[name].prepare(scene, scene.plan) for name in (DENSE, CASCADE)]
        point = Crossover(m_eff, *bench.timer(launches, len(scene.k)))
        report({"event": "crossover", "m_eff": m_eff, "rows": rows, **point.milliseconds()})
        points.append(point)
    return points
