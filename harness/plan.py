"""From a resolved configuration to a cell that is ready to be measured, and to its identity."""

from __future__ import annotations

import copy
import functools
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import hardware as machine
from harness import load as loads
from harness import systems
from harness.counters import profiles
from harness.errors import HarnessError, RefusalError
from harness.files import identity
from harness.load import Load
from harness.models.resolve import Model, prepare
from harness.servers.spec import ServerSpec
from harness.store import SCHEMA_VERSION
from harness.systems import System
from harness.systems.base import Hardware
from workloads.arrivals import Arrivals, with_arrivals
from workloads.build import build
from workloads.request import Workload, WorkloadError

COMMON_ARGUMENTS = (
    "--skip-tokenizer-init",
    "--incremental-streaming-output",
    "--random-seed=0",
)
"""Every server's: token ids go in and come out, each event holds new tokens only."""

# What a cell's identity leaves out: where things lie, how long to wait, what is printed.
NOT_IDENTITY = {
    "engine": ("python", "port", "start_timeout_s", "linger_s", "device_share"),
    "model": ("path", "title"),
    "system": ("title",),
}


USUAL = {("engine", "stream_interval"): 1, ("warmup", "freeze_gc"): False}
"""Choices that came later, as cells were measured before there were any."""


@dataclass(frozen=True)
class CellPlan:
    """A cell before it is measured.

    config: the resolved configuration as stored. id: of the cell. arrivals: the due times, hashed.
    """

    id: str
    config: Mapping[str, Any]
    root: Path
    system: System
    hardware: Hardware
    workload: Workload
    arrivals: Arrivals
    load: Load
    server: ServerSpec

    @property
    def title(self) -> str:
        """The cell in a few words, for progress lines."""
        workload = self.config["workload"]
        length = workload.get("prefix_length") or workload.get("prefix_lengths") or ""
        parts = [self.config["system"]["name"], str(workload["name"]), str(length).replace(" ", "")]
        return " ".join([*(part for part in parts if part), f"rep {self.config['repetition']}"])


def plan(config: Mapping[str, Any]) -> CellPlan:
    """Check a configuration and prepare what it names; starts nothing.

    Raises HarnessError, in one line, for anything that cannot be measured here.
    """
    root = Path(str(config["output"])).expanduser().resolve()
    hardware = machine.resolve(config["hardware"], root)
    system = systems.make(config["system"], config["storage"])
    if refusal := system.refusal(hardware):
        raise RefusalError(refusal)
    model = prepare(config["model"], root)
    load = loads.make(config["load"])
    workload, arrivals = _workload(config)
    server = _server(config, root, system, hardware, model)
    return CellPlan(
        id=_identity(config, system, model, workload),
        config=_stored(config),
        root=root,
        system=system,
        hardware=hardware,
        workload=workload,
        arrivals=arrivals,
        load=load,
        server=server,
    )


def _workload(config: Mapping[str, Any]) -> tuple[Workload, Arrivals]:
    model = config["model"]
    options = {
        **config["workload"],
        "vocab_size": model["vocab_size"],
        "context_length": model["context_length"],
    }
    return _built(json.dumps([options, config["load"]], sort_keys=True))


@functools.lru_cache(maxsize=1)
def _built(choices: str) -> tuple[Workload, Arrivals]:
    """Kept for the next cell, which often differs in its system or repetition alone."""
    options, load = json.loads(choices)
    try:
        workload = build(options)
        arrivals = loads.make(load).arrivals(len(workload.openers), workload.recorded_s)
        return with_arrivals(workload, arrivals), arrivals
    except WorkloadError as error:
        raise HarnessError(str(error)) from None


def _kv_tokens(config: Mapping[str, Any]) -> int | None:
    budget = config["kv_budget"]
    if budget == "full":
        return None
    if budget == "paper":
        tokens = config["model"]["kv_budget_paper"]
        if tokens is None:
            raise HarnessError(
                f"the paper gives no KV budget for {config['model']['title']}: use kv_budget=full "
                "or a number of tokens"
            )
        return int(tokens)
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise HarnessError(f"kv_budget must be full, paper or a number of tokens, not {budget!r}")
    return budget


