"""The metrics of a cell: one function each, from the request log to one number.

A log is a DataFrame with one row a request (columns: `harness.store.REQUEST_COLUMNS`). Times are
seconds on one monotonic clock, 0 at the start of the load. Only requests whose `ok` is true count.
A metric that the log cannot give is NaN, which is stored as null: never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Metric = Callable[[pd.DataFrame], float]
Slo = Mapping[str, float | None]
"""A service-level objective: upper bounds `ttft_s`, `tpot_s` and `e2e_s` in s; None bounds not."""

STEADY_SHARE = 0.9
STEADY_MINIMUM = 0.1


def _ok(log: pd.DataFrame) -> pd.DataFrame:
    return log[log["ok"].astype(bool)]


def _column(log: pd.DataFrame, name: str) -> Floats:
    return _ok(log)[name].to_numpy(dtype=np.float64)


def _quantile(values: Floats, q: float) -> float:
    known = values[np.isfinite(values)]
    return float(np.quantile(known, q)) if known.size else float("nan")


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else float("nan")


def duration_s(log: pd.DataFrame) -> float:
    """Wall time of the load in s: last token of all − first request sent."""
    ok = _ok(log)
    if ok.empty:
        return float("nan")
    return float(ok["last_token_s"].max() - ok["sent_s"].min())


def requests(log: pd.DataFrame) -> float:
    """Requests answered in full (a count)."""
    return float(len(_ok(log)))


def output_tok_s(log: pd.DataFrame) -> float:
    """Output throughput of the whole run in tok/s: Σ output tokens / duration (§4.4)."""
    return _ratio(float(_column(log, "output_tokens").sum()), duration_s(log))


def total_tok_s(log: pd.DataFrame) -> float:
    """Tokens in and out in tok/s: Σ (prompt + output tokens) / duration; cached ones count."""
    tokens = _column(log, "prompt_tokens").sum() + _column(log, "output_tokens").sum()
    return _ratio(float(tokens), duration_s(log))


def request_per_s(log: pd.DataFrame) -> float:
    """Request throughput in requests/s: requests answered / duration."""
    return _ratio(requests(log), duration_s(log))


def steady_window_s(log: pd.DataFrame) -> tuple[float, float]:
    """Start and end in s of the steady state; (NaN, NaN) where that is under 10% of the run.

    It lies between the first and the last moment at which the requests in flight are at least 90%
    of their peak.
    """
    ok = _ok(log)
    if ok.empty:
        return float("nan"), float("nan")
    times = np.concatenate([ok["sent_s"].to_numpy(float), ok["last_token_s"].to_numpy(float)])
    steps = np.concatenate([np.ones(len(ok)), -np.ones(len(ok))])
    order = np.lexsort((steps, times))
    times, flying = times[order], np.cumsum(steps[order])
    high = np.flatnonzero(flying >= STEADY_SHARE * flying.max())
    start, end = float(times[high[0]]), float(times[min(high[-1] + 1, times.size - 1)])
    if end - start < STEADY_MINIMUM * duration_s(log) or end <= start:
        return float("nan"), float("nan")
    return start, end


def output_tok_s_steady(log: pd.DataFrame) -> float:
    """Output throughput of the steady window in tok/s: tokens that came in it / its length.

    NaN too for a log whose token times were left out.
    """
    start, end = steady_window_s(log)
    ok = _ok(log)
    timed = sum(int(np.sum(counts)) for counts in ok["chunk_tokens"])
    if not np.isfinite(start) or timed < ok["output_tokens"].sum():
        return float("nan")
    tokens = 0.0
    for times, counts in zip(ok["chunk_s"], ok["chunk_tokens"], strict=True):
        at = np.asarray(times, dtype=np.float64)
        tokens += float(np.asarray(counts)[(at > start) & (at <= end)].sum())
    return tokens / (end - start)


def request_per_s_steady(log: pd.DataFrame) -> float:
    """Requests answered per s of the steady window: last tokens that came in it / its length."""
    start, end = steady_window_s(log)
    last = _column(log, "last_token_s")
    return _ratio(float(((last > start) & (last <= end)).sum()), end - start)


def steady_share(log: pd.DataFrame) -> float:
    """Length of the steady window / duration, in [0, 1]: how much of a run its ends are not."""
    start, end = steady_window_s(log)
    return _ratio(end - start, duration_s(log))


def ttft_s(log: pd.DataFrame) -> Floats:
    """Time to first token of each request in s, from sending: first token − sent."""
    return _column(log, "first_token_s") - _column(log, "sent_s")


def ttft_scheduled_s(log: pd.DataFrame) -> Floats:
    """Time to first token of each request in s, from its due time: first token − scheduled."""
    return _column(log, "first_token_s") - _column(log, "scheduled_s")


def tpot_ms(log: pd.DataFrame) -> Floats:
    """Time per output token of each request in ms: 1000 · (last − first token) / (tokens − 1).

    Requests of one token have none. Where the first chunk holds n tokens the divisor is tokens − n,
    since n came at once.
    """
    ok = _ok(log)
    first = np.array([c[0] if len(c) else 0 for c in ok["chunk_tokens"]], dtype=float)
    later = ok["output_tokens"].to_numpy(float) - first
    span = ok["last_token_s"].to_numpy(float) - ok["first_token_s"].to_numpy(float)
    return np.asarray(1000.0 * span[later > 0] / later[later > 0], dtype=np.float64)


def itl_ms(log: pd.DataFrame) -> Floats:
    """Inter-token latencies in ms: the gap before a chunk shared equally by the chunk's tokens."""
    gaps: list[Floats] = []
    for times, counts in zip(_ok(log)["chunk_s"], _ok(log)["chunk_tokens"], strict=True):
        tokens = np.asarray(counts[1:], dtype=np.int64)
        each = np.diff(np.asarray(times, dtype=np.float64)) / np.maximum(tokens, 1)
        gaps.append(1000.0 * np.repeat(each, tokens))
    return np.concatenate(gaps) if gaps else np.empty(0)


