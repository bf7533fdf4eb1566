"""Judges the dispatcher by its counters (§3.6, Eq. 2); they are no speed, so a CPU can decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.analysis.cells import CellLike, counters, group_size, m_sat, standing
from harness.analysis.claims.claim import Claim, Evidence, Result

DISPATCHING = "granikv"


@dataclass(frozen=True)
class Routed:
    """What the dispatcher of one cell did over the measured load."""

    cell: str
    m_sat: int
    nominal_m_eff: int
    steps: dict[str, int]
    mean_m_eff: dict[str, float]


def read(cell: CellLike) -> Routed | None:
    """The routing of a cell; None where it does not dispatch or something it needs is unknown."""
    at, threshold, group, counted = standing(cell), m_sat(cell), group_size(cell), counters(cell)
    if at.system != DISPATCHING or not cell.valid or not counted:
        return None
    if threshold is None or group is None or at.b is None:
        return None
    steps = {name: counted.get(f"steps_{name}", 0) for name in ("dense", "cascade")}
    mean = {
        name: counted.get(f"rows_{name}", 0) * group / count
        for name, count in steps.items()
        if count
    }
    return Routed(cell.id, threshold, at.b * group, steps, mean)


def _fires(routed: Routed) -> str | None:
    if routed.nominal_m_eff >= routed.m_sat and not routed.steps["dense"]:
        return f"no dense step though B · n_q/kv = {routed.nominal_m_eff:,} >= {routed.m_sat:,}"
    if routed.nominal_m_eff < routed.m_sat and routed.steps["dense"]:
        return f"{routed.steps['dense']:,} dense steps though M_eff stays below {routed.m_sat:,}"
    return None


def _routes(routed: Routed) -> str | None:
    dense, cascade = (routed.mean_m_eff.get(name) for name in ("dense", "cascade"))
    if dense is not None and dense < routed.m_sat:
        return f"dense steps have a mean M_eff of {dense:,.0f}, below {routed.m_sat:,}"
    if cascade is not None and cascade >= routed.m_sat:
        return f"cascade steps have a mean M_eff of {cascade:,.0f}, not below {routed.m_sat:,}"
    return None


CHECKS: dict[str, Callable[[Routed], str | None]] = {"fires": _fires, "routes": _routes}
"""`fires`: dense is used if and only if the batch can reach M_sat. `routes`: the mean M_eff of each
backend's steps lies on its side of M_sat, as it must if every step's does."""


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason). options: `check`, one of CHECKS."""
    check = CHECKS[str(claim.options["check"])]
    routed = [one for cell in evidence.cells if (one := read(cell)) is not None]
    routed = [one for one in routed if sum(one.steps.values())]
    if not routed:
        return Result.INCONCLUSIVE, "", "no dispatching cell with a known M_sat"
    dense, cascade = (sum(one.steps[name] for one in routed) for name in ("dense", "cascade"))
    observed = f"{dense:,} dense and {cascade:,} cascade steps in {len(routed):,} cells"
    for one in routed:
        if wrong := check(one):
            return Result.FAIL, observed, f"cell {one.cell}: {wrong}"
    return Result.PASS, observed, "by the dispatcher's counters over the measured load"
