"""Nsight Compute around a program: its command line, and the counters in its report.

ncu replays each kernel once for every pass of counters. By default it flushes the caches before
each pass and locks the clocks to their base, which is neither what a server sees nor what a timing
measures; both are therefore chosen in the configuration and stored with the numbers.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.counters import chips
from harness.counters.trace import NoKernelError, ReportError

TOOL = "ncu"
QUERY_TIMEOUT_S = 120.0
CLOCKS, CACHES = ("none", "base"), ("none", "all")
NAMES = ("Kernel Name", "ID")
ABSENT = frozenset({"", "n/a", "nan", "inf", "-nan", "(!) n/a", "no data"})


class Launch(NamedTuple):
    """One profiled kernel launch. values: by the metric's full name, as the report has them."""

    kernel: str
    values: Mapping[str, object]


@dataclass(frozen=True)
class Options:
    """What to count and how.

    kernel: regular expression of kernel names. skip, launches: of those, how many to leave out
    first and how many to count. clocks: `none` leaves them alone, `base` locks them. cache: `none`
    leaves the caches warm, `all` flushes them before each pass.
    """

    kernel: str
    skip: int
    launches: int
    clocks: str
    cache: str

    def __post_init__(self) -> None:
        if self.clocks not in CLOCKS or self.cache not in CACHES:
            raise ReportError("profile.clocks is none or base, profile.cache is none or all")


def is_there() -> bool:
    """Whether Nsight Compute can be run here."""
    return shutil.which(TOOL) is not None


def command(
    program: Sequence[str], report: Path, metrics: Sequence[str], options: Options
) -> list[str]:
    """The program's command line under ncu; children count too, graphs kernel by kernel."""
    return [
        TOOL,
        "--target-processes=all",
        "--graph-profiling=node",
        f"--clock-control={options.clocks}",
        f"--cache-control={options.cache}",
        f"--kernel-name=regex:{options.kernel}",
        f"--launch-skip={options.skip}",
        f"--launch-count={options.launches}",
        f"--metrics={','.join(metrics)}",
        "--force-overwrite",
        f"--export={report}",
        *program,
    ]


def available(chip: str) -> frozenset[str]:
    """The metrics that ncu knows on a chip. Raises ReportError."""
    arguments = [TOOL, "--query-metrics", f"--chips={chip}"]
    try:
        reply = subprocess.run(
            arguments, check=True, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ReportError(f"ncu --query-metrics failed: {type(error).__name__}") from None
    return chips.listed(reply.stdout)


def read(report: Path) -> list[Launch]:
    """Every launch of a report, through the package ncu-report or, without it, through ncu.

    Raises NoKernelError where there is no report, ReportError where it is of no use.
    """
    if not report.is_file():
        raise NoKernelError("ncu wrote no report: no kernel fits, or the driver forbids counting")
    try:
        import ncu_report
    except ImportError:
        return parse_csv(_raw_page(report))
    return launches_of(ncu_report.load_report(report))


def launches_of(context: Any) -> list[Launch]:
    """The launches in a report that the package ncu-report has opened."""
    return [
        Launch(action.name(), {name: _value(action, name) for name in action.metric_names()})
        for of_range in context
        for action in of_range
    ]


def _value(action: Any, name: str) -> object:
    metric = action.metric_by_name(name)
    return metric.value() if metric is not None and metric.has_value() else None


def _raw_page(report: Path) -> str:
    arguments = [TOOL, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    try:
        reply = subprocess.run(
            arguments, check=True, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ReportError(f"ncu --import failed: {type(error).__name__}") from None
    return reply.stdout


def parse_csv(text: str) -> list[Launch]:
    """`ncu --csv --page raw --print-units base`: a row of names, one of units, one a launch."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("==")]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if len(rows) < 3 or not set(NAMES) <= set(rows[0]):
        raise ReportError("ncu printed no raw page: no kernel was profiled")
    header = rows[0]
    named = [dict(zip(header, row, strict=False)) for row in rows[2:]]
    return [Launch(row["Kernel Name"], row) for row in named]


def number(launch: Launch, metric: str) -> float:
    """One counter of a launch in ncu's base unit. Raises ReportError where it is absent or n/a."""
    value = launch.values.get(metric)
    text = "" if value is None else str(value).strip().replace(",", "")
    if text.lower() in ABSENT:
        what = "n/a" if metric in launch.values else "missing"
        raise ReportError(f"{metric} is {what} for the kernel {launch.kernel[:60]}")
    try:
        found = float(text)
    except ValueError:
        raise ReportError(f"{metric} is no number: {text[:30]!r}") from None
    if not math.isfinite(found):
        raise ReportError(f"{metric} is no number: {text[:30]!r}")
    return found


def quantities(launches: Sequence[Launch], names: Mapping[str, str]) -> dict[str, float]:
    """The metrics of a kernel cell, each the mean over the launches.

    names: a chip's metric for each quantity (`chips.resolve`). Raises ReportError for any that a
    launch does not have.
    """
    if not launches:
        raise ReportError("the report holds no launch")
    return {
        quantity: chips.UNITS.get(quantity, 1.0)
        * math.fsum(number(launch, metric) for launch in launches)
        / len(launches)
        for quantity, metric in names.items()
    }
