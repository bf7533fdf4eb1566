"""`python -m harness.verify`: PASS, FAIL or INCONCLUSIVE for each claim and hardware.

Reads the cells of a results directory and the shipped ones below it; measures nothing. Exit status:
0 unless a claim fails (1) or something cannot be read (2).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import paper, store
from harness.analysis.claims import claim as claim_parts
from harness.analysis.claims.claim import FILE, Claim, Result, Verdict
from harness.analysis.claims.evaluate import evaluate
from harness.errors import HarnessError

COLOURS = {Result.PASS: "green", Result.FAIL: "bold red", Result.INCONCLUSIVE: "yellow"}
NARROWEST = 120


def verify(claims: Path, results: Path, report: Path | None) -> list[Verdict]:
    """Judge a file of claims by the cells in `results`, shipped ones too, and a test report.

    Raises HarnessError when a file cannot be read.
    """
    here, shipped = store.load_cells(results), store.load_shipped(results)
    return evaluate(claim_parts.load(claims), here, shipped, report)


def expected(claim: Claim) -> str:
    """What the claim promises, as people read it."""
    if claim.expected is None or claim.tolerance is None:
        return ""
    spread = f" ± {claim.tolerance:.0%}" if claim.tolerance else ""
    if claim.judge == "ratio":
        return f"{claim.expected:.2f}×{spread}"
    bound = str(claim.options.get("bound", "at_least")).replace("_", " ")
    words = "" if bound == "within" else f"{bound} "
    return f"{words}{claim.expected:,g}{claim.options.get('unit', '')}{spread}"


def show(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print the verdicts as a table and count them."""
    table = Table(box=SIMPLE)
    for heading in ("Verdict", "Claim", "Hardware", "Expected", "Observed", "Reason"):
        # An id is looked for in the output: it stays in one piece.
        table.add_column(heading, overflow="fold", no_wrap=heading == "Claim")
    for one in verdicts:
        table.add_row(
            Text(one.result.value, style=COLOURS[one.result]),
            Text(one.claim.id),
            Text(one.hardware),
            expected(one.claim),
            Text(one.observed),
            Text(one.reason),
        )
    console.print(table)
    for line in open_commands(verdicts):
        console.print(Text(line))
    count = Counter(one.result for one in verdicts)
    console.print(", ".join(f"{count[result]:,} {result.value}" for result in Result))


def open_commands(verdicts: Sequence[Verdict]) -> list[str]:
    """What would decide the claims that no hardware has decided, one line a command.

    On more GPUs a command measures more, so it takes another time.
    """
    decided = {one.claim.id for one in verdicts if one.result is not Result.INCONCLUSIVE}
    waiting: dict[str, list[Claim]] = {}
    for claim in {one.claim.id: one.claim for one in verdicts}.values():
        if claim.id not in decided:
            waiting.setdefault(claim.command, []).append(claim)
    return [
        f"{len(claims):,} open: {command} ({_needs(claims)})" for command, claims in waiting.items()
    ]


def _needs(claims: Sequence[Claim]) -> str:
    """What each of the claims on one command needs, and how long it takes there."""
    minutes = {claim.gpu: claim.minutes for claim in claims}
    return "; ".join(f"{gpu}: about {time:,.0f} min" for gpu, time in minutes.items())


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness.verify", description=__doc__)
    parser.add_argument("--claims", type=Path, default=FILE)
    parser.add_argument("--results", type=Path, default=paper.ROOT / "results")
    parser.add_argument(
        "--tests", type=Path, help="JUnit report of the tests (default: RESULTS/tests.xml)"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the verdicts; returns the exit status."""
    asked = _arguments(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=NARROWEST)
    try:
        verdicts = verify(asked.claims, asked.results, asked.tests or asked.results / "tests.xml")
    except HarnessError as error:
        print(f"verify: {error}", file=sys.stderr)
        return 2
    show(verdicts, console)
    return 1 if any(one.result is Result.FAIL for one in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
