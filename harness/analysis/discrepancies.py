"""Recomputes, from `results/paper/`, each number of `notes.yaml` (contradictions in the paper)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pandas as pd

from harness import paper
from harness.analysis import amdahl, roofline

Numbers = dict[str, float]

SYNTHETIC = (6, 7, 8)
SHAREGPT = (9, 10, 11)
NAMES = {paper.LLAMA_8B: "llama", paper.QWEN_14B: "qwen14b", paper.QWEN_32B: "qwen32b"}
LAYERS_LLAMA_8B = 32
REQUESTS = 500
M_SAT = 1024
GROUP_LLAMA_8B = 4

_COMPUTED: dict[str, Callable[[], Numbers]] = {}


def _note(name: str) -> Callable[[Callable[[], Numbers]], Callable[[], Numbers]]:
    def register(function: Callable[[], Numbers]) -> Callable[[], Numbers]:
        _COMPUTED[name] = function
        return function

    return register


def ids() -> tuple[str, ...]:
    """Ids of the notes that can be recomputed."""
    return tuple(_COMPUTED)


def compute(note_id: str) -> Numbers:
    """Unrounded numbers of one note. Raises KeyError for an unknown id."""
    return _COMPUTED[note_id]()


@cache
def _throughput(tables: tuple[int, ...]) -> pd.DataFrame:
    """Output tok/s, one column a system, indexed by (config, l_p, b)."""
    frame = pd.concat([paper.select(paper.table(t), metric="output_tok_s") for t in tables])
    return frame.pivot_table(index=["config", "l_p", "b"], columns="system", values="value")


def _ratio(tables: tuple[int, ...], baseline: str = "sglang_default") -> pd.Series[float]:
    frame = _throughput(tables)
    return frame["granikv"] / frame[baseline]


@_note("short-prefix-regression")
def _short_prefix() -> Numbers:
    sharegpt, synthetic = _ratio(SHAREGPT), _ratio(SYNTHETIC)
    numbers = {
        f"{short}_512_256": float(sharegpt[(config, 512, 256)]) for config, short in NAMES.items()
    }
    return numbers | {
        "sharegpt_cells": float(len(sharegpt)),
        "sharegpt_below_default": float((sharegpt < 1).sum()),
        "synthetic_cells": float(len(synthetic)),
        "synthetic_below_default": float((synthetic < 1).sum()),
        "worst": float(min(sharegpt.min(), synthetic.min())),
    }


@_note("exceeds-1.5-at-4k")
def _first_above() -> Numbers:
    gain = _ratio((3,))
    return {f"llama_{n}k": float(gain[(paper.LLAMA_8B, n * 1024, 256)]) for n in (4, 8)}


@_note("strict-improvement")
def _strict() -> Numbers:
    frame = _throughput(SHAREGPT)
    to_cascade = _ratio(SHAREGPT, "sglang_cascade")
    level = to_cascade.index.get_level_values
    large = to_cascade[
        (level("config") == paper.QWEN_32B) & (level("l_p") >= 4096) & (level("b") >= 512)
    ]
    numbers = {
        "qwen32b_large_cells_below_cascade": float((large < 1).sum()),
        "qwen32b_large_lowest": float(large.min()),
        "qwen32b_large_highest": float(large.max()),
    }
    for config, short in NAMES.items():
        best = frame.loc[config].xs(16384, level="l_p").max()
        numbers[f"{short}_best_to_default"] = float(best["granikv"] / best["sglang_default"])
        numbers[f"{short}_best_to_cascade"] = float(best["granikv"] / best["sglang_cascade"])
    return numbers


@_note("peak-at-256")
def _peak() -> Numbers:
    best = _throughput(SHAREGPT)["granikv"].unstack("b").idxmax(axis=1)
    return {
        "rows": float(len(best)),
        "rows_with_other_peak": float((best != 256).sum()),
        "requests": float(REQUESTS),
    }


@_note("same-cell-two-values")
def _two_values() -> Numbers:
    fraction, spread = paper.table(24), paper.select(paper.table(18), metric="spread_pct")
    headline = paper.select(paper.table(6), l_p=8192, b=256, metric="output_tok_s")
    granikv = paper.value(fraction, case="f_p = 0.2", metric="output_tok_s")
    cascade = paper.value(fraction, system="sglang_cascade", metric="output_tok_s")
    return {
        "granikv_table24": granikv,
        "granikv_table6": paper.value(headline, system="granikv"),
        "granikv_apart": granikv / paper.value(headline, system="granikv"),
        "cascade_table24": cascade,
        "cascade_table6": paper.value(headline, system="sglang_cascade"),
        "cascade_apart": cascade / paper.value(headline, system="sglang_cascade"),
        "largest_spread_table18_pct": float(spread["value"].max()),
    }


@_note("f_p-too-small-still-gains")
def _too_small() -> Numbers:
    frame = paper.table(24)
    ratios = {
        f"ratio_at_{f}": paper.value(frame, case=f"f_p = {f}", metric="output_tok_s")
        / paper.value(frame, system="sglang_cascade", metric="output_tok_s")
        for f in ("0.05", "0.1")
    }
    return ratios | {
        "hot_slots": paper.value(frame, case="f_p = 0.05", metric="hot_slots"),
        "prefix_tokens": float(frame["l_p"].iloc[0]),
    }


@_note("four-prefixes-do-not-fit")
def _four_prefixes() -> Numbers:
    budget = paper.value(paper.table(24), case="f_p = 0.05", metric="hot_slots") / 0.05
    frame = paper.select(paper.table(20), metric="output_tok_s")
    short = {"sglang_default": "default", "sglang_cascade": "cascade", "granikv": "granikv"}
    drops = {
        f"drop_{name}_pct": 100.0
        * (1 - paper.value(frame, system=system, k=64) / paper.value(frame, system=system, k=1))
        for system, name in short.items()
    }
    return {"slots_needed": 4.0 * 8192, "slots_at_0.2": 0.2 * budget} | drops


@_note("threshold-fit-is-circular")
def _circular() -> Numbers:
    frame = paper.select(paper.table(15), l_p=8192, metric="dense_step_pct")
    return {f"dense_pct_b{b}": paper.value(frame, b=b) for b in (8, 32, 128)}


@_note("dense-not-seen-in-engine")
def _not_seen() -> Numbers:
    frame = paper.select(paper.table(13), case="Prefix attention")
    granikv = paper.value(frame, system="granikv")
    cascade = paper.value(frame, system="sglang_cascade")
    return {
        "granikv_prefix_ms": granikv,
        "cascade_prefix_ms": cascade,
        "granikv_to_cascade": granikv / cascade,
        "dense_pct": paper.value(paper.table(15), l_p=8192, b=256, metric="dense_step_pct"),
    }


def _unnamed_pct(frame: pd.DataFrame, system: str) -> float:
    rows = paper.select(frame, system=system)
    total = paper.value(rows, case="Total kernel")
    named = float(rows.loc[rows["case"] != "Total kernel", "value"].sum())
    return 100.0 * (1 - named / total)


@_note("kernel-time-rises")
def _kernel_time() -> Numbers:
    frame = paper.table(14)
    total = paper.select(frame, case="Total kernel")
    over = paper.value(total, system="granikv") / paper.value(total, system="sglang_default") - 1
    cell = (paper.QWEN_32B, 8192, 256)
    return {
        "total_over_default_pct": 100.0 * over,
        "ratio_synthetic": float(_ratio((8,))[cell]),
        "ratio_sharegpt": float(_ratio((11,))[cell]),
        "unnamed_default_pct": _unnamed_pct(frame, "sglang_default"),
        "unnamed_granikv_pct": _unnamed_pct(frame, "granikv"),
    }


@_note("microbench-against-engine")
def _microbench() -> Numbers:
    walls = paper.select(paper.table(5), metric="kernel_wall_us")
    paged = paper.value(walls, case="unique (paged)")
    shared = paper.value(walls, case="shared (HOT)")
    prefix = paper.select(paper.table(13), case="Prefix attention")
    tpot: paper.Key = {"system": "sglang_default", "l_p": 8192, "b": 256, "metric": "tpot_p50_ms"}
    shape = roofline.LLAMA_8B_HEADLINE
    return {
        "paged_step_ms": paged * LAYERS_LLAMA_8B / 1e3,
        "tpot_sharegpt_ms": paper.value(paper.table(9), **tpot),
        "tpot_synthetic_ms": paper.value(paper.table(6), **tpot),
        "engine_gain": paper.value(prefix, system="sglang_default")
        / paper.value(prefix, system="granikv"),
        "paged_gb_s": shape.bytes_read(shared=False) / paged / 1e3,
        "shared_gb_s": shape.bytes_read(shared=True) / shared / 1e3,
    }


@_note("per-class-m_eff")
def _class_m_eff() -> Numbers:
    ratio: paper.Key = {"system": "granikv", "k": 4, "metric": "ratio_to_sglang_default"}
    return {
        "class_m_eff_k4": 256 / 4 * GROUP_LLAMA_8B,
        "class_m_eff_k8": 256 / 8 * GROUP_LLAMA_8B,
        "m_sat": float(M_SAT),
        "unequal_k4": paper.value(paper.table(21), **ratio),
        "equal_k4": paper.value(paper.table(20), **ratio),
    }


@_note("eq4-equals-eq3")
def _eq4() -> Numbers:
    s = paper.value(paper.table(5), case="shared (HOT)", metric="speedup")
    numbers: Numbers = {}
    for config, short in NAMES.items():
        row = paper.select(paper.table(22), config=config)
        alpha, beta, gamma = (
            paper.value(row, metric=f"{n}_pct") / 100 for n in ("alpha", "beta", "gamma")
        )
        numbers[f"{short}_eq3"] = amdahl.speedup(alpha, s)
        numbers[f"{short}_eq4"] = amdahl.speedup_with_fixed_terms(alpha, beta, gamma, s)
        numbers[f"{short}_kernel_share"] = amdahl.speedup(
            amdahl.share_of_kernel_time(alpha, gamma), s
        )
    return numbers


@_note("paged-intensity")
def _intensity() -> Numbers:
    frame, caption = paper.table(23), paper.figure(1)
    throughput = paper.value(frame, case="shared (HOT)", metric="throughput")
    return {
        "modelled_intensity": roofline.LLAMA_8B_HEADLINE.intensity(shared=False),
        "twice_group": 2.0 * GROUP_LLAMA_8B,
        "measured_intensity": paper.value(frame, case="unique (paged)", metric="intensity"),
        "hot_of_peak_pct": 100.0 * throughput / paper.value(caption, metric="peak_tflops"),
    }


@_note("rates-and-ttft")
def _ttft() -> Numbers:
    frame = pd.concat([paper.table(t) for t in SHAREGPT])
    rows = paper.select(frame, l_p=16384, metric="ttft_p50_s")
    rows = rows[rows["b"] >= 128]
    stated = rows[rows["b"] <= 512]
    return {
        "lowest_ttft_s": float(stated["value"].min()),
        "highest_ttft_s": float(stated["value"].max()),
        "highest_ttft_to_1024_s": float(rows["value"].max()),
    }
