"""One run of one system, wherever it was measured, and all of a path's runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from harness import imports, store
from harness.analysis.cells import Standing, standing, variant
from harness.errors import HarnessError
from harness.store import Cell

HARNESS = "harness"
"""`Record.source` of our own cells; another tool's is its name."""


@dataclass(frozen=True)
class Record:
    """One run.

    source: the tool that measured it. id: of the cell, or file and line. workload and load: in a
    few words. variant: what repetitions have in common, to the last setting. metrics: as in
    `harness.metrics`, NaN where not measured. settings: everything chosen, flat, by dotted name.
    """

    source: str
    id: str
    system: str
    model: str
    hardware: str
    workload: str
    load: str
    repetition: int
    valid: bool
    reasons: Sequence[str]
    variant: str
    metrics: Mapping[str, float]
    settings: Mapping[str, Any] = field(default_factory=dict)
    functional: bool = False
    started: str = ""

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """What people call the same experiment: hardware, model, workload, load and system."""
        return self.hardware, self.model, self.workload, self.load, self.system


def read(path: Path) -> list[Record]:
    """The runs behind a path: a results folder, its runs/, one cell, or another tool's file.

    Raises HarnessError where there is none, or for a file that cannot be read.
    """
    if path.is_file() and path.name != "cell.json":
        return [_imported(run) for run in imports.read(path)]
    directory = path.parent if path.name == "cell.json" else path
    cells = _cells(directory)
    if not cells:
        raise HarnessError(
            f"{path} holds no results: give a results folder (with runs/), the folder of one cell, "
            "or a JSON file of another benchmark"
        )
    return [_of_cell(cell) for cell in cells]


def _cells(directory: Path) -> list[Cell]:
    if (directory / "cell.json").is_file():
        cell = store.read(directory)
        if cell is None:
            raise HarnessError(f"{directory} is a cell of another schema: measure it again")
        return [cell]
    root = directory.parent if directory.name == store.runs(Path()).name else directory
    return store.load_cells(root)


def _of_cell(cell: Cell) -> Record:
    at = standing(cell)
    # A kernel's cell has no load.
    load = cell.config.get("load") or {}
    parts = [
        str(load.get("kind") or ""),
        f"B={at.b}" if at.b else "",
        f"{at.rate:g}/s" if at.rate else "",
    ]
    return Record(
        source=HARNESS,
        id=cell.id,
        system=at.system,
        model=at.model,
        hardware=at.hardware,
        workload=_workload(cell, at),
        load=" ".join(part for part in parts if part),
        repetition=at.repetition,
        valid=cell.valid,
        reasons=cell.reasons,
        variant="".join((at.hardware, variant(cell), _engine(cell))),
        metrics=cell.metrics,
        settings=_settings(cell),
        functional=at.functional,
        started=str(cell.record.get("started", "")),
    )


def _workload(cell: Cell, at: Standing) -> str:
    """Name and prefix lengths; of a kernel also its layout and who reads it."""
    name = str(cell.config["workload"].get("name") or at.kind)
    lengths = "/".join(f"{length:,}" for length in at.prefix_lengths[:8])
    parts = (name, at.layout, at.read if at.layout else "", lengths)
    return " ".join(part for part in parts if part)


def _engine(cell: Cell) -> str:
    return json.dumps(cell.config.get("engine"), sort_keys=True, default=str)


def _settings(cell: Cell) -> dict[str, Any]:
    """The configuration, the workload's tokens and what it ran on, flat."""
    config = {key: value for key, value in cell.config.items() if key != "repetition"}
    environment = cell.environment
    gpus = [str(gpu.get("name")) for gpu in environment.get("gpus") or ()]
    ran_on = {
        "packages": environment.get("packages"),
        "revision": environment.get("revision"),
        "gpus": gpus,
        "driver": next((gpu.get("driver") for gpu in environment.get("gpus") or ()), None),
        "workload.sha256": (cell.record.get("workload") or {}).get("sha256"),
    }
    return dict(flat(config)) | dict(flat(ran_on))


def flat(value: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Nested mappings as (dotted name, value)."""
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from flat(inner, f"{above}{name}.")
        else:
            yield f"{above}{name}", inner


def _imported(run: imports.Run) -> Record:
    return Record(
        source=run.source,
        id=run.id,
        system=run.system,
        model=run.model,
        hardware="",
        workload=run.workload,
        load=run.load,
        repetition=run.repetition,
        valid=not run.reasons,
        reasons=run.reasons,
        variant="|".join((run.source, run.system, run.model, run.workload, run.load)),
        metrics=run.metrics,
        settings=run.settings,
    )


LABELS = ("source", "id", "system", "model", "hardware", "workload", "load", "repetition", "valid")


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row a run: LABELS, `reasons` (joined), `started`, then every metric that some run has."""
    names = list(dict.fromkeys(name for record in records for name in record.metrics))
    rows = [
        {name: getattr(record, name) for name in LABELS}
        | {"reasons": "; ".join(record.reasons), "started": record.started}
        | {name: record.metrics.get(name, float("nan")) for name in names}
        for record in records
    ]
    return pd.DataFrame(rows, columns=[*LABELS, "reasons", "started", *names])
