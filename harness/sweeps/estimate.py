"""How long a sweep will take: from cells like it that were measured, else from its configuration.

It decides nothing but whether a cell is started before a deadline, and it is always called an
estimate.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import hardware as machine
from harness.errors import HarnessError
from harness.models.resolve import SHAPES
from harness.store import Cell
from harness.sweeps.entry import Entry

START_S = {machine.CPU: 15.0, "cuda": 60.0}
"""A server's start where none was measured."""
BENCH_OVERHEAD_S = 30.0
CPU_STEP_S, CPU_CELL_S = 0.012, 2.0
GPU_STEP_S, GPU_CELL_S = 0.004, 4.0
BANDWIDTH = 2e12
"""Bytes/s of a GPU whose profile has none."""
PREFILL_TOKENS_S = 15_000.0
TURN_TOKENS = 150
KV_BYTES = 2 * 2
"""Keys and values, two bytes each."""


def _kinds(values: Mapping[str, Any]) -> tuple[str, str, str]:
    """What cells of about the same duration have in common: all, all but their system, and all but
    their model, whose size then makes the difference.
    """
    workload = {k: v for k, v in values["workload"].items() if k not in ("seed", "hot_fraction")}
    load = {k: v for k, v in values.get("load", {}).items() if k != "seed"}
    model = [values["model"]["name"], values["model"]["tp"]]
    probe = (values.get("profile") or {}).get("kind", "none")
    common = [values["hardware"]["name"], workload, load, values.get("kv_budget"), probe]
    parts = ([common, model, values["system"]], [common, model], [common, values["system"], "any"])
    whole, systems, models = (json.dumps(part, sort_keys=True, default=str) for part in parts)
    return whole, systems, models


@dataclass(frozen=True)
class Forecast:
    """cells: to measure. stored: valid already. servers: starts. measured: cells whose time rests
    on measured ones.
    """

    cells: int
    stored: int
    servers: int
    seconds: float
    measured: int

    def __str__(self) -> str:
        text = f"{self.cells} cells to measure, {self.stored} measured already"
        if not self.cells:
            return text
        basis = f"{self.measured} cells from measured ones, the rest from the configuration"
        minutes = f"about {max(1, math.ceil(self.seconds / 60))} min"
        return f"{text}; {self.servers} server starts; {minutes} (an estimate: {basis})"


class Estimator:
    """Seconds of a cell and of a server's start; every cell that is measured adds to what it knows.

    cells: measured before, on any hardware, valid or not.
    """

    def __init__(self, cells: Iterable[Cell] = ()) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._starts: dict[str, list[float]] = defaultdict(list)
        self._factors: dict[str, list[float]] = defaultdict(list)
        for cell in cells:
            self.learn(cell)

    def learn(self, cell: Cell) -> None:
        """Take in how long a cell took; one that was not measured to its end says nothing."""
        seconds = dict(cell.record.get("seconds") or {})
        start = seconds.pop("server_start_s", None)
        if not cell.valid or not seconds:
            return
        if start is not None and not cell.record["server"].get("reused", True):
            self._starts[_server_kind(cell.config)].append(start)
        took = sum(seconds.values())
        *alike, of_any_model = _kinds(cell.config)
        for kind in alike:
            self._seconds[kind].append(took)
        for kind in (of_any_model, cell.hardware):
            self._factors[kind].append(took / _computed(cell.config))

    def cell(self, entry: Entry) -> tuple[float, bool]:
        """Seconds with its server up, and whether a cell like it was measured."""
        *alike, of_any_model = _kinds(entry.values)
        for kind in alike:
            if kind in self._seconds:
                return statistics.median(self._seconds[kind]), True
        hardware = str(entry.values["hardware"]["name"])
        factors = self._factors.get(of_any_model) or self._factors.get(hardware)
        factor = statistics.median(factors) if factors else 1.0
        return _computed(entry.values) * factor, False

    def start(self, entry: Entry) -> float:
        """Seconds until the entry's server is up."""
        if entry.values["workload"].get("kind") == "kernel":
            return 0.0
        known = self._starts.get(_server_kind(entry.values))
        if known:
            return float(statistics.median(known))
        first = START_S[str(entry.values["hardware"]["device"])]
        return first * (1 + 0.3 * (entry.tp - 1))

    def forecast(self, entries: Sequence[Entry]) -> Forecast:
        """Of entries in the order in which they will be measured."""
        due = [entry for entry in entries if not entry.stored]
        seconds, servers, measured, running = 0.0, 0, 0, ""
        for entry in due:
            cell_s, known = self.cell(entry)
            seconds += cell_s
            measured += known
            if entry.server != running:
                seconds += self.start(entry)
                servers += 1
            running = entry.server
        return Forecast(len(due), len(entries) - len(due), servers, seconds, measured)


def _server_kind(values: Mapping[str, Any]) -> str:
    return json.dumps([values["hardware"]["name"], values["model"]["name"], values["model"]["tp"]])


def _computed(values: Mapping[str, Any]) -> float:
    """From sizes alone: waves of B requests, each a decode step an output token, and prefill."""
    workload, load = values["workload"], values.get("load", {})
    if workload.get("kind") == "kernel":
        return BENCH_OVERHEAD_S + float(workload["seconds"]) * 4
    requests = int(workload.get("requests") or 64)
    output = int(workload.get("output_tokens") or 256)
    lengths = list(workload.get("prefix_lengths") or [workload.get("prefix_length") or 1024])
    lengths *= 1 if len(lengths) > 1 else int(workload.get("prefix_count") or 1)
    b = min(requests, int(load.get("permits") or requests))
    waves = math.ceil(requests / b)
    if values["hardware"]["device"] == machine.CPU:
        return CPU_CELL_S + waves * output * (CPU_STEP_S + 0.001 * b)
    prefill = (2 * sum(lengths) + (requests + b) * TURN_TOKENS) / PREFILL_TOKENS_S
    read = b * (sum(lengths) / len(lengths) + TURN_TOKENS + output) * _kv_bytes(values)
    bandwidth = float(values["hardware"]["ceilings"].get("bandwidth_gbps") or 0) * 1e9 or BANDWIDTH
    step = GPU_STEP_S + (read + _weight_bytes(values)) / bandwidth
    return float(GPU_CELL_S + prefill + waves * output * step)


def _shape(values: Mapping[str, Any]) -> dict[str, Any]:
    path = SHAPES / f"{values['model']['name']}.json"
    try:
        shape: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except OSError:
        shape = {}
    except ValueError as error:
        raise HarnessError(f"{path.name} is damaged: {error}") from None
    return shape


def _kv_bytes(values: Mapping[str, Any]) -> float:
    """Of one token on one rank; 8 KV heads and 32 layers where the shape is not known."""
    shape = _shape(values)
    heads = int(shape.get("num_key_value_heads", 8))
    layers = int(shape.get("num_hidden_layers", 32))
    width = int(shape.get("hidden_size", 4096)) // int(shape.get("num_attention_heads", 32))
    return KV_BYTES * layers * heads * width / int(values["model"]["tp"])


def _weight_bytes(values: Mapping[str, Any]) -> float:
    """Two bytes a parameter of the layers' matrices, on one rank."""
    shape = _shape(values)
    hidden, inner = int(shape.get("hidden_size", 4096)), int(shape.get("intermediate_size", 14336))
    layers = int(shape.get("num_hidden_layers", 32))
    return 2.0 * layers * (3 * hidden * inner + 3 * hidden * hidden) / int(values["model"]["tp"])
