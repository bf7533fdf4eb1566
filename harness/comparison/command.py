"""`python -m harness compare A B`: what changed from A to B; non-zero when something got worse.

    python -m harness compare results.before results        two results folders
    python -m harness compare results/runs/ID1 results/runs/ID2
    python -m harness compare bench_before.jsonl bench.jsonl   of sglang.benchmark.serving or vllm

Exit status: 0 without a regression, 1 with one, 2 when something cannot be read or nothing in A and
B is the same experiment.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.comparison import show
from harness.comparison.change import TOLERANCE, Change, Kind, changes
from harness.comparison.pairs import Match, match
from harness.comparison.record import read
from harness.errors import HarnessError
from harness.files import write_text

NARROWEST = 140


def compare(a: Path, b: Path, tolerance: float = TOLERANCE) -> tuple[Match, list[Change]]:
    """Read both and compare what they have in common. Raises HarnessError when that is nothing."""
    matched = match(read(a), read(b))
    if not matched.pairs:
        raise HarnessError(
            f"{a} and {b} have no experiment in common: A has {_some(matched.only_a)}; "
            f"B has {_some(matched.only_b)}"
        )
    return matched, [one for pair in matched.pairs for one in changes(pair, tolerance)]


def _some(titles: Sequence[str]) -> str:
    more = f" and {len(titles) - 2} more" if len(titles) > 2 else ""
    return " | ".join(titles[:2]) + more


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m harness compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", type=Path, help="before: a results folder, a cell or a JSON file")
    parser.add_argument("b", type=Path, help="after")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        help="relative change that counts as none (default: %(default)s)",
    )
    parser.add_argument("--all", action="store_true", help="show what stayed the same, too")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every metric to FILE")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    asked = _arguments(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=NARROWEST)
    try:
        matched, found = compare(asked.a, asked.b, asked.tolerance)
        if asked.csv is not None:
            write_text(asked.csv, show.frame(found).to_csv(index=False))
    except (HarnessError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    show.show(matched, found, console, asked.all)
    return 1 if any(one.kind is Kind.REGRESSION for one in found) else 0
