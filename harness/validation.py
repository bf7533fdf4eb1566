"""Why a measured cell must not be used: one function a check, each a list of one-line reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness import metrics
from harness.systems.base import ServerInfo, System, Traffic
from workloads.request import Workload


@dataclass(frozen=True)
class Evidence:
    """What a load left behind.

    log: the requests. loop_lag_s: samples of the client's own lateness. page_size: of the server's
    radix tree, in tokens. primed: whether the prefixes were in the cache when the load began.
    before: the server after its flush. opened: when the measured window opened. after: at its end.
    """

    log: pd.DataFrame
    loop_lag_s: Sequence[float]
    workload: Workload
    system: System
    before: ServerInfo
    opened: ServerInfo
    after: ServerInfo
    primed: bool


def _some(rows: pd.DataFrame, what: str) -> list[str]:
    """A reason that names the first of the offending rows."""
    if rows.empty:
        return []
    first = rows.iloc[0]
    return [f"{len(rows)} requests {what} (first: request {first['index']})"]


def replies(evidence: Evidence) -> list[str]:
    """Every request was answered in full, with at least one token."""
    bad = evidence.log[~evidence.log["ok"]]
    if bad.empty:
        return []
    causes = bad["error"].value_counts()
    shown = "; ".join(f"{count} × {cause}" for cause, count in causes.head(3).items())
    return [f"{len(bad)} of {len(evidence.log)} requests failed: {shown}"]


def _lengths(evidence: Evidence, got: str, what: str) -> list[str]:
    """A reason where the column `got` differs from what was asked for."""
    ok = evidence.log[evidence.log["ok"]]
    wrong = ok[ok[got] != ok[f"{got}_asked"]]
    if wrong.empty:
        return []
    first = wrong.iloc[0]
    return _some(wrong, f"{what}, such as {first[got]} for {first[f'{got}_asked']}")


def output_lengths(evidence: Evidence) -> list[str]:
    """Every reply has as many tokens as were asked for, by the server's count."""
    return _lengths(evidence, "output_tokens", "got another number of tokens than asked")


def prompt_lengths(evidence: Evidence) -> list[str]:
    """The server counted as many prompt tokens as were sent."""
    return _lengths(evidence, "prompt_tokens", "were counted with another prompt length")


def streaming(evidence: Evidence) -> list[str]:
    """Every reply was streamed, so that its time to first token is known and is not 0."""
    ok = evidence.log[evidence.log["ok"]]
    unknown = ~(ok["first_token_s"] > ok["sent_s"])
    return _some(
        ok[unknown], "have no measured time to first token: their replies were not streamed"
    )


def designed_hit_rate(evidence: Evidence) -> float | None:
    """Share of the prompt tokens that primed prefixes cover, in whole pages; None if unknown."""
    workload = evidence.workload
    if workload.reuse_is_timed or (not evidence.primed and workload.prefixes):
        return None
    page = int(evidence.after.argument("page_size") or 1)
    requests = workload.requests
    covered = sum(request.prefix_len // page * page for request in requests)
    return covered / max(1, sum(request.prompt_len for request in requests))


def hit_rate(evidence: Evidence, tolerance: float | None) -> list[str]:
    """The cache gave what the workload was designed to share, neither less nor more."""
    designed = designed_hit_rate(evidence)
    if tolerance is None or designed is None:
        return []
    measured = metrics.hit_rate(evidence.log)
    if abs(measured - designed) <= tolerance:
        return []
    return [f"hit rate {measured:.3f}, designed {designed:.3f} (tolerance {tolerance:g})"]


def client_lag(evidence: Evidence, limits: Mapping[str, Any]) -> list[str]:
    """The client sent in time and read in time, compared with what it measured."""
    wrong = []
    send_lag = float(np.nanquantile(_known(metrics.send_lag_ms(evidence.log)), 0.99))
    share, floor = limits["send_lag_ttft_share"], limits["send_lag_floor_ms"]
    if share is not None:
        ttft_ms = 1000 * float(np.nanmedian(_known(metrics.ttft_s(evidence.log))))
        allowed = max(float(floor), float(share) * ttft_ms)
        if not send_lag <= allowed:
            wrong.append(f"the client sent late: lag p99 {send_lag:.1f} ms, {allowed:.1f} allowed")
    share = limits["loop_lag_tpot_share"]
    # Replies of one token have no time between tokens.
    if share is not None and (evidence.log["output_tokens_asked"] > 1).any():
        lag = loop_lag_ms(evidence.loop_lag_s)
        allowed = float(share) * float(np.nanmedian(_known(metrics.tpot_ms(evidence.log))))
        if not lag <= allowed:
            wrong.append(f"the client read late: lag p99 {lag:.2f} ms, {allowed:.2f} allowed")
    return wrong


def loop_lag_ms(samples: Sequence[float]) -> float:
    """How late the client's event loop was, p99 in ms; NaN without a sample."""
    return 1000 * float(np.quantile(_known(np.asarray(samples, dtype=np.float64)), 0.99))


def _known(values: metrics.Floats) -> metrics.Floats:
    """The values, or one NaN in place of none, which no limit allows."""
    return values if values.size else np.array([np.nan])


def traffic(workload: Workload) -> Traffic:
    """What the server was asked to share."""
    used = {request.prefix_class for request in workload.requests}
    lengths = [int(workload.prefixes[c].size) for c in sorted(used) if c >= 0]
    return Traffic(prefix_lengths=lengths, shared_by_all=len(used) == 1 and len(lengths) == 1)


def in_use(evidence: Evidence) -> list[str]:
    """The system under test did the work, and no other backend than the one that was forced."""
    system, after = evidence.system, evidence.after
    return [
        *system.silent(evidence.before, after, traffic(evidence.workload)),
        *system.overflowed(evidence.opened, after),
    ]


def ranks_alike(evidence: Evidence) -> list[str]:
    """Every rank counted, stored and shared as rank 0 did."""
    first, *others = evidence.after.ranks or [{}]
    wrong = []
    for rank, state in enumerate(others, 1):
        parts = [part for part in ("pools", "tree") if state.get(part) != first.get(part)]
        counted, expected = state.get("counters", {}), first.get("counters", {})
        names = sorted(counted.keys() | expected.keys())
        parts += [name for name in names if counted.get(name) != expected.get(name)]
        if parts:
            wrong.append(f"rank {rank} and rank 0 differ in {', '.join(parts)}")
    return wrong


def reasons(evidence: Evidence, limits: Mapping[str, Any]) -> list[str]:
    """Every reason against the cell; none means it is valid."""
    failed = replies(evidence)
    if len(evidence.log[evidence.log["ok"]]) == 0:
        return failed
    return [
        *failed,
        *output_lengths(evidence),
        *prompt_lengths(evidence),
        *streaming(evidence),
        *hit_rate(evidence, limits["hit_rate_tolerance"]),
        *client_lag(evidence, limits),
        *in_use(evidence),
        *ranks_alike(evidence),
    ]
