"""What the dispatcher loses against the best child: `python -m granikv.bench.regret`.

Every child is measured on each step of a grid that no coefficient was fitted on (its prefix lengths
are not calibration's), and the cost rule chooses by the hardware profile alone. Regret is the time
of the choice over the time of the fastest, less one. A step without a prefix is paged by
definition: the sharing children are shown there, and do not count. Beside each step stands what its
bytes and its arithmetic take at the profile's ceilings. A table on standard output, JSON in --out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import Progress

from granikv.bench.children import composition, reads_of
from granikv.bench.kernels import Case, Ceilings, Work
from granikv.calibrate_costs import SURVEYS, Bench, benches
from granikv.dispatch import CASCADE, DENSE, PAGED, CostRule, SaturationRule, StepShape
from granikv.hardware import HardwareProfile, ProfileError, find_profile, load_profile

P95_TARGET, MAX_TARGET = 0.03, 0.10
_LINE_EVERY_S = 5.0
_SHOWN = 12


class Grid(NamedTuple):
    """The steps that are judged.

    mixed: further ones, as (rows, suffix, prefix lengths); rows spread evenly over the prefixes.
    """

    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    suffixes: tuple[int, ...]
    mixed: tuple[tuple[int, int, tuple[int, ...]], ...]

    def cases(self, geometry: Any) -> list[Case]:
        """One class of rows behind one prefix, then the mixed ones."""
        alone = [
            composition(rows, suffix, [length], geometry)
            for rows, length, suffix in itertools.product(self.rows, self.lengths, self.suffixes)
        ]
        return alone + [composition(*sizes, geometry) for sizes in self.mixed]


GRIDS = {
    "cpu": Grid((1, 2, 4, 8), (0, 64, 256), (16,), ((4, 16, (64, 256)),)),
    "cuda": Grid(
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
        (0, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
        (64, 256),
        (
            (256, 64, (2048, 4096, 8192, 16384)),
            (256, 64, (8192,) * 4),
            (256, 64, (512,) * 16),
            (64, 64, (1024,) * 16),
            (64, 64, (1024,) * 64),
            (128, 64, (256, 16384)),
            (16, 256, (128, 16384)),
        ),
    ),
}


def judged(
    bench: Bench, rule: CostRule, case: Case, ceilings: Ceilings, m_sat: int | None
) -> dict[str, Any]:
    """One step: every child's time, what was chosen, and what that lost."""
    scene, children = bench.arena.scene(case), bench.children
    launches = [children.stock[rule.stock].prepare(scene, scene.plan)]
    launches += [child.prepare(scene, scene.plan) for child in children.sharing.values()]
    timings = bench.timer(launches, len(scene.k))
    us = {
        name: 1e6 * timing.median
        for name, timing in zip((PAGED, *children.sharing), timings, strict=True)
    }
    shape = StepShape(case.rows, bench.arena.geometry.group, scene.plan.segment_rows)
    chosen, plan = rule.decide(shape, scene.plan, scene.tokens)
    times = dict(us) if case.reads else {PAGED: us[PAGED]}
    name = chosen
    if plan is not scene.plan:
        name = f"{chosen}, {len(scene.plan.segments) - len(plan.segments)} dropped"
        (timing,) = bench.timer([children.sharing[chosen].prepare(scene, plan)], len(scene.k))
        times[name] = 1e6 * timing.median
    best = min(times, key=lambda child: times[child])
    work = Work(case.flop, case.prefix_bytes + case.suffix_bytes)
    return {
        "rows": case.rows,
        "prefix_lengths": [read.length for read in case.reads],
        "suffix": case.suffix,
        "us": {child: round(t, 2) for child, t in (us | times).items()},
        "predicted_us": {c: round(t, 2) for c, t in rule.predictions(reads_of(case)).items()},
        "chosen": name,
        "best": best,
        "regret": round(times[name] / times[best] - 1, 4),
        "others": _others(case, shape, times, m_sat),
        **work.floors(ceilings),
    }


