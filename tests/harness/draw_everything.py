"""Writes every table, every figure and the report of some cells to a directory.

The shipped cells, and of the made-up campaign the smallest model's: each figure has something to
show. A second argument, a number, shuffles the cells. Whatever is drawn needs no engine: here there
is none.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

for name in ("torch", "sglang", "triton", "transformers", "granikv"):
    sys.modules[name] = None  # type: ignore[assignment]

from harness import figures, paper, report, store, tables  # noqa: E402 - where nothing else is
from harness.analysis.cells import CellLike  # noqa: E402
from tests.harness.campaign import campaign  # noqa: E402
from tests.harness.figures.test_layout import cell, state  # noqa: E402


def main(out: Path, seed: int) -> None:
    """Everything that `make figures` writes."""
    here: list[CellLike] = [cell(layout=state())]
    here += [one for one in campaign() if one.config["model"]["name"] == "llama31_8b"]
    shipped: list[CellLike] = list(store.load_shipped(paper.RESULTS))
    for cells in (here, shipped):
        random.Random(seed).shuffle(cells)
    tables.render_all(here, shipped, out / "tables")
    drawn = figures.encode_all(here, shipped)
    figures.write_all(drawn, out / "figures")
    report.render(here, shipped, out, drawn)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
