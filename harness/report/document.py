"""The parts of REPRODUCE.md that are computed: `python -m harness.report.document` rewrites them.

Each stands between a line `<!-- computed: NAME -->` and the next `<!-- end -->`: the claims with
the verdicts of the shipped cells, and what in the paper does not follow from its own tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

from harness import paper, store
from harness.analysis import output
from harness.analysis.cells import CellLike
from harness.analysis.claims.claim import FILE as CLAIMS
from harness.analysis.claims.claim import SWEEP, Claim, Result, Verdict, load
from harness.analysis.claims.evaluate import NO_HARDWARE, evaluate
from harness.errors import HarnessError
from harness.report import notes
from harness.tables.escape import markdown
from harness.verify import expected

FILE = paper.ROOT / "REPRODUCE.md"
_PART = re.compile(r"(<!-- computed: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(text: str, shipped: Iterable[CellLike]) -> str:
    """The document with every computed part computed anew. Raises HarnessError for an unknown one.

    shipped: the cells that are kept with the project.
    """
    cells = list(shipped)
    parts: dict[str, Callable[[], str]] = {
        "claims": lambda: claims_part(load(CLAIMS), cells),
        "notes": notes_part,
    }

    def compute(match: re.Match[str]) -> str:
        if match[2] not in parts:
            raise HarnessError(f"{FILE.name} asks for the unknown part {match[2]!r}")
        return f"{match[1]}{parts[match[2]]()}{match[3]}"

    return _PART.sub(compute, text)


def claims_part(claims: Sequence[Claim], shipped: Sequence[CellLike]) -> str:
    """How the claims stand, then a table of them all."""
    verdicts = evaluate(claims, [], shipped, None)
    count = {result: sum(_stands(of) is result for of in _by_claim(verdicts)) for result in Result}
    spoken = ", ".join(f"{number} {result.value}" for result, number in count.items())
    lines = [
        f"By the shipped cells: {spoken}, of {len(claims)} claims.",
        "",
        "| claim | expected | shipped verdict | measured by | minutes, GPU |",
        "|---|---|---|---|---|",
        *(_line(of) for of in _by_claim(verdicts)),
    ]
    return "\n".join(lines) + "\n"


def _by_claim(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    return [list(of) for _, of in groupby(verdicts, key=lambda one: one.claim.id)]


def _stands(verdicts: Sequence[Verdict]) -> Result:
    """Of several hardwares: one that fails counts, then one that passes."""
    results = {one.result for one in verdicts}
    return next(r for r in (Result.FAIL, Result.PASS, Result.INCONCLUSIVE) if r in results)


def _line(verdicts: Sequence[Verdict]) -> str:
    claim = verdicts[0].claim
    where = "" if claim.source == "this project" else f" ({markdown(claim.source)})"
    command = claim.command.removeprefix(SWEEP)
    cells = [
        f"{markdown(claim.sentence)}{where}",
        markdown(expected(claim)),
        "; ".join(_spoken(one) for one in verdicts),
        f"`{command}`",
        f"{claim.minutes:g}, {markdown(claim.gpu)}",
    ]
    return f"| {' | '.join(cells)} |"


def _spoken(one: Verdict) -> str:
    if one.result is Result.INCONCLUSIVE and not one.observed:
        return "not measured" if one.hardware == NO_HARDWARE else markdown(one.reason)
    words = f"**{one.result.value}**" if one.result is Result.FAIL else one.result.value
    return f"{words} {markdown(one.observed)}".strip()


def notes_part() -> str:
    """One entry a contradiction: where, what is printed, what the tables give."""
    lines = [
        f"- {markdown(row.where)}. *Printed:* {markdown(row.printed)} *Tables:* "
        f"{markdown(row.found)}"
        for row in notes.rows()
    ]
    return "\n".join(lines) + "\n"


def main(path: Path = FILE) -> int:
    """Rewrite the file; its exit status."""
    try:
        text = rewritten(path.read_text("utf-8"), store.load_shipped(paper.RESULTS))
        output.write(path, text.encode("utf-8"))
    except (HarnessError, OSError) as error:
        print(f"document: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
