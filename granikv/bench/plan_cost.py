"""What planning adds to a decode step on the host: `python -m granikv.bench.plan_cost`.

Rows hang below HOT prefixes as in a real tree. Five cases: nothing changed since the last step; one
row was replaced by another of its class; by another of its class whose own prompt became a slab, as
eager admission makes them; by one of another class, so that the classes' sizes change too; and one
was replaced after the end of a prefix was placed elsewhere. Each is timed as the plan alone, and
with the metadata that the kernels read of it (the work list, as for 32/8 heads on an H200). Host
time only; no device is touched. JSON on standard output, in µs.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from granikv.attention.kernels import worklist
from granikv.plan import DecodePlan
from granikv.planner import Planner
from granikv.prefix_index import PrefixIndex


class _Node:
    """A tree node as the planner reads it."""

    serial = 0

    def __init__(self, parent: _Node | None, tokens: int) -> None:
        _Node.serial += 1
        self.id = _Node.serial
        self.parent = parent
        self.key = range(tokens)
        self.lock_ref = 1
        self.hot_base: int | None = None
        self.refusals = 0
        self.pins = 0


class Batch:
    """A decode batch whose rows are spread over prefix classes.

    Args:
        rows: batch size.
        classes: distinct prefixes.
        chunks: HOT nodes that each prefix consists of, as chunked prefill leaves them.
    """

    def __init__(self, rows: int, classes: int, chunks: int) -> None:
        self.index = PrefixIndex()
        self.planner = Planner(self.index)
        root = _Node(None, 0)
        self.prefixes = [self._prefix(root, chunks, 1 + c * chunks * 256) for c in range(classes)]
        self.nodes = [_Node(self.prefixes[i % classes], 50) for i in range(rows)]
        self.step = 0
        self._free = 256 * (classes * chunks + 1)

    def _prefix(self, parent: _Node, chunks: int, base: int) -> _Node:
        for chunk in range(chunks):
            parent = _Node(parent, 128)
            parent.lock_ref = 2  # two readers or more, however many they are
            self.index.place(parent, base + 128 * chunk)
        return parent

    def unchanged(self) -> DecodePlan:
        """The same rows as in the last step."""
        return self.planner.plan(list(self.nodes))

    def one_row_replaced(self) -> DecodePlan:
        """One request left and another of its class took its row."""
        at = self.step % len(self.nodes)
        return self._replaced(at, at)

    def own_slab_placed(self) -> DecodePlan:
        """One request left, and another of its class took its row and got a slab of its own."""
        at = self.step % len(self.nodes)
        self.index.drop(self.nodes[at])
        self._replace(at, at)
        self._free += 50
        self.index.place(self.nodes[at], self._free)
        return self.planner.plan(self.nodes)

    def class_changed(self) -> DecodePlan:
        """One request left and one of another class took its row."""
        at = self.step % len(self.nodes)
        return self._replaced(at, at + 1 + self.step // len(self.nodes))

    def slabs_changed(self) -> DecodePlan:
        """The last node of a prefix was placed elsewhere, and a row was replaced."""
        node = self.prefixes[self.step % len(self.prefixes)]
        self.index.drop(node)
        self._free += 129  # never right behind another
        self.index.place(node, self._free)
        return self.one_row_replaced()

    def _replaced(self, row: int, prefix: int) -> DecodePlan:
        self._replace(row, prefix)
        return self.planner.plan(self.nodes)

    def _replace(self, row: int, prefix: int) -> None:
        self.nodes[row] = _Node(self.prefixes[prefix % len(self.prefixes)], 50)
        self.step += 1


class Metadata:
    """The work list of the steps, written anew where the plan is another than the last."""

    tiling = worklist.Tiling(8, 4, 128, 64, 132, 0)

    def __init__(self, rows: int) -> None:
        self.capacity = worklist.Capacity.for_rows(rows, self.tiling)
        length = worklist.buffer_length(self.capacity, self.tiling)
        buffer = np.zeros(length, dtype=np.int32)
        self.arrays = worklist.split(buffer, self.capacity, self.tiling)
        self.current: DecodePlan | None = None

    def follow(self, plan: DecodePlan) -> None:
        """Write what the kernels read of `plan`."""
        if plan is not self.current:
            worklist.fill(plan, self.tiling, self.capacity, self.arrays)
            self.current = plan


def measure(act: Callable[[], object], steps: int) -> dict[str, float]:
    """Host time of ``act`` in µs over ``steps`` calls: median, 99th percentile and minimum."""
    times = []
    for _ in range(steps):
        start = time.perf_counter_ns()
        act()
        times.append((time.perf_counter_ns() - start) / 1000)
    times.sort()
    return {
        "min_us": round(times[0], 2),
        "p50_us": round(times[steps // 2], 2),
        "p99_us": round(times[min(steps - 1, steps * 99 // 100)], 2),
    }


def _both(change: Callable[[], DecodePlan], metadata: Metadata) -> Callable[[], None]:
    return lambda: metadata.follow(change())


def run(rows: int, steps: int) -> list[dict[str, Any]]:
    """One record for each shape of the tree and kind of change."""
    records: list[dict[str, Any]] = []
    for classes, chunks in ((1, 1), (4, 1), (16, 1), (64, 1), (1, 64)):
        batch, metadata = Batch(rows, classes, chunks), Metadata(rows)
        shape = {"rows": rows, "classes": classes, "chunks": chunks}
        changes = [batch.unchanged, batch.one_row_replaced, batch.own_slab_placed]
        if classes > 1:
            changes.append(batch.class_changed)
        changes.append(batch.slabs_changed)
        for change in changes:
            change()
            records.append({**shape, "case": change.__name__, **measure(change, steps)})
            timed = measure(_both(change, metadata), steps)
            records.append({**shape, "case": f"{change.__name__}, with metadata", **timed})
    return records


def main(argv: Sequence[str] | None = None) -> int:
    """Print the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256, help="decode batch size")
    parser.add_argument("--steps", type=int, default=2000, help="steps a case")
    options = parser.parse_args(argv)
    if options.rows < 1 or options.steps < 1:
        print("plan_cost: --rows and --steps must be at least 1", file=sys.stderr)
        return 2
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    json.dump(
        {"bench": "plan_cost", **machine, "records": run(options.rows, options.steps)}, sys.stdout
    )
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
