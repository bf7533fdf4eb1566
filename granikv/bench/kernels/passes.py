"""Each pass of a step alone, and the whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from granikv.bench.kernels import timing
from granikv.bench.kernels.cases import Case, Ceilings, layers_for, work_of
from granikv.bench.kernels.step import Bench
from granikv.calibrate import time_together


def measure(bench: Bench, names: Iterable[str], seconds: float) -> dict[str, dict[str, float]]:
    """Time passes in turn; by name, µs a launch."""
    passes = bench.passes()
    graphs = {name: timing.captured(passes[name], bench.layers) for name in names}
    replays = [replay for replay, _ in graphs.values()]
    timings = time_together(bench.device.type, replays, seconds)
    return {
        name: timing.microseconds(taken, launches)
        for (name, (_, launches)), taken in zip(graphs.items(), timings, strict=True)
    }


def records_of(
    case: Case, l2: str, l2_bytes: int, seconds: float, ceilings: Ceilings, **options: Any
) -> list[dict[str, Any]]:
    """One record a pass; `options` are those of `Bench`."""
    bench = Bench(case, layers_for(case, l2, l2_bytes), **options)
    work = work_of(case)
    about = {
        "case": case.name,
        "rows": case.rows,
        "prefix_length": max(r.p0 + r.length for r in case.reads),
        "q_heads": case.heads[0],
        "kv_heads": case.heads[1],
        "head_dim": case.d,
        "suffix_tokens": case.suffix,
        "segments": len(case.reads),
        "l2": l2,
        "layers": bench.layers,
        "relative_error": bench.error(),
        "prefix_config": bench.step.prefix._asdict(),
        "suffix_config": bench.step.suffix._asdict(),
        "overlap": bench.step.overlap,
        "early": bench.step.early,
    }
    timed = measure(bench, work, seconds)
    return [{**about, "pass": name, **timed[name], **work[name].floors(ceilings)} for name in work]
