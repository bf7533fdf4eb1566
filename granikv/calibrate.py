"""Measure a device and write its hardware profile: `python -m granikv.calibrate --device cpu|cuda`.

Four measurements, each with lines of JSON on standard output: copy bandwidth; matrix-product peak;
dense against cascade over M_eff, from which M_sat is fitted (§3.6, B.4b); and every child of a
decode step over a grid of steps, from which the cost model is fitted. On a GPU they are the kernels
that serve, in CUDA graphs as an engine runs them (where no cascade is installed, M_sat is that of
the torch backends); on a CPU the torch backends. The profile says what was measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from granikv.attention.cascade import CascadeBackend
from granikv.attention.dense import DenseBackend
from granikv.cost import Geometry
from granikv.hardware import (
    HardwareProfile,
    ProfileError,
    load_profile,
    shipped_profiles,
    write_profile,
)

_MIN_REPEATS = 5
_MAX_REPEATS = 101
_SAMPLE_S = 0.002
"""A sample repeats a short operation until it lasts about this long."""
_NOISE_CAP = 0.05
"""However noisy a machine, dense more than 5% slower than cascade is slower."""


class Problem(NamedTuple):
    """Sizes of the measurements on one kind of device.

    copy_bytes and matmul_n (square) set the ceilings' operands; prefix_tokens, kv_heads, group and
    d the prefix pass; m_effs the sweep, M_eff = rows * group, powers of two; seconds for all of it.
    """

    dtype: torch.dtype
    copy_bytes: int
    matmul_n: int
    prefix_tokens: int
    kv_heads: int
    group: int
    d: int
    m_effs: tuple[int, ...]
    seconds: float

    @property
    def ceiling_seconds(self) -> float:
        """For each of the two ceilings."""
        return 0.05 * self.seconds

    @property
    def crossover_seconds(self) -> float:
        """For one M_eff of the torch backends."""
        return 0.15 * self.seconds / len(self.m_effs)

    @property
    def survey_seconds(self) -> float:
        """For the children of a step."""
        return 0.75 * self.seconds


PROBLEMS = {
    "cpu": Problem(
        torch.float32, 2**26, 1024, 512, 2, 2, 32, tuple(2**i for i in range(1, 9)), 15.0
    ),
    "cuda": Problem(
        torch.bfloat16, 2**30, 8192, 8192, 8, 4, 128, tuple(2**i for i in range(2, 11)), 56.0
    ),
}
"""cpu: the tiny model's heads, float32. cuda: the heads of Llama-3.1-8B at L_p = 8K, bfloat16."""


class Timing(NamedTuple):
    """Median and interquartile range of an operation's seconds."""

    median: float
    spread: float


class Crossover(NamedTuple):
    """Seconds of one prefix pass at one M_eff by each backend."""

    m_eff: int
    dense: Timing
    cascade: Timing

    @property
    def dense_holds(self) -> bool:
        """Dense is no slower than cascade within the spread of the two, capped at 5%."""
        noise = max(self.dense.spread, self.cascade.spread)
        return self.dense.median <= self.cascade.median + min(
            noise, _NOISE_CAP * self.cascade.median
        )

    def milliseconds(self) -> dict[str, float]:
        """For a report."""
        return {
            "dense_ms": self.dense.median * 1e3,
            "dense_iqr_ms": self.dense.spread * 1e3,
            "cascade_ms": self.cascade.median * 1e3,
            "cascade_iqr_ms": self.cascade.spread * 1e3,
        }


def fit_m_sat(points: Sequence[Crossover]) -> tuple[int | None, str]:
    """The smallest measured M_eff from which on dense always holds, and a note on the fit.

    None where dense does not hold at the largest M_eff: no threshold is in sight.
    """
    ascending = sorted(points)
    least, largest = ascending[0].m_eff, ascending[-1].m_eff
    losses = [point.m_eff for point in ascending if not point.dense_holds]
    m_sat = next((p.m_eff for p in ascending if not losses or p.m_eff > losses[-1]), None)
    if m_sat is None:
        note = f"dense was slower than cascade at M_eff {largest}, the largest measured"
    elif not losses:
        note = f"dense was never slower from M_eff {least}, the smallest measured"
    else:
        note = f"dense was slower at M_eff {losses[-1]} and never from {m_sat} to {largest}"
    spread = max(t.spread / t.median for p in ascending for t in (p.dense, p.cascade))
    return m_sat, f"{note}; interquartile range at most {spread:.0%} of the median"