def _engine_arguments(config: Mapping[str, Any]) -> list[str]:
    engine = config["engine"]
    interval = engine["stream_interval"]
    numbers = {
        "--stream-interval": interval if interval > 1 else None,
        "--max-running-requests": engine["max_running_requests"],
        "--cuda-graph-max-bs-decode": engine["max_graph_batch"],
        "--mem-fraction-static": engine["memory_fraction"],
        "--max-total-tokens": _kv_tokens(config),
    }
    chosen = [(flag, str(value)) for flag, value in numbers.items() if value is not None]
    graphs = engine["graph_batches"]
    listed = ["--cuda-graph-bs-decode", *map(str, graphs)] if graphs else []
    return [*(text for pair in chosen for text in pair), *listed]


def _server(
    config: Mapping[str, Any], root: Path, system: System, hardware: Hardware, model: Model
) -> ServerSpec:
    engine, served = config["engine"], config["hardware"]["server"]
    arguments = [
        "--model-path",
        str(model.path),
        *map(str, served.get("args") or ()),
        *COMMON_ARGUMENTS,
        *model.arguments,
        *_engine_arguments(config),
        *system.arguments(hardware),
        *(["--enable-metrics"] if config["telemetry"]["metrics_hz"] else []),
        *map(str, engine["arguments"]),
    ]
    traced = profiles.environment(config["profile"])
    cores = _cores(config) if hardware.device == machine.CPU else {}
    environment = {**(served.get("env") or {}), **cores, **engine["environment"], **traced}
    return ServerSpec(
        title=str(config["system"]["name"]),
        python=str(engine["python"] or sys.executable),
        module=str(engine["module"]),
        arguments=tuple(arguments),
        environment={str(k): str(v) for k, v in environment.items()},
        device=machine.device_name(config["hardware"]),
        share=float(engine["device_share"]),
        root=root,
        wrapper=profiles.wrapper(config["profile"], root),
    )


def _cores(config: Mapping[str, Any]) -> dict[str, str]:
    """A core for each of several ranks: the CPU engine asks for them, ranks to share one or not."""
    cores, ranks = sorted(os.sched_getaffinity(0)), int(config["model"]["tp"])
    names = "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))
    return {"SGLANG_CPU_OMP_THREADS_BIND": names} if ranks > 1 else {}


def _kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without choices that change nothing: cells of before there were any keep their ids."""
    kept: dict[str, Any] = copy.deepcopy(profiles.kept(config))
    for (group, key), usual in USUAL.items():
        if kept[group][key] == usual:
            del kept[group][key]
    return kept


def _identity(config: Mapping[str, Any], system: System, model: Model, workload: Workload) -> str:
    """Hash of all that decides the result; the workload counts by its tokens, not its options."""
    parts = _kept(config)
    # Telemetry only watches; what it costs the server is said in conf/telemetry/.
    for name in ("output", "rerun", "full", "client", "slo", "workload", "telemetry"):
        del parts[name]
    for group, keys in NOT_IDENTITY.items():
        for key in keys:
            parts[group].pop(key, None)
    profile = parts["hardware"]
    parts["hardware"] = {k: profile[k] for k in ("name", "device", "dispatch", "server")}
    if not system.uses_storage:
        del parts["storage"]
        del parts["hardware"]["dispatch"]
    parts["model"]["fingerprint"] = model.fingerprint
    parts["workload"] = {"name": config["workload"]["name"], "sha256": workload.sha256}
    parts["schema"] = SCHEMA_VERSION
    return identity(parts)


def _stored(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as cell.json keeps it: without the paths of this machine."""
    stored = _kept(config)
    del stored["output"], stored["rerun"]
    stored["model"].pop("path", None)
    stored["engine"].pop("python", None)
    stored["hardware"] = machine.stored(stored["hardware"])
    for key in ("sharegpt_file", "tokenizer", "trace_file"):
        if stored["workload"].get(key):
            stored["workload"][key] = "given"
    return stored
