"""A made-up campaign on one GPU type: a cell for every row of every table, with known numbers.

Nothing here was measured. Throughput is 1e6 / (L_p + 4,000) · gain(system), so GraniKV is always
twice SGLang default and 1.25 times SGLang-Cascade.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.harness.analysis.made_up import H200, MadeUpCell, pools, tree_node

MODELS = {"llama31_8b": 1, "qwen25_14b": 2, "qwen25_32b": 4}
ENVELOPE = {
    "llama31_8b": (1, 2),
    "qwen25_14b": (1, 2, 4),
    "qwen25_32b": (1, 2, 4),
}
GAINS = {
    "sglang_default": 1.0,
    "sglang_cascade": 1.6,
    "cascade_on_granikv": 1.7,
    "granikv": 2.0,
    "granikv_dense": 1.9,
    "granikv_cascade": 1.8,
    "granikv_hydragen": 1.2,
    "granikv_contiguous_unshared": 1.05,
    "sglang_fa3": 1.1,
    "sglang_flashinfer_p1": 1.0,
}
BASELINES = ("sglang_default", "sglang_cascade", "granikv")
LADDER = (512, 1024, 2048, 4096, 8192, 16384)
BS = (8, 32, 128, 256, 512, 1024)
K4 = (2048, 4096, 8192, 16384)
K8 = (1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
BUDGET = 148_400


def throughput(system: str, length: float) -> float:
    """Output tok/s of a made-up cell."""
    return 1e6 / (length + 4000) * GAINS[system]


def serving(
    system: str,
    kind: str,
    lengths: Sequence[int],
    b: int,
    *,
    model: str = "llama31_8b",
    tp: int | None = None,
    k: int = 1,
    budget: str = "full",
    repetition: int = 0,
    page_size: int = 1,
    **parts: Any,
) -> MadeUpCell:
    """A serving cell as `conf/` would make it; `parts` replace groups of its configuration."""
    workload: dict[str, Any] = {"kind": kind, "scale": 1, "hot_fraction": 0.2}
    if len(lengths) > 1:
        workload["prefix_lengths"] = list(lengths)
    else:
        workload |= {"prefix_length": lengths[0], "prefix_count": k}
    load: dict[str, Any] = {"kind": "poisson_capped", "permits": b, "rate": 200}
    if kind == "synthetic":
        workload["requests"], load = b, {"kind": "burst"}
    config: dict[str, Any] = {
        "system": {"name": system, "page_size": page_size},
        "model": {"name": model, "tp": tp or MODELS[model], "kv_budget_paper": BUDGET},
        "workload": workload,
        "load": load,
        "hardware": H200,
        "kv_budget": budget,
        "storage": {"hot_fraction": 0.2, "admission": "eager", "eviction": "lru"},
        "repetition": repetition,
    } | parts
    name = "-".join(
        map(
            str,
            (
                system,
                kind,
                *lengths,
                f"b{b}",
                f"k{k}",
                model,
                config["model"]["tp"],
                budget,
                page_size,
            ),
        )
    )
    extra = "".join(f"-{key}{_short(value)}" for key, value in sorted(parts.items()))
    speed = throughput(system, sum(lengths) / len(lengths))
    return MadeUpCell(
        f"{name}-{repetition}{extra}",
        config,
        _metrics(speed, b) | _profile(config),
        state=_state(system, b),
        record={"server": {"facts": {"max_total_num_tokens": 845_617}, "counters_before": {}}},
    )


def made_up(config: Mapping[str, Any]) -> MadeUpCell:
    """What a cell of this configuration could have measured; equal configurations, equal ids."""
    name = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    stored = {k: v for k, v in config.items() if k != "profile" or v["kind"] != "none"}
    workload, system = config["workload"], config["system"]["name"]
    if workload["kind"] == "kernel":
        like = kernel(workload["layout"], workload["read"], system=system)
        del stored["load"]
        return MadeUpCell(name, stored, dict(like.metrics))
    lengths = workload.get("prefix_lengths") or [workload.get("prefix_length", 4096)]
    b = config["load"].get("permits") or workload["requests"]
    return MadeUpCell(
        name,
        stored,
        _metrics(throughput(system, sum(lengths) / len(lengths)), b) | _profile(stored),
        state=_state(system, b),
        record={"server": {"facts": {"max_total_num_tokens": 845_617}, "counters_before": {}}},
    )


def _short(value: object) -> str:
    numbers = "".join(c for c in str(value) if c.isdigit() or c == ".")
    return numbers or ("profile" if "kineto" in str(value) else "x")


def _metrics(speed: float, b: int) -> dict[str, float]:
    return {
        "output_tok_s": speed,
        "tpot_p50_ms": 1000 * b / speed,
        "tpot_p99_ms": 1100 * b / speed,
        "ttft_p50_s": 0.5,
        "ttft_p99_s": 0.9,
        "ttft_scheduled_p50_s": 2.5,
        "hit_rate": 0.9,
    }


def _profile(config: Mapping[str, Any]) -> dict[str, float]:
    if "profile" not in config:
        return {}
    times = {
        "prefix_attention": 600.0,
        "decode_attention": 50.0,
        "gemm": 300.0,
        "nccl": 20.0,
        "sampling": 10.0,
        "other": 20.0,
    }
    times["total"] = sum(times.values())
    shares = {"share_prefix_attention": 0.6, "share_nccl": 0.02, "share_host_gap": 0.05}
    return {f"kernel_ms_{k}": v for k, v in times.items()} | shares | {"profile_steps": 100.0}


def _state(system: str, b: int) -> dict[str, Any] | None:
    if "granikv" not in system:
        return None
    dense = 90 if b >= 256 else 3
    steps = {"steps_dense": dense, "steps_cascade": 100 - dense - 2, "steps_paged": 2}
    return {
        "counters": {"steps": 100, "rows": 100 * b, **steps},
        "pools": pools(1, 29_680, 8192, 400, 100_000),
        "tree": [tree_node(1, None, 0, 8192, 1, b)],
    }


def kernel(layout: str, read: str, *, system: str = "kernel", counted: bool = False) -> MadeUpCell:
    """A kernel cell at the headline shape: HOT takes 500 µs, paged 5,000; shared reads are 5 times
    as fast.
    """
    workload = {
        "kind": "kernel",
        "layout": layout,
        "read": read,
        "backend": "dispatch" if system == "granikv" else "dense",
        "rows": 256,
        "prefix_length": 8192,
        "q_heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
    }
    wall = {"HOT": 500e-6, "paged": 1000e-6}[layout] * {"shared": 1, "unshared": 5}[read]
    config = {
        "system": {"name": system},
        "model": {"name": "llama31_8b", "tp": 1},
        "workload": workload,
        "hardware": H200,
        "repetition": 0,
    }
    metrics = {
        "kernel_wall_s": wall,
        "kernel_dram_bytes": 36e6 if read == "shared" else 9e9,
        "kernel_l2_hit_pct": 80.0,
        "kernel_tensor_active_pct": 25.0,
        "kernel_waves_per_sm": 4.5,
    }
    if system == "granikv":
        metrics |= {"dense_launches_in_15_s": 90.0, "dispatch_cpu_s": 0.5e-6, "step_wall_s": 0.04}
        metrics |= {"decision_new_plan_p99_s": 5e-6}
        metrics |= {"plan_changed_p99_s": 60e-6, "plan_unchanged_p99_s": 2e-6}
        metrics |= {"worklist_p99_s": 80e-6, "snapshot_p99_s": 20e-6}
    if counted:
        config["profile"] = {"kind": "ncu"}
    name = f"kernel-{system}-{layout}-{read}" + ("-counted" if counted else "")
    return MadeUpCell(name, config, metrics)


def campaign() -> list[MadeUpCell]:
    """Every cell that some table shows, once."""
    return list({cell.id: cell for cell in _cells()}.values())


def _cells() -> Iterator[MadeUpCell]:
    for model in MODELS:
        for system in (*BASELINES, "sglang_fa3"):
            for l_p in LADDER:
                for b in BS:
                    yield serving(system, "sharegpt", (l_p,), b, model=model)
                    if b <= 256 and l_p <= 8192:
                        yield serving(system, "synthetic", (l_p,), b, model=model)
    yield from _ablations()
    yield from _multi_prefix()
    yield from _envelope()
    yield from _beyond()
    for layout in ("HOT", "paged"):
        for read in ("shared", "unshared"):
            yield kernel(layout, read)
            yield kernel(layout, read, counted=True)
    yield kernel("HOT", "shared", system="granikv")


def _ablations() -> Iterator[MadeUpCell]:
    profile = {"kind": "kineto"}
    for model, tp in (("llama31_8b", 1), ("qwen25_32b", 4), ("qwen25_32b", 2)):
        for system in (*BASELINES, "cascade_on_granikv"):
            yield serving(system, "sharegpt", (8192,), 256, model=model, tp=tp, profile=profile)
    for b in BS[:4]:
        yield serving("granikv", "synthetic", (16384,), b)
    for system in ("granikv_dense", "granikv_cascade"):
        for b in BS[:4]:
            yield serving(system, "synthetic", (8192,), b)
    for budget in ("paper", "full"):
        yield serving("sglang_cascade", "synthetic", (8192,), 256, budget=budget)
        yield serving("granikv", "synthetic", (8192,), 256, budget=budget)
        for fraction in (0.05, 0.1, 0.4, 0.6, 0.8):
            storage = {"hot_fraction": fraction, "admission": "eager", "eviction": "lru"}
            yield serving("granikv", "synthetic", (8192,), 256, budget=budget, storage=storage)


def _multi_prefix() -> Iterator[MadeUpCell]:
    for system in (*BASELINES, "sglang_fa3"):
        for budget in ("paper", "full"):
            for lengths in (K4, K8):
                yield serving(system, "multi_prefix", lengths, 256, k=len(lengths), budget=budget)
            for k in (1, 4, 16, 64):
                yield serving(system, "multi_prefix", (8192,), 256, k=k, budget=budget)


def _beyond() -> Iterator[MadeUpCell]:
    on_share = {"hot_fraction": 0.2, "admission": "on_share", "eviction": "lru"}
    for system in (*BASELINES, "sglang_fa3", "cascade_on_granikv"):
        yield serving(system, "negative_control", (4096,), 256)
    yield serving("granikv", "negative_control", (4096,), 256, storage=on_share)
    for lengths in (K4, K8):
        yield serving("granikv", "multi_prefix", lengths, 256, k=len(lengths), storage=on_share)
    for trace in ("toolagent", "conversation"):
        replayed: dict[str, Any] = {"workload": {"kind": "trace", "trace": trace}}
        replayed["load"] = {"kind": "replay"}
        replays = [
            serving(system, "trace", (4096,), 0, **replayed)
            for system in ("sglang_default", "sglang_fa3", "granikv")
        ]
        replays.append(serving("granikv", "trace", (4096,), 0, storage=on_share, **replayed))
        yield from (replace(cell, id=f"{cell.id}-{trace}") for cell in replays)


def _envelope() -> Iterator[MadeUpCell]:
    profile = {"kind": "kineto"}
    for model, ranks in ENVELOPE.items():
        for tp in ranks:
            yield serving(
                "sglang_default", "sharegpt", (16384,), 256, model=model, tp=tp, profile=profile
            )
            for system in ("sglang_default", "granikv"):
                yield serving(system, "synthetic", (8192,), 256, model=model, tp=tp)
    for model, tp in (("llama31_8b", 1), ("qwen25_32b", 4), ("qwen25_32b", 2)):
        for size in (4, 16):
            yield serving("granikv", "synthetic", (8192,), 256, model=model, tp=tp, page_size=size)