def calibrate(
    device: str, name: str, problem: Problem, report: Callable[[dict[str, object]], None]
) -> HardwareProfile:
    """Measure `device` and return its profile; `report` gets each result as it is known."""
    from granikv.calibrate_costs import (
        SURVEYS,
        benches,
        measure_costs,
        measure_saturation,
        steps_of,
    )

    server_args, server_env = _server_needs(device)
    if "OMP_NUM_THREADS" in server_env:
        torch.set_num_threads(int(server_env["OMP_NUM_THREADS"]))  # as the server will run
    title = _device_title(device)
    report({"event": "start", "device": device, "title": title, "seconds": problem.seconds})
    bandwidth = measure_bandwidth(device, problem)
    report({"event": "bandwidth", "gbps": bandwidth})
    peak = measure_peak(device, problem)
    report({"event": "matmul", "tflops": peak, "dtype": str(problem.dtype)})
    survey = SURVEYS[device]
    made = benches(device, survey)
    points, forms = [], "the kernels that serve, on whole steps"
    if device == "cuda":
        points = measure_saturation(made[0], problem.m_effs, problem.prefix_tokens, 64, report)
    if not points:
        points, forms = measure_crossover(device, problem, report), "torch backends, prefix alone"
    m_sat, note = fit_m_sat(points)
    report({"event": "fit", "m_sat": m_sat, "note": note, "forms": forms})
    # Counted from here: kernels that were compiled on the way leave the survey its time.
    end = time.perf_counter() + problem.survey_seconds
    cost = measure_costs(made, steps_of(survey), end, report)
    return HardwareProfile(
        name=name,
        device=device,
        title=title,
        measured={
            "by": "granikv calibrate",
            "when": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "source": _source(device, problem),
            "m_sat": f"{forms}: {note}",
            "cost": _cost_source(device, survey.geometries),
        },
        peak_tflops=_rounded(peak),
        bandwidth_gbps=_rounded(bandwidth),
        m_sat=m_sat,
        cost=cost,
        server_args=server_args,
        server_env=server_env,
    )


