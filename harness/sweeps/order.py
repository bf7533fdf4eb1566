"""In which order the cells of an experiment are measured.

`by_server`: all cells of one server, then the next: the fewest starts. `rotated`: every server has
its turn in each repetition, and the order of turns moves on by one from repetition to repetition,
so that the machine's drift hits all systems alike. The server that ends a repetition begins the
next, which saves its start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from harness.errors import HarnessError
from harness.sweeps.entry import Entry


def by_server(entries: Sequence[Entry]) -> list[Entry]:
    """Servers in the order of their first cells."""
    place = {server: i for i, server in enumerate(dict.fromkeys(e.server for e in entries))}
    return sorted(entries, key=lambda entry: place[entry.server])


def rotated(entries: Sequence[Entry]) -> list[Entry]:
    """Repetition by repetition; turns as in a Latin square where there are as many as servers."""
    servers = list(dict.fromkeys(entry.server for entry in entries))
    ordered: list[Entry] = []
    for turn, repetition in enumerate(sorted({entry.repetition for entry in entries})):
        start = -turn % len(servers)
        turns = servers[start:] + servers[:start]
        of_turn = [entry for entry in entries if entry.repetition == repetition]
        ordered += sorted(of_turn, key=lambda entry: turns.index(entry.server))
    return ordered


ORDERS: dict[str, Callable[[Sequence[Entry]], list[Entry]]] = {
    "by_server": by_server,
    "rotated": rotated,
}


def arrange(entries: Sequence[Entry], order: str, apart: bool = False) -> list[Entry]:
    """The cells in this order. Raises HarnessError.

    apart: one experiment after another, what matters most first, though more servers are started.
    """
    if order not in ORDERS:
        raise HarnessError(f"order must be {' or '.join(ORDERS)}, not {order!r}")
    if not apart:
        return ORDERS[order](entries)
    blocks = itertools.groupby(entries, key=lambda entry: entry.block)
    return [entry for _, block in blocks for entry in ORDERS[order](list(block))]