def _others(
    case: Case, shape: StepShape, times: dict[str, float], m_sat: int | None
) -> dict[str, float]:
    """Regret of simpler rules on the same times: always one child, and the paper's rule."""
    least, choices = min(times.values()), {f"always {name}": name for name in (PAGED, DENSE)}
    if m_sat is not None and CASCADE in times:
        choices["saturation"] = SaturationRule(m_sat).choose(shape)
    if not case.reads:
        choices = dict.fromkeys(choices, PAGED)
    return {
        rule: round(times[name] / least - 1, 4) for rule, name in choices.items() if name in times
    }


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Quantiles of regret, over all steps, by rule."""
    rules = {"cost": [record["regret"] for record in records]}
    for record in records:
        for rule, regret in record["others"].items():
            rules.setdefault(rule, []).append(regret)
    quantiles = {
        rule: {
            "steps": len(regrets),
            "best_chosen": round(sum(r == 0 for r in regrets) / len(regrets), 3),
            "mean": round(float(np.mean(regrets)), 4),
            "p95": round(float(np.quantile(regrets, 0.95)), 4),
            "max": max(regrets),
        }
        for rule, regrets in rules.items()
    }
    cost = quantiles["cost"]
    met = cost["p95"] <= P95_TARGET and cost["max"] <= MAX_TARGET
    return {"rules": quantiles, "targets": {"p95": P95_TARGET, "max": MAX_TARGET, "met": met}}


def table(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines: each rule's quantiles, then the steps that lost most."""
    yield f"{'rule':<14}{'steps':>6}{'best':>8}{'mean':>9}{'p95':>9}{'max':>9}"
    for rule, q in summary(records)["rules"].items():
        yield (
            f"{rule:<14}{q['steps']:>6}{q['best_chosen']:>8.0%}{q['mean']:>9.2%}"
            f"{q['p95']:>9.2%}{q['max']:>9.2%}"
        )
    yield ""
    for r in sorted(records, key=lambda r: -r["regret"])[:_SHOWN]:
        if not r["regret"]:
            break
        lengths = "/".join(map(str, r["prefix_lengths"][:4]))
        measured = " ".join(f"{name} {us:.1f}" for name, us in r["us"].items())
        predicted = " ".join(f"{name} {us:.1f}" for name, us in r["predicted_us"].items())
        yield (
            f"B={r['rows']:<4}L_p={lengths:<22}suffix={r['suffix']:<4} regret {r['regret']:.1%}: "
            f"{r['chosen']} for {r['best']}; µs {measured}; predicted {predicted}"
        )


def run(
    bench: Bench, profile: HardwareProfile, stock: str, cases: Sequence[Case]
) -> list[dict[str, Any]]:
    """All steps, with progress on standard error."""
    ceilings = Ceilings(profile.bandwidth_gbps or np.inf, profile.peak_tflops or np.inf)
    rule = CostRule(
        profile.cost_or_raise(), bench.arena.geometry, stock, tuple(bench.children.sharing)
    )
    records, said = [], time.monotonic()
    with Progress(disable=not sys.stderr.isatty(), transient=True) as shown:
        for number, case in enumerate(shown.track(cases, description="steps"), 1):
            records.append(judged(bench, rule, case, ceilings, profile.m_sat))
            if shown.disable and time.monotonic() - said > _LINE_EVERY_S:
                said = time.monotonic()
                print(f"regret: {number} of {len(cases)} steps", file=sys.stderr, flush=True)
    return records


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="granikv.bench.regret", description=__doc__)
    parser.add_argument("--hardware", required=True, help="hardware profile: a name or a file")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    parser.add_argument("--stock", help="the engine's decode backend; default: fa3 where there is")
    parser.add_argument("--geometry", type=int, default=0, help="which of calibration's geometries")
    return parser


def _stock(given: str | None, bench: Bench, profile: HardwareProfile) -> str:
    """The paged child. Raises ProfileError where it is not installed or was not calibrated."""
    known = [name for name in profile.cost_or_raise().paged if name in bench.children.stock]
    if given is None and known:
        return known[0]
    if given not in known:
        raise ProfileError(
            f"the stock backend {given or ''} is not both installed here and in the profile "
            f"{profile.name}; there are: {', '.join(known) or 'none'}"
        )
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table and write the file; the exit status."""
    options = _parser().parse_args(argv)
    try:
        is_file = options.hardware.endswith((".yaml", ".yml"))
        profile = load_profile(options.hardware) if is_file else find_profile(options.hardware)
        profile.cost_or_raise()
        if profile.device == "cuda" and not torch.cuda.is_available():
            raise ProfileError("no CUDA device is usable here; run this on the GPU's machine")
        survey, grid = SURVEYS[profile.device], GRIDS[profile.device]
        geometry = survey.geometries[options.geometry]
        survey = survey._replace(
            geometries=(geometry,), rows=grid.rows, lengths=grid.lengths, suffixes=grid.suffixes
        )
        (bench,) = benches(profile.device, survey)
        stock = _stock(options.stock, bench, profile)
        records = run(bench, profile, stock, grid.cases(geometry))
    except (ProfileError, IndexError, torch.OutOfMemoryError) as error:
        print(f"regret: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    report = {
        "bench": "regret",
        "profile": profile.name,
        "title": profile.title,
        "stock": stock,
        "geometry": geometry._asdict(),
        "summary": summary(records),
        "records": records,
    }
    beside = options.out.with_name(f".{options.out.name}.{os.getpid()}")
    beside.write_text(json.dumps(report), encoding="utf-8")
    beside.replace(options.out)
    print("\n".join(table(records)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
