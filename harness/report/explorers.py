"""What the page's explorers compute with: profiles, models, and presets from paper and cells."""

from __future__ import annotations

import json
from typing import Any

from harness import paper
from harness.analysis.cells import MODEL_CONFIGS, CellLike, server_state, standing
from harness.analysis.roofline import read_profiles
from harness.figures import bridge, figure1
from harness.figures.bridge import Bar
from harness.tables import table05
from harness.tables.entries import Measured
from harness.tables.labels import length_label
from harness.tables.printed import PaperSource
from harness.tables.sources import CellSource, Sources

SHAPES = paper.ROOT / "harness" / "models" / "shapes"
PAPER_BUDGET = 148_400
K8 = (1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
LAYOUTS: tuple[tuple[str, tuple[int, ...], float], ...] = (
    ("One prefix of 16K (Table 3)", (16384,), 0.2),
    ("Four unequal prefixes (Table 21)", (2048, 4096, 8192, 16384), 0.3),
    ("Eight unequal prefixes (Table 21)", K8, 0.4),
    ("Four equal prefixes of 8K (Table 20)", (8192,) * 4, 0.2),
    ("HOT smaller than the prefix (Table 24)", (8192,), 0.05),
)
LIVE = 6
"""Live servers' layouts that are offered."""


def data(sources: Sources) -> dict[str, Any]:
    """Everything, as plain JSON values."""
    return {
        "profiles": profiles(),
        "models": models(),
        "layouts": layouts(sources),
        "amdahl": amdahl(sources),
        "roofline": roofline(sources),
    }


def profiles() -> list[dict[str, Any]]:
    """Hardware profiles: roofs in TFLOP/s and GB/s, and M_sat; null where a profile has none.

    fitted: whether the profile has a cost model, by which `auto` then goes instead of M_sat.
    """
    found = []
    for profile in read_profiles(paper.ROOT / "conf" / "hardware"):
        roofs, dispatch = profile.get("ceilings") or {}, profile.get("dispatch") or {}
        found.append(
            {
                "name": profile["name"],
                "title": str(profile.get("title", profile["name"])),
                "peak": roofs.get("peak_tflops"),
                "bandwidth": roofs.get("bandwidth_gbps"),
                "m_sat": dispatch.get("m_sat"),
                "fitted": bool(dispatch.get("cost")),
                "source": " ".join(str((profile.get("measured") or {}).get("source", "")).split()),
            }
        )
    return found


def models() -> list[dict[str, Any]]:
    """The paper's models by their files: heads, width of a head, layers, and their rank count."""
    found = []
    for name, config in MODEL_CONFIGS.items():
        shape = json.loads((SHAPES / f"{name}.json").read_text("utf-8"))
        heads = int(shape["num_attention_heads"])
        found.append(
            {
                "name": config,
                "q_heads": heads,
                "kv_heads": int(shape["num_key_value_heads"]),
                "head_dim": int(shape.get("head_dim") or int(shape["hidden_size"]) // heads),
                "layers": int(shape["num_hidden_layers"]),
                "tp": int(config.rpartition("=")[2]),
            }
        )
    return found


def layouts(sources: Sources) -> list[dict[str, Any]]:
    """Prefix lengths in tokens, f_p, KV slots and B: the paper's tables, then live servers.

    Live servers stand by their number of prefixes, then by length.
    """
    found: list[dict[str, Any]] = [
        {"label": label, "lengths": list(lengths), "f_p": f_p, "slots": PAPER_BUDGET, "b": 256}
        for label, lengths, f_p in LAYOUTS
    ]
    seen: dict[str, dict[str, Any]] = {}
    for cell in (*sources.here, *sources.shipped):
        live = _live(cell)
        if live is not None and len(seen) < LIVE:
            seen.setdefault(live["label"], live)
    live_ones = sorted(seen.values(), key=lambda one: (len(one["lengths"]), one["lengths"]))
    return [*found, *live_ones]


def _live(cell: CellLike) -> dict[str, Any] | None:
    """A GraniKV server as it was: what was asked of it, and the slabs that it reported."""
    at, state = standing(cell), server_state(cell)
    if state is None or at.system != "granikv" or not cell.valid or at.hot_fraction is None:
        return None
    lengths = "/".join(length_label(length) for length in at.prefix_lengths)
    pools = state["pools"]
    return {
        "label": f"Live: {at.kind} {lengths}, {at.title}",
        "lengths": list(at.prefix_lengths),
        "f_p": at.hot_fraction,
        "slots": int(pools["capacity"]),
        "b": at.b or 1,
        "cell": cell.id,
        "hot_live": int(pools["hot_live"]),
    }


def amdahl(sources: Sources) -> list[dict[str, Any]]:
    """Rows of Table 22 as fractions and ratios; `s` is the kernel's gain."""
    s = paper.value(paper.table(5), case="shared (HOT)", metric="speedup")
    found = [_terms(bar, s) for bar in bridge.bars(PaperSource(22), "paper")]
    for source in sources.measured(""):
        if not source.functional:
            gain = _kernel_gain(source) or s
            found += [_terms(bar, gain) for bar in bridge.bars(source, source.heading)]
    return found


def _kernel_gain(source: CellSource) -> float | None:
    """s of this hardware: the paged kernel's wall time over the HOT one's; None without both."""
    entry = table05.SPEEDUP.entry(source, table05.point("HOT", "shared"))
    return entry.estimate.value if isinstance(entry, Measured) else None


def _terms(bar: Bar, s: float) -> dict[str, Any]:
    return {
        "label": bar.label.replace("\n", ", "),
        "alpha": bar.shares["alpha_pct"] / 100,
        "beta": bar.shares["beta_pct"] / 100,
        "gamma": bar.shares["gamma_pct"] / 100,
        "s": s,
        "measured": bar.numbers.get("measured"),
    }


def roofline(sources: Sources) -> list[dict[str, Any]]:
    """Placed kernels: FLOP/byte and TFLOP/s, the paper's first. by: who measured."""
    roofs = figure1.other_ceilings()
    points = [
        *figure1.paper_points(),
        *figure1.measured_points([*sources.shipped, *sources.here], roofs),
    ]
    return [
        {
            "label": f"{point.name} ({point.origin})",
            "layout": point.layout,
            "read": point.read,
            "profile": point.ceilings.name,
            "by": "the paper (Table 23)" if point.origin == "paper" else "this project's cells",
            "intensity": point.intensity,
            "tflops": point.tflops,
        }
        for point in points
    ]
