"""A cell of a sweep before its turn: small, so that hundreds of them can be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import config as configuration
from harness import hardware as machine
from harness import jobs, store
from harness.errors import RefusalError
from harness.servers import gpus


@dataclass(frozen=True)
class Entry:
    """One cell to measure.

    overrides: its Hydra overrides. values: its resolved configuration. server: the hash of the
    server that it needs. block: number of the experiment it belongs to, from 0. stored: whether a
    valid cell is there already.
    """

    id: str
    title: str
    overrides: tuple[str, ...]
    values: Mapping[str, Any]
    server: str
    root: Path
    block: int
    stored: bool

    @property
    def repetition(self) -> int:
        """Which repetition, from 0."""
        return int(self.values["repetition"])

    @property
    def gpus(self) -> int:
        """GPUs that its server takes."""
        return 0 if self.values["hardware"]["device"] == machine.CPU else int(self.tp)

    @property
    def tp(self) -> int:
        """The tensor-parallel degree."""
        return int(self.values["model"]["tp"])


@dataclass(frozen=True)
class Schedule:
    """entries: what this machine can measure, each cell once. refused: why not, by title."""

    entries: tuple[Entry, ...]
    refused: Mapping[str, str]


def schedule(
    experiments: Iterable[Sequence[str]], seen: Callable[[int, int], None] | None = None
) -> Schedule:
    """The cells of each line of overrides (`experiment=... hardware=...`), in the order given.

    A cell that several experiments ask for belongs to the first. seen: told how many of how many
    cells are planned. Raises HarnessError for a configuration that cannot be.
    """
    asked = [(b, cell) for b, line in enumerate(experiments) for cell in configuration.sweep(line)]
    configs = configuration.compose_cells(cell for _, cell in asked)
    found: dict[int, Entry] = {}
    refused: dict[str, str] = {}
    # By workload, so that each is made once.
    order = sorted(range(len(asked)), key=lambda i: repr(configs[i]["workload"]))
    for done, place in enumerate(order):
        block, overrides = asked[place]
        try:
            found[place] = _entry(block, overrides, configs[place])
        except RefusalError as error:
            refused.setdefault(_name(configs[place]), str(error))
        if seen is not None:
            seen(done + 1, len(order))
    once: dict[str, Entry] = {}
    for place in sorted(found):
        once.setdefault(found[place].id, found[place])
    return Schedule(tuple(once.values()), refused)


def _entry(block: int, overrides: Sequence[str], values: Mapping[str, Any]) -> Entry:
    job = jobs.plan(values)
    gpus.refuse_shortage(values)
    stored = not values["rerun"] and store.find_valid(job.root, job.id) is not None
    server = job.server.hash
    return Entry(job.id, job.title, tuple(overrides), values, server, job.root, block, stored)


def _name(values: Mapping[str, Any]) -> str:
    model = values["model"]
    return f"{values['system']['name']}, {model['title']} at TP = {model['tp']}"
