"""`python -m harness ship RESULTS... --to results/h200`: cells small enough for a repository.

The time of every single token is nine tenths of a cell and is left out, and so are the hashes of
the outputs. What needs them (`NEEDS_TOKENS`) stands in cell.json as it was measured; every other
metric follows from the shipped requests, which `recomputed` shows. The radix tree stays as it was
at the time that is drawn: all slabs and all shared nodes, and a few of the many requests' own.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness import metrics, store
from harness.analysis.cells import server_state
from harness.errors import HarnessError
from harness.store import Cell

NEEDS_TOKENS = frozenset({"itl_p50_ms", "itl_p90_ms", "itl_p99_ms", "output_tok_s_steady"})
"""Metrics that the first and the last token of each request do not give."""
OWN_BRANCHES = 32
"""Branches without a slab and without a fork that are kept, each of one request as a rule;
`tree_nodes` says how many nodes there were."""
SNAPSHOT = ("live_requests", "pools", "tree", "tree_nodes")
"""What is kept of the state while requests were in flight: its configuration is the one after the
load, and its counters go beyond what was measured."""
WRITTEN = ("schema_version", "requests_sha256", "frames_sha256")
"""What `store.write` adds to a record of its own."""


def ship(roots: Sequence[Path], target: Path) -> Iterator[Cell]:
    """Put every cell of the results directories into `target`, and give those that it lacked.

    A valid cell that is there stays; an invalid one gives way to a valid one. Raises HarnessError.
    """
    for root in roots:
        for cell in store.load_cells(root):
            there = store.read(store.runs(target) / cell.id)
            if there is None or (cell.valid and not there.valid):
                yield _put(cell, root, target, there)


def _put(cell: Cell, root: Path, target: Path, there: Cell | None) -> Cell:
    log = cell.requests
    tables = {name: cell.frame(name) for name in cell.record.get("frames_sha256", {})}
    known = {name: table for name, table in tables.items() if table is not None}
    record = {name: value for name, value in cell.record.items() if name not in WRITTEN}
    if kept := cell.record["server"].get("log"):
        _copy_log(store.runs(root) / kept, store.runs(target) / kept)
    if there is not None:
        shutil.rmtree(there.directory)
    texts = {path.name: path.read_text("utf-8") for path in cell.directory.glob("*.txt")}
    shipped = {**record, "server": _pruned(cell), "token_times": "left out"}
    return store.write(target, shipped, without_token_times(log), texts, known)


def _copy_log(source: Path, target: Path) -> None:
    """The engine's own rate of decoding can be checked in it alone, so no cell goes without."""
    if not source.is_file():
        raise HarnessError(
            f"{source} is missing, the server's log that a cell names: copy it there"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _pruned(cell: Cell) -> dict[str, Any]:
    """What is told of the server, with the one tree that is drawn."""
    server, shown = dict(cell.record["server"]), server_state(cell)
    if cell.layout:
        server["layout"] = {name: cell.layout[name] for name in SNAPSHOT if name in cell.layout}
    for name, state in (("state", cell.state), ("layout", cell.layout)):
        if state and "tree" in state:
            rest = {key: value for key, value in server[name].items() if key != "tree"}
            tree = {"tree": _few_branches(state["tree"])} if state is shown else {}
            server[name] = rest | tree
    return server


def _few_branches(tree: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Every slab and fork with what lies above it, and the first of the other branches."""
    parents = {node["id"]: node["parent"] for node in tree}
    kept: set[Any] = {None}
    for node in tree:
        above = node["id"] if node["base"] is not None or node["children"] > 1 else None
        while above not in kept:
            kept.add(above)
            above = parents[above]
    others = 0
    branches = set(kept)
    for node in tree:  # from the root down
        if node["id"] in kept or node["parent"] not in branches:
            continue
        others += node["parent"] in kept
        if node["parent"] not in kept or others <= OWN_BRANCHES:
            branches.add(node["id"])
    return [node for node in tree if node["id"] in branches]


def without_token_times(log: pd.DataFrame) -> pd.DataFrame:
    """A log that keeps the first chunk of each reply alone, and no hash of the output."""
    first = log["chunk_tokens"].map(lambda counts: list(counts[:1]))
    return log.assign(chunk_tokens=first).drop(columns=list(store.LEFT_OUT))


def recomputed(cell: Cell) -> dict[str, tuple[float, float]]:
    """Metrics that its requests give otherwise than it says: (stored, from the requests) by name.

    Raises HarnessError if the requests are another cell's.
    """
    lacks = cell.record.get("token_times") is not None
    again = metrics.compute(cell.requests, cell.config.get("slo"))
    return {
        name: (stored, value)
        for name, value in again.items()
        if not (lacks and name in NEEDS_TOKENS)
        and not _same(stored := cell.metrics.get(name, float("nan")), value)
    }


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser(
        "python -m harness ship",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("roots", type=Path, nargs="+", metavar="RESULTS")
    parser.add_argument("--to", type=Path, required=True, metavar="RESULTS")
    asked = parser.parse_args(arguments)
    try:
        cells = list(ship(asked.roots, asked.to))
    except (HarnessError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    invalid = sum(not cell.valid for cell in cells)
    print(f"{len(cells):,} cells shipped to {asked.to}, {invalid:,} of them invalid")
    return 0
