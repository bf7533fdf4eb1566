"""How many streams and tokens per second the client can read, beside a fake server.

    python -m harness.load.bench             2,000 streams, 25,000 tokens/s, one process
    python -m harness.load.bench --streams 256 --tokens-per-s 25600 --together --workers 2

Client and server (harness.load.pacer) share this machine's cores. Late tokens are found by
comparing when each was read with when the server wrote it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from harness import metrics
from harness.errors import HarnessError
from harness.load.drive import Options, Outcome, drive
from harness.load.paced import Written, keyed, pacing
from harness.load.pacer import Pace

PROMPT_TOKENS = 64
RAMP_S = 2.0
TTFT_S = 0.5
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Setting:
    """together: all streams get their tokens in the same moment, as from an engine's step."""

    streams: int
    tokens_per_s: float
    seconds: float
    workers: int
    together: bool


def measure(setting: Setting) -> dict[str, str]:
    """Run it; what came out, as text with units. Raises HarnessError if a request failed."""
    tpot_s = setting.streams / setting.tokens_per_s
    tokens = max(2, round((setting.seconds + RAMP_S) / tpot_s))
    due = np.linspace(0, RAMP_S, setting.streams)
    requests = keyed(due.tolist(), PROMPT_TOKENS, tokens)
    options = Options(None, False, TIMEOUT_S, TIMEOUT_S, setting.workers)
    with pacing() as server:
        server.set(Pace(TTFT_S, tpot_s, grid_s=tpot_s if setting.together else 0.001))
        served, used, began = server.cpu_s(), _cpu_s(), time.perf_counter()
        outcome = drive(server.url, requests, options, lambda: True)
        wall = time.perf_counter() - began
        used, served = _cpu_s() - used, server.cpu_s() - served
        written = server.written()
    failed = outcome.requests[~outcome.requests["ok"]]
    if not failed.empty:
        raise HarnessError(f"{len(failed)} requests failed: {failed.iloc[0]['error']}")
    return _describe(outcome, written, wall, used, served)


def _cpu_s() -> float:
    """Processor time of this process and of the workers that have ended, in s."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def _describe(
    outcome: Outcome, written: dict[int, Written], wall: float, used: float, served: float
) -> dict[str, str]:
    log = outcome.requests
    tokens = int(log["output_tokens"].sum())
    late = _late_ms(log, written, outcome.start)
    lag = 1000 * np.asarray(outcome.loop_lag_s)
    first = log["first_token_s"].max()
    full = min(log["last_token_s"]) - first
    whole = sum(((np.asarray(at) > first) & (np.asarray(at) <= first + full)).sum()
                for at in log["chunk_s"])  # fmt: skip
    return {
        "streams at once, peak": f"{_peak(log)}",
        "read while all stream": f"{whole / full:,.0f} tok/s over {full:.1f} s",
        "client processes": f"{outcome.workers}",
        "client CPU": f"{used / wall:.2f} cores ({1e6 * used / tokens:.1f} µs a token)",
        "server CPU": f"{served / wall:.2f} cores ({1e6 * served / tokens:.1f} µs a token)",
        "read after written": _quantiles(late),
        "event loop late": _quantiles(lag),
        "sent late": _quantiles(metrics.send_lag_ms(log)),
    }


def _late_ms(log: pd.DataFrame, written: dict[int, Written], start: float) -> metrics.Floats:
    """Of every token, in ms: read − written."""
    parts = [
        1000 * (np.asarray(at) + start - np.asarray(written[index].tokens))
        for index, at in zip(log["index"], log["chunk_s"], strict=True)
    ]
    return np.concatenate(parts)


def _peak(log: pd.DataFrame) -> int:
    times = np.concatenate([log["sent_s"], log["last_token_s"]])
    steps = np.repeat([1, -1], len(log))
    return int(np.cumsum(steps[np.argsort(times, kind="stable")]).max())


def _quantiles(values_ms: metrics.Floats) -> str:
    p50, p99, most = np.quantile(values_ms, [0.5, 0.99, 1.0])
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {most:.1f} ms"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m harness.load.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--tokens-per-s", type=float, default=25_000.0, help="of all streams")
    parser.add_argument("--seconds", type=float, default=8.0, help="with all streams open")
    parser.add_argument("--workers", type=int, default=1, help="client processes")
    parser.add_argument("--together", action="store_true", help="all streams advance at once")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    setting = Setting(**vars(_parser().parse_args(arguments)))
    print(f"about {setting.seconds + 2 * RAMP_S + TTFT_S:.0f} s …", file=sys.stderr)
    try:
        result = measure(setting)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    table = Table(title=f"{os.cpu_count()} cores, load average {load:.1f}", show_header=False)
    for row in result.items():
        table.add_row(*row)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