def e2e_s(log: pd.DataFrame) -> Floats:
    """Latency of each request in s, from sending: last token − sent."""
    return _column(log, "last_token_s") - _column(log, "sent_s")


def e2e_scheduled_s(log: pd.DataFrame) -> Floats:
    """Latency of each request in s, from its due time: last token − scheduled."""
    return _column(log, "last_token_s") - _column(log, "scheduled_s")


def good(log: pd.DataFrame, slo: Slo) -> npt.NDArray[np.bool_]:
    """Whether each answered request kept every bound of the objective (`Slo`).

    TTFT and latency count from the due time: the user waits in the queue too. A request whose TTFT
    is not known does not keep a bound on it; one of a single token keeps any on TPOT.
    """
    ok = _ok(log)
    kept = np.ones(len(ok), dtype=np.bool_)
    first = np.array([c[0] if len(c) else 0 for c in ok["chunk_tokens"]], dtype=float)
    later = ok["output_tokens"].to_numpy(float) - first
    span = ok["last_token_s"].to_numpy(float) - ok["first_token_s"].to_numpy(float)
    for name, values in (
        ("ttft_s", ttft_scheduled_s(log)),
        ("tpot_s", np.where(later > 0, span / np.maximum(later, 1), 0.0)),
        ("e2e_s", e2e_scheduled_s(log)),
    ):
        bound = slo.get(name)
        if bound is not None:
            kept &= values <= bound
    return kept


def goodput_req_s(log: pd.DataFrame, slo: Slo) -> float:
    """Goodput in requests/s: requests that kept the objective / duration; NaN without a bound."""
    return _ratio(float(good(log, slo).sum()), duration_s(log)) if _bounded(slo) else float("nan")


def slo_share(log: pd.DataFrame, slo: Slo) -> float:
    """Share of all requests, failed ones too, that kept the objective, in [0, 1]."""
    return _ratio(float(good(log, slo).sum()), float(len(log))) if _bounded(slo) else float("nan")


def _bounded(slo: Slo) -> bool:
    return any(bound is not None for bound in slo.values())


def send_lag_ms(log: pd.DataFrame) -> Floats:
    """The client's own delay of each request in ms: sent − when it was due and had a permit."""
    return 1000.0 * (_column(log, "sent_s") - _column(log, "permitted_s"))


def hit_rate(log: pd.DataFrame) -> float:
    """Share of the prompt tokens that came from the cache, by the server's count, in [0, 1]."""
    cached, prompt = _column(log, "cached_tokens").sum(), _column(log, "prompt_tokens").sum()
    return _ratio(float(cached), float(prompt))


def _at(values: Callable[[pd.DataFrame], Floats], q: float) -> Metric:
    return lambda log: _quantile(values(log), q)


METRICS: dict[str, Metric] = {
    "requests": requests,
    "duration_s": duration_s,
    "output_tok_s": output_tok_s,
    "output_tok_s_steady": output_tok_s_steady,
    "total_tok_s": total_tok_s,
    "request_per_s": request_per_s,
    "request_per_s_steady": request_per_s_steady,
    "steady_share": steady_share,
    "ttft_p50_s": _at(ttft_s, 0.50),
    "ttft_p90_s": _at(ttft_s, 0.90),
    "ttft_p99_s": _at(ttft_s, 0.99),
    "ttft_scheduled_p50_s": _at(ttft_scheduled_s, 0.50),
    "ttft_scheduled_p90_s": _at(ttft_scheduled_s, 0.90),
    "ttft_scheduled_p99_s": _at(ttft_scheduled_s, 0.99),
    "tpot_p50_ms": _at(tpot_ms, 0.50),
    "tpot_p90_ms": _at(tpot_ms, 0.90),
    "tpot_p99_ms": _at(tpot_ms, 0.99),
    "itl_p50_ms": _at(itl_ms, 0.50),
    "itl_p90_ms": _at(itl_ms, 0.90),
    "itl_p99_ms": _at(itl_ms, 0.99),
    "e2e_p50_s": _at(e2e_s, 0.50),
    "e2e_p90_s": _at(e2e_s, 0.90),
    "e2e_p99_s": _at(e2e_s, 0.99),
    "e2e_scheduled_p50_s": _at(e2e_scheduled_s, 0.50),
    "e2e_scheduled_p90_s": _at(e2e_scheduled_s, 0.90),
    "e2e_scheduled_p99_s": _at(e2e_scheduled_s, 0.99),
    "send_lag_p99_ms": _at(send_lag_ms, 0.99),
    "hit_rate": hit_rate,
}
"""The metrics of a log alone, by name with unit. TTFT and E2E are send-based, as the paper's;
`*_scheduled_*` count from the due time."""

OBJECTIVES: dict[str, Callable[[pd.DataFrame, Slo], float]] = {
    "goodput_req_s": goodput_req_s,
    "slo_share": slo_share,
}
"""Those that depend on what counts as good (conf/config.yaml, `slo`)."""


def compute(log: pd.DataFrame, slo: Slo | None = None) -> dict[str, float]:
    """All metrics that a cell stores; NaN where the log cannot give one."""
    of_log = {name: metric(log) for name, metric in METRICS.items()}
    return of_log | {name: metric(log, slo or {}) for name, metric in OBJECTIVES.items()}