def measure_bandwidth(device: str, problem: Problem) -> float:
    """Copy bandwidth in GB/s: bytes read plus bytes written, over the median time."""
    source = torch.zeros(problem.copy_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    (timing,) = time_together(device, [lambda: target.copy_(source)], problem.ceiling_seconds)
    return 2 * problem.copy_bytes / timing.median / 1e9


def measure_peak(device: str, problem: Problem) -> float:
    """Square matrix product in TFLOP/s, 2 n^3 over the median time, in the problem's dtype."""
    n = problem.matmul_n
    a, b = (torch.randn(n, n, device=device).to(problem.dtype) for _ in range(2))
    (timing,) = time_together(device, [lambda: a @ b], problem.ceiling_seconds)
    return 2 * n**3 / timing.median / 1e12


def measure_crossover(
    device: str, problem: Problem, report: Callable[[dict[str, object]], None]
) -> list[Crossover]:
    """Dense and cascade over one slab, alternating, for each M_eff of the problem."""
    shape = (problem.prefix_tokens, problem.kv_heads, problem.d)
    k, v = (torch.randn(shape, device=device).to(problem.dtype) for _ in range(2))
    points = []
    for m_eff in problem.m_effs:
        rows, heads = m_eff // problem.group, problem.kv_heads * problem.group
        q = torch.randn(rows, heads, problem.d, device=device).to(problem.dtype)
        passes: list[Callable[[], object]] = [
            partial(backend.prefix, q, k, v, problem.d**-0.5)
            for backend in (DenseBackend(), CascadeBackend())
        ]
        if device == "cuda":
            passes = [_captured(operation) for operation in passes]
        point = Crossover(m_eff, *time_together(device, passes, problem.crossover_seconds))
        report({"event": "crossover", "m_eff": m_eff, "rows": rows, **point.milliseconds()})
        points.append(point)
    return points


def time_together(
    device: str, operations: Sequence[Callable[[], object]], seconds: float
) -> list[Timing]:
    """Time operations in turn, so that a drift of the machine falls on all alike.

    Warms each up, then samples for about `seconds` in all, at least five times each.
    """
    end = time.perf_counter() + seconds
    clock = _cuda_seconds if device == "cuda" else _host_seconds
    inner = []
    for operation in operations:
        clock(operation, 1)
        inner.append(max(1, round(_SAMPLE_S / clock(operation, 1))))
    samples: list[list[float]] = [[] for _ in operations]
    while len(samples[0]) < _MIN_REPEATS or (
        time.perf_counter() < end and len(samples[0]) < _MAX_REPEATS
    ):
        for operation, count, taken in zip(operations, inner, samples, strict=True):
            taken.append(clock(operation, count))
    return [_timing(taken) for taken in samples]


def _host_seconds(operation: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        operation()
    return (time.perf_counter() - begin) / count


def _captured(operation: Callable[[], object]) -> Callable[[], object]:
    """The operation as a CUDA graph's replay: launched eagerly, its kernels wait for Python."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        operation()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        operation()
    return graph.replay


def _cuda_seconds(operation: Callable[[], object], count: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    for _ in range(count):
        operation()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / count


def _timing(samples: Sequence[float]) -> Timing:
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(median, high - low)


def _rounded(value: float) -> float:
    """Three significant digits: more than any of these measurements resolves."""
    return float(f"{value:.3g}")


def _device_title(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU ({platform.machine()}, threads: {torch.get_num_threads()})"


def _source(device: str, problem: Problem) -> str:
    dtype = str(problem.dtype).removeprefix("torch.")
    run = "CUDA-graph replay" if device == "cuda" else "eager"
    return (
        f"torch {torch.__version__}; copy of {problem.copy_bytes >> 20} MiB, read and written "
        f"bytes counted; {dtype} matrix product, n = {problem.matmul_n}, sustained; m_sat by dense "
        f"and cascade, {run}, {dtype}, L_p = {problem.prefix_tokens}, {problem.kv_heads} KV heads, "
        f"n_q/kv = {problem.group}, d = {problem.d}, M_eff {problem.m_effs[0]} to "
        f"{problem.m_effs[-1]}; medians"
    )


def _cost_source(device: str, geometries: Sequence[Geometry]) -> str:
    run = "CUDA-graph replay, cold L2" if device == "cuda" else "eager"
    heads = ", ".join(f"{g.kv_heads * g.group}/{g.kv_heads} of {g.d}" for g in geometries)
    return (
        f"one layer of a decode step, {run}, heads {heads}; non-negative least squares over "
        "relative errors; residuals are relative"
    )


def _server_needs(device: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Server arguments and environment, as the shipped profile of this kind of device has them."""
    for path in shipped_profiles().values():
        shipped = load_profile(path)
        if shipped.device == device:
            return shipped.server_args, dict(shipped.server_env)
    return (), {}


def _print_line(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="granikv calibrate", description=__doc__)
    parser.add_argument("--device", choices=sorted(PROBLEMS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="profile file to write (.yaml)")
    parser.add_argument("--name", help="the profile's name; default: that of the file")
    parser.add_argument(
        "--seconds", type=float, help="measuring time; default: 15 (cpu), 56 (cuda)"
    )
    return parser


def _refusal(device: str, out: Path, name: str, seconds: float) -> str | None:
    """Why this cannot be measured or written, before any time is spent on it."""
    if device == "cuda" and not torch.cuda.is_available():
        return "no CUDA device is usable here; use --device cpu or run on the GPU's machine"
    if out.suffix not in (".yaml", ".yml") or out.is_dir():
        return f"--out must name a .yaml file, not {out}"
    if not out.parent.is_dir():
        return f"the directory {out.parent} does not exist; create it or choose another --out"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        return f"the name {name!r} may hold letters, digits, '_', '.' and '-' only; give --name"
    if not 0 < seconds <= 600:
        return f"--seconds must lie between 0 and 600, not {seconds:g}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit status."""
    arguments = _parser().parse_args(argv)
    problem = PROBLEMS[arguments.device]
    if arguments.seconds is not None:
        problem = problem._replace(seconds=arguments.seconds)
    name = arguments.name or arguments.out.stem
    error = _refusal(arguments.device, arguments.out, name, problem.seconds)
    if error is None:
        try:
            profile = calibrate(arguments.device, name, problem, _print_line)
            write_profile(profile, arguments.out)
        except (ProfileError, torch.OutOfMemoryError) as failure:
            error = str(failure).splitlines()[0]
    if error is not None:
        print(f"granikv calibrate: {error}", file=sys.stderr)
        return 2
    _print_line({"event": "done", "out": str(arguments.out), "m_sat": profile.m_sat})
    return 0


if __name__ == "__main__":
    sys.exit(main())
