"""Numbers of a cell that are computed from what it holds: counters, kernel metrics, the model file.

`value` is what tables ask: a stored metric, or one of these by the same kind of name.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.analysis import kernels, slabs, timeline
from harness.analysis.cells import (
    CellLike,
    counters,
    group_size,
    model_shape,
    number,
    server_state,
    standing,
)

BACKENDS = ("dense", "cascade", "paged")


def steps(cell: CellLike) -> dict[str, int]:
    """Decode steps that each backend served over the measured load; empty where none ran."""
    counted = counters(cell)
    found = {name: counted.get(f"steps_{name}", 0) for name in BACKENDS}
    return found if sum(found.values()) else {}


def _step_pct(backend: str) -> Callable[[CellLike], float | None]:
    def percent(cell: CellLike) -> float | None:
        found = steps(cell)
        return 100.0 * found[backend] / sum(found.values()) if found else None

    return percent


def _mean_m_eff(cell: CellLike) -> float | None:
    counted, group = counters(cell), group_size(cell)
    count = counted.get("steps", 0)
    return None if not count or group is None else counted.get("rows", 0) * group / count


def _hot_slots(cell: CellLike) -> float | None:
    state = server_state(cell)
    return None if state is None else float(state["pools"]["hot_size"])


def _slabs(cell: CellLike) -> float | None:
    """Runs of slots that hold the tree's HOT nodes, as far as the server listed it."""
    state = server_state(cell)
    if state is None:
        return None
    return float(slabs.run_count(state["tree"]))


def _kv_tokens(cell: CellLike) -> float | None:
    facts = (cell.record.get("server") or {}).get("facts") or {}
    tokens = facts.get("max_total_num_tokens")
    return None if tokens is None else float(tokens)


def _kv_heads_per_rank(cell: CellLike) -> float | None:
    heads, ranks = model_shape(cell), standing(cell).model.rpartition("=")[2]
    return None if heads is None else heads[1] / int(ranks)


def _times(name: str, factor: float) -> Callable[[CellLike], float | None]:
    def scaled(cell: CellLike) -> float | None:
        found = number(cell, name)
        return None if found is None else found * factor

    return scaled


def _step_ms(category: str) -> Callable[[CellLike], float | None]:
    """Kernel time of a category in one traced decode step; windows hold unequal numbers of them."""

    def per_step(cell: CellLike) -> float | None:
        spent, traced = number(cell, f"kernel_ms_{category}"), number(cell, "profile_steps")
        return None if spent is None or not traced else spent / traced

    return per_step


def _metadata_us(cell: CellLike) -> float | None:
    """The 99th percentiles of the two parts of one step, added."""
    parts = [number(cell, name) for name in ("worklist_p99_s", "snapshot_p99_s")]
    return 1e6 * sum(p for p in parts if p is not None) if None not in parts else None


def _wrapper_share(cell: CellLike) -> float | None:
    cpu, step = number(cell, "dispatch_cpu_s"), number(cell, "step_wall_s")
    return None if cpu is None or not step else 100.0 * cpu / step


DERIVED: dict[str, Callable[[CellLike], float | None]] = {
    "dense_step_pct": _step_pct("dense"),
    "cascade_step_pct": _step_pct("cascade"),
    "paged_step_pct": _step_pct("paged"),
    "mean_m_eff": _mean_m_eff,
    "hot_slots": _hot_slots,
    "slabs": _slabs,
    "kv_tokens": _kv_tokens,
    "kv_heads_per_rank": _kv_heads_per_rank,
    "dispatch_cpu_us": _times("dispatch_cpu_s", 1e6),
    "dispatch_step_pct": _wrapper_share,
    "decision_new_plan_p99_us": _times("decision_new_plan_p99_s", 1e6),
    "plan_changed_p99_us": _times("plan_changed_p99_s", 1e6),
    "plan_unchanged_p99_us": _times("plan_unchanged_p99_s", 1e6),
    "metadata_p99_us": _metadata_us,
    "step_wall_us": _times("step_wall_s", 1e6),
    "alpha_pct": _times("share_prefix_attention", 100.0),
    "beta_pct": _times("share_nccl", 100.0),
    "gamma_pct": _times("share_host_gap", 100.0),
    **{f"step_ms_{name}": _step_ms(name) for name in (*timeline.CATEGORIES, "total")},
    **kernels.DERIVED,
}
"""By name, with the unit in the name; `mean_m_eff` counts the rows of every decode step (Eq. 2)."""


def value(cell: CellLike, name: str) -> float | None:
    """A stored metric or a derived number; None where the cell cannot give it."""
    compute = DERIVED.get(name)
    return number(cell, name) if compute is None else compute(cell)
