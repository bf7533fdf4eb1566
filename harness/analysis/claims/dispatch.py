"""Judges the dispatcher by its counters (§3.6, Eq. 2); they are no speed, so a CPU can decide.

Only cells whose server chose by Eq. 2 say anything of it: `auto` follows a fitted cost model where
the hardware profile has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.analysis.cells import (
    EQ_2,
    CellLike,
    counters,
    dispatch_rule,
    group_size,
    m_sat,
    standing,
)
from harness.analysis.claims.claim import Claim, Evidence, Result, cell_count

DISPATCHING = "granikv"


def is_saturation(rule: str, m_sat: int | None) -> bool:
    """Whether a rule is Eq. 2 with this M_sat."""
    return m_sat is not None and rule.startswith(f"{EQ_2}{m_sat}, else cascade")


@dataclass(frozen=True)
class Routed:
    """What the dispatcher of one cell did over the measured load.

    rule: as the server describes it; empty where it does not. steps: of dense, cascade and paged.
    shared_paged: rows of paged steps that read a segment, though none had to be paged for want of
    room. mean_m_eff: of each backend that served a step.
    """

    cell: str
    rule: str
    m_sat: int
    group: int
    nominal_m_eff: int
    steps: dict[str, int]
    shared_paged: int
    mean_m_eff: dict[str, float]

    @property
    def saturation(self) -> bool:
        """Whether the server chose by Eq. 2 with the profile's M_sat."""
        return is_saturation(self.rule, self.m_sat)

    @property
    def shares(self) -> bool:
        """Whether any step read a segment; Eq. 2 is about those."""
        return bool(self.steps["dense"] + self.steps["cascade"] + self.shared_paged)


def read(cell: CellLike) -> Routed | None:
    """The routing of a cell; None where it does not dispatch or something it needs is unknown."""
    at, threshold, group, counted = standing(cell), m_sat(cell), group_size(cell), counters(cell)
    if at.system != DISPATCHING or not cell.valid or not counted:
        return None
    if threshold is None or group is None or at.b is None:
        return None
    steps = {name: counted.get(f"steps_{name}", 0) for name in ("dense", "cascade", "paged")}
    mean = {
        name: counted.get(f"rows_{name}", 0) * group / count
        for name, count in steps.items()
        if count
    }
    overflowed = counted.get("steps_overflowed", 0)
    shared_paged = 0 if overflowed else counted.get("segment_rows_paged", 0)
    nominal = at.b * group
    return Routed(
        cell.id, dispatch_rule(cell), threshold, group, nominal, steps, shared_paged, mean
    )


def _fires(routed: Routed) -> str | None:
    if routed.nominal_m_eff >= routed.m_sat and not routed.steps["dense"]:
        return f"no dense step though B · n_q/kv = {routed.nominal_m_eff:,} >= {routed.m_sat:,}"
    if routed.nominal_m_eff < routed.m_sat and routed.steps["dense"]:
        return f"{routed.steps['dense']:,} dense steps though M_eff stays below {routed.m_sat:,}"
    return None


def _routes(routed: Routed) -> str | None:
    if routed.shared_paged:
        return f"{routed.shared_paged:,} rows of paged steps read a segment"
    dense, cascade = (routed.mean_m_eff.get(name) for name in ("dense", "cascade"))
    if dense is not None and dense < routed.m_sat:
        return f"dense steps have a mean M_eff of {dense:,.0f}, below {routed.m_sat:,}"
    if cascade is not None and cascade >= routed.m_sat:
        return f"cascade steps have a mean M_eff of {cascade:,.0f}, not below {routed.m_sat:,}"
    return None


CHECKS: dict[str, Callable[[Routed], str | None]] = {"fires": _fires, "routes": _routes}
"""`fires`: dense is used if and only if the batch can reach M_sat. `routes`: no paged step reads a
segment, and the mean M_eff of each other backend's steps lies on its side of M_sat, as it must if
every step's does."""


def judge(claim: Claim, evidence: Evidence) -> tuple[Result, str, str]:
    """(result, observed, reason). options: `check`, one of CHECKS.

    A cell can contradict Eq. 2 alone; to confirm it takes steps on both sides of M_sat.
    """
    check = CHECKS[str(claim.options["check"])]
    known = [one for cell in evidence.cells if (one := read(cell)) is not None]
    if not known:
        return Result.INCONCLUSIVE, "", "no dispatching cell with a known M_sat"
    routed = [one for one in known if one.saturation and one.shares]
    if not routed:
        return Result.INCONCLUSIVE, "", _silent(known)
    steps = {name: sum(one.steps[name] for one in routed) for name in routed[0].steps}
    spoken = "{dense:,} dense, {cascade:,} cascade and {paged:,} paged steps".format(**steps)
    observed = f"{spoken} in {cell_count(len(routed))}"
    for one in routed:
        if wrong := check(one):
            return Result.FAIL, observed, f"cell {one.cell}: {wrong}"
    for name, side in (("dense", "at or above"), ("cascade", "below")):
        if not steps[name]:
            return Result.INCONCLUSIVE, observed, f"no step {side} M_sat = {_thresholds(routed)}"
    return Result.PASS, observed, "by the dispatcher's counters over the measured load"


def _silent(known: Sequence[Routed]) -> str:
    """Why no cell says anything of Eq. 2."""
    others = sorted({one.rule or "an unknown rule" for one in known if not one.saturation})
    if not others:
        return "no step reads a shared segment"
    reason = f"Eq. 2 was not used: the servers chose by {' or by '.join(others)}"
    if all(one.group >= one.m_sat for one in known):
        reason += f"; and one row alone reaches M_sat = {_thresholds(known)}"
    return reason


def _thresholds(routed: Sequence[Routed]) -> str:
    return " or ".join(f"{number:,}" for number in sorted({one.m_sat for one in routed}))
