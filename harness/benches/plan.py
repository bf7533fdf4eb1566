"""A benchmark cell before it is measured."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import benches
from harness import hardware as machine
from harness.benches.base import Bench
from harness.counters import profiles
from harness.errors import HarnessError
from harness.files import identity
from harness.servers.spec import ServerSpec
from harness.store import SCHEMA_VERSION

STORED = ("system", "model", "workload", "hardware", "profile", "repetition")
"""What decides a benchmark: it has no load, no cache and no server."""


@dataclass(frozen=True)
class BenchPlan:
    """One launch to measure.

    config: as stored. server: the program, grouped and kept alone on its device as servers are.
    counted: the program's arguments where hardware counters are asked for.
    """

    id: str
    config: Mapping[str, Any]
    root: Path
    bench: Bench
    server: ServerSpec
    counted: list[str] | None

    @property
    def title(self) -> str:
        """The cell in a few words, for progress lines."""
        workload = self.config["workload"]
        launch = f"{workload['layout']} {workload['read']} {workload['backend']}"
        return f"{self.bench.name} {launch} rep {self.config['repetition']}"


def plan(config: Mapping[str, Any]) -> BenchPlan:
    """From a resolved configuration; starts nothing. Raises HarnessError, in one line."""
    root = Path(str(config["output"])).expanduser().resolve()
    bench, engine, hardware = benches.make(config), config["engine"], config["hardware"]
    environment = {**(hardware["server"].get("env") or {}), **engine["environment"]}
    program = ServerSpec(
        title=bench.name,
        python=str(engine["python"] or sys.executable),
        module=bench.module,
        arguments=tuple(bench.arguments(config)),
        environment={str(k): str(v) for k, v in environment.items()},
        device=machine.device_name(hardware),
        root=root,
    )
    counted = _counted(config, bench)
    stored = _stored(config)
    return BenchPlan(_identity(stored, program), stored, root, bench, program, counted)


def _counted(config: Mapping[str, Any], bench: Bench) -> list[str] | None:
    kind = config["profile"]["kind"]
    if kind == profiles.NONE:
        return None
    arguments = bench.counted(config) if kind == profiles.NCU else None
    if arguments is None:
        raise HarnessError(f"workload.bench={bench.name} has no profile.kind={kind}")
    return arguments


def _stored(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = profiles.kept(config)
    stored = {name: copy.deepcopy(kept[name]) for name in STORED if name in kept}
    stored["model"].pop("path", None)
    stored["hardware"] = machine.stored(stored["hardware"])
    return stored


def _identity(stored: Mapping[str, Any], program: ServerSpec) -> str:
    parts = {name: part for name, part in stored.items() if name not in ("model", "hardware")}
    parts["model"] = {name: stored["model"][name] for name in ("name", "tp")}
    parts["hardware"] = {name: stored["hardware"][name] for name in ("name", "device")}
    anywhere = replace(program, device="")  # which of equal GPUs measured it does not count
    return identity(parts | {"program": anywhere.hash, "schema": SCHEMA_VERSION})
