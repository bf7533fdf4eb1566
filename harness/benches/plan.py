"""A benchmark cell before it is measured."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import benches
from harness import hardware as machine
from harness.benches.base import Bench
from harness.files import identity
from harness.servers.spec import ServerSpec
from harness.store import SCHEMA_VERSION

STORED = ("system", "model", "workload", "hardware", "repetition")
"""What decides a benchmark: it has no load, no cache and no server."""


@dataclass(frozen=True)
class BenchPlan:
    """One launch to measure.

    config: as stored. server: the program, grouped and kept alone on its device as servers are.
    """

    id: str
    config: Mapping[str, Any]
    root: Path
    bench: Bench
    server: ServerSpec

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
    return BenchPlan(_identity(config, program), _stored(config), root, bench, program)


def _stored(config: Mapping[str, Any]) -> dict[str, Any]:
    stored = {name: copy.deepcopy(config[name]) for name in STORED}
    stored["model"].pop("path", None)
    return stored


def _identity(config: Mapping[str, Any], program: ServerSpec) -> str:
    parts: dict[str, Any] = {name: config[name] for name in ("system", "workload", "repetition")}
    parts["model"] = {name: config["model"][name] for name in ("name", "tp")}
    parts["hardware"] = {name: config["hardware"][name] for name in ("name", "device")}
    return identity(parts | {"program": program.hash, "schema": SCHEMA_VERSION})
