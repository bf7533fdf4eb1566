"""What dispatching adds to a decode step, beside the step: `python -m granikv.bench.dispatch_cost`.

On the host: the decision on a standing plan (shape, choice and count) and on a new one, the plan of
a step in which a row went to another class and of one in which none did, and on a GPU what the
kernels read of it (work list, snapshot). On the device: one launch of the dense kernel over the
shared prefix, and the attention of one step through all layers; a whole step also has its matrix
products, so shares of it are bounds from above. Without a GPU the dense backend's portable form
stands in. JSON on standard output, in seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from granikv.attention.dense import DenseBackend
from granikv.bench import plan_cost
from granikv.calibrate import time_together
from granikv.cost import Geometry
from granikv.dispatch import (
    AUTO,
    CASCADE,
    DENSE,
    DispatchRule,
    SaturationRule,
    StepShape,
    auto_rule,
    overhead_ns,
)
from granikv.hardware import ProfileError, load_profile
from granikv.plan import DecodePlan

OWN_TOKENS = 256
"""Of each row behind the prefix."""


class Sizes(NamedTuple):
    """One decode step: every row reads the one prefix; heads are those of a rank."""

    rows: int
    prefix_length: int
    q_heads: int
    kv_heads: int
    head_dim: int
    layers: int

    @property
    def group(self) -> int:
        """n_q/kv."""
        return self.q_heads // self.kv_heads


class Step(NamedTuple):
    """What stands for the device's part.

    kernel: so many launches over the prefix. whole: the attention of all layers, so many steps of
    it; wait: until it is done. host: what the kernels need of the host, seconds by name.
    """

    kernel: Callable[[], object]
    launches: int
    whole: Callable[[], object]
    steps: int
    wait: Callable[[], object]
    host: dict[str, float]


def portable_step(sizes: Sizes) -> Step:
    """The portable form on the CPU, float32."""
    shape = (sizes.prefix_length, sizes.kv_heads, sizes.head_dim)
    caches = [(torch.randn(shape), torch.randn(shape)) for _ in range(sizes.layers)]
    q = torch.randn(sizes.rows, sizes.q_heads, sizes.head_dim)
    dense, scale = DenseBackend(), sizes.head_dim**-0.5

    def whole() -> None:
        for k, v in caches:
            dense.prefix(q, k, v, scale)

    return Step(lambda: dense.prefix(q, *caches[0], scale), 1, whole, 1, lambda: None, {})


def fused_step(sizes: Sizes, host_steps: int) -> Step:
    """The fused kernels in CUDA graphs, bfloat16, each layer on a cache of its own."""
    from granikv.bench import kernels

    heads, read = (sizes.q_heads, sizes.kv_heads), (0, sizes.rows, 0, sizes.prefix_length)
    case = kernels.Case(
        "table 17", sizes.rows, OWN_TOKENS, heads, sizes.head_dim, (kernels.Read(*read),)
    )
    bench = kernels.Bench(case, sizes.layers)
    prefix, launches = kernels.captured(bench.prefix, sizes.layers)
    replay, captured = kernels.captured(bench.whole, sizes.layers)

    taken = {record["pass"]: record for record in kernels.host_records(case, host_steps)}
    host = {
        "worklist_p50_s": taken["plan (host)"]["p50_us"] * 1e-6,
        "worklist_p99_s": taken["plan (host)"]["p99_us"] * 1e-6,
        "worklist_unchanged_p99_s": taken["plan, unchanged (host)"]["p99_us"] * 1e-6,
        "snapshot_p99_s": taken["snapshot (host)"]["p99_us"] * 1e-6,
    }
    steps = captured // sizes.layers
    return Step(prefix, launches, replay, steps, torch.cuda.synchronize, host)


def plan_seconds(rows: int, steps: int) -> dict[str, float]:
    """Host time of planning a step, p50 and p99: four classes whose sizes change, or stand."""
    batch, found = plan_cost.Batch(rows, classes=4, chunks=1), {}
    for name, change in (("changed", batch.class_changed), ("unchanged", batch.unchanged)):
        change()
        for key, value in plan_cost.measure(change, steps).items():
            if key != "min_us":
                found[f"plan_{name}_{key.removesuffix('_us')}_s"] = value * 1e-6
    return found


def plans_of(sizes: Sizes) -> list[DecodePlan]:
    """Two plans that say the same, as two steps have them between which a row was replaced."""
    batch = plan_cost.Batch(sizes.rows, classes=1, chunks=1)
    plan = batch.planner.plan(batch.nodes)
    (segment,) = plan.segments
    segments = (segment._replace(length=sizes.prefix_length),)
    return [DecodePlan(plan.rows, segments, plan.paged) for _ in range(2)]


def decision_seconds(rule: DispatchRule, sizes: Sizes, steps: int) -> float:
    """Host time of a decision when the plan is new in every step, p99."""
    turns = itertools.cycle(plans_of(sizes))
    shape, tokens = StepShape(sizes.rows, sizes.group, sizes.rows), _tokens(sizes)
    taken = plan_cost.measure(lambda: rule.decide(shape, next(turns), tokens), steps)
    return taken["p99_us"] * 1e-6


def _tokens(sizes: Sizes) -> int:
    return sizes.rows * (sizes.prefix_length + OWN_TOKENS)


def dense_launches(rule: DispatchRule, sizes: Sizes, step: Step, seconds: float) -> float:
    """Launches of the dense kernel in 15 s of steps that the rule decides, one after another."""
    plan, tokens = plans_of(sizes)[0], _tokens(sizes)
    launches, begin = 0, time.perf_counter()
    while True:
        shape = StepShape(sizes.rows, sizes.group, sizes.rows)
        if rule.decide(shape, plan, tokens).backend == DENSE:
            launches += sizes.layers * step.steps
        step.whole()
        step.wait()
        passed = time.perf_counter() - begin
        if passed >= seconds:
            return launches * 15.0 / passed


def record_of(
    sizes: Sizes, device: str, rule: DispatchRule, seconds: float, host_steps: int
) -> dict[str, Any]:
    """Everything, of one step."""
    step = fused_step(sizes, host_steps) if device == "cuda" else portable_step(sizes)
    kernel, whole = time_together(device, [step.kernel, step.whole], min(seconds, 2.0))
    return {
        "case": "table 17",
        "layout": "HOT",
        "read": "shared",
        "backend": "dispatch",
        **sizes._asdict(),
        "rule": rule.describe(),
        "dispatch_cpu_s": overhead_ns(rule) * 1e-9,
        "decision_new_plan_p99_s": decision_seconds(rule, sizes, host_steps),
        **plan_seconds(sizes.rows, host_steps),
        **step.host,
        "kernel_wall_s": kernel.median / step.launches,
        "step_wall_s": whole.median / step.steps,
        "dense_launches_in_15_s": dense_launches(rule, sizes, step, seconds),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="granikv.bench.dispatch_cost", description=__doc__)
    sizes = {"rows": 256, "prefix-length": 8192, "q-heads": 32, "kv-heads": 8}
    for name, default in (sizes | {"head-dim": 128, "layers": 32, "m-sat": 1024}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--profile", help="hardware profile whose rule decides, before --m-sat")
    parser.add_argument("--stock", default="flashinfer", help="the engine's own decode backend")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="left out, a GPU if there is one")
    parser.add_argument("--seconds", type=float, default=15.0, help="of dispatched steps")
    parser.add_argument("--host-steps", type=int, default=2000, help="samples of host times")
    return parser


def rule_of(options: argparse.Namespace, sizes: Sizes) -> DispatchRule:
    """What `--granikv-backend auto` takes on the profile's hardware; Eq. 2 where it has no fit."""
    profile = load_profile(options.profile) if options.profile else None
    if profile is None or (profile.cost is None and profile.m_sat is None):
        return SaturationRule(options.m_sat)
    width = sizes.head_dim
    geometry = Geometry(sizes.kv_heads, sizes.group, width, width, 2)
    return auto_rule(profile, geometry, options.stock, (CASCADE, DENSE), AUTO)


def _refusal(options: argparse.Namespace, device: str) -> str | None:
    numbers = [options.m_sat, options.host_steps, *(getattr(options, n) for n in Sizes._fields)]
    if min(numbers) < 1:
        return "every size must be at least 1"
    if options.q_heads % options.kv_heads:
        return "--q-heads must be a multiple of --kv-heads"
    if device == "cuda" and not torch.cuda.is_available():
        return "no CUDA device is usable here; use --device cpu"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object; its exit status."""
    options = _parser().parse_args(argv)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if refusal := _refusal(options, device):
        print(f"dispatch_cost: {refusal}", file=sys.stderr)
        return 2
    sizes = Sizes(*(getattr(options, name) for name in Sizes._fields))
    try:
        rule = rule_of(options, sizes)
    except (ProfileError, OSError) as error:
        print(f"dispatch_cost: {error}", file=sys.stderr)
        return 2
    record = record_of(sizes, device, rule, options.seconds, options.host_steps)
    machine = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    json.dump({"bench": "dispatch_cost", **machine, "records": [record]}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
