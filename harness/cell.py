"""The life of a cell: server, warm-up, flush, proof, priming, load, validation, record."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from harness import cache, environment, http, metrics, server, snapshot, store, validation
from harness.counters.profiles import profiling
from harness.errors import HarnessError, ServerError
from harness.load.drive import Options, Outcome, drive
from harness.plan import CellPlan
from harness.server import RunningServer, StartOptions
from harness.servers import compilation, rates, scrub
from harness.store import Cell
from harness.systems.base import ServerInfo
from harness.telemetry.watch import Recording, Target, watching
from harness.telemetry.window import measured
from workloads.request import Request, Workload

logger = logging.getLogger(__name__)

MOST_RELOADS = 2
"""Batches of other sizes, which compile other kernels, may form when a load is sent again."""

SERVER_FACTS = (
    "version",
    "attention_backend",
    "decode_attention_backend",
    "prefill_attention_backend",
    "page_size",
    "radix_cache_backend",
    "max_total_num_tokens",
    "max_running_requests",
    "chunked_prefill_size",
    "schedule_policy",
    "dtype",
    "kv_cache_dtype",
    "tp_size",
    "mem_fraction_static",
    "stream_interval",
)
"""What cell.json keeps of `/server_info` beside GraniKV's part."""


def measure(plan: CellPlan, rerun: bool = False) -> Cell:
    """Measure one cell and store it; a valid one that is there already is returned instead.

    A cell that fails validation is stored with its reasons, and so is one whose server does not
    start or dies: the caller looks at `Cell.valid`. Raises HarnessError when nothing can be stored.
    """
    with store.claim(plan.root, plan.id):
        existing = None if rerun else store.find_valid(plan.root, plan.id)
        if existing is not None:
            logger.info("%s: measured already (%s)", plan.title, plan.id)
            return existing
        return _attempt(plan)


def _attempt(plan: CellPlan) -> Cell:
    measurement = _Measurement(plan)
    logger.info("%s: measuring (%s)", plan.title, plan.id)
    try:
        measurement.run()
    except Exception as error:
        measurement.fail(error)
    return measurement.store()


def _public_state(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """GraniKV's state as it may be stored."""
    if state is None:
        return None
    config = state.get("config", {})
    texts = {name: value for name, value in config.items() if isinstance(value, str)}
    return {**state, "config": {**config, **scrub.environment(texts)}}


def _warm_up_requests(workload: Workload, count: int, tokens: int) -> list[Request]:
    """The first of the measured requests and the longest, at once and for a few tokens each."""
    first = list(workload.requests[: max(1, count)])
    longest = max(workload.requests, key=lambda one: one.prompt_len)
    chosen = first if longest.index < len(first) else [*first, longest]
    return [
        Request(one.index, one.input_ids, min(tokens, one.max_new_tokens), due_s=0.0)
        for one in chosen
    ]


def _written_since(path: Path, time: datetime) -> bool:
    return path.stat().st_mtime >= time.timestamp()


class _Measurement:
    """One attempt at a cell: what is known of it so far."""

    def __init__(self, plan: CellPlan) -> None:
        self.plan = plan
        self.started = datetime.now(UTC)
        self.reasons: list[str] = []
        self.seconds: dict[str, float] = {}
        self.cache: dict[str, Any] = {}
        self.client: dict[str, Any] = {}
        self.server: dict[str, Any] = {
            "hash": plan.server.hash,
            "arguments": scrub.arguments(plan.server.arguments),
        }
        self.log = store.frame([])
        self.frames: dict[str, pd.DataFrame] = {}
        self.compiled = compilation.Compilations()
        self.recording = Recording()
        self.telemetry: dict[str, Any] = {}
        self.profile: dict[str, Any] = {}
        self.further_metrics: dict[str, float] = {}
        self.trace: str | None = None

    def run(self) -> None:
        plan, config = self.plan, self.plan.config
        engine = config["engine"]
        start = StartOptions(engine["port"], engine["start_timeout_s"], engine["linger_s"])
        began = time.monotonic()
        with server.acquire(plan.server, start) as running:
            self._note("server_start_s", began)
            self.server["reused"] = running.reused
            try:
                self._serve(running)
            except ServerError:
                # What a dead server's client sees says less than the server's own last words.
                if running.is_alive():
                    raise
                raise ServerError(running.death()) from None

    def _note(self, phase: str, began: float) -> None:
        self.seconds[phase] = round(time.monotonic() - began, 3)

    def _serve(self, running: RunningServer) -> None:
        plan = self.plan
        info = running.info()
        if wrong := plan.system.misuse(info, plan.hardware):
            raise ServerError(f"{plan.server.title} is not in use as asked: {'; '.join(wrong)}")
        began = time.monotonic()
        self._warm_up(running)
        self._note("warm_up_s", began)
        flushed, before, outcome = self._load(running)
        for _ in range(MOST_RELOADS):
            if not self.compiled.found or outcome.died or plan.config.get("profile"):
                break
            # What was missing is compiled now: the load itself was the warm-up.
            logger.info("%s: the server compiled meanwhile: loading it again", plan.title)
            self.server.setdefault("compiled_before", []).extend(
                scrub.scrub(line) for line in self.compiled.found
            )
            flushed, before, outcome = self._load(running)
        self.reasons += self.compiled.reasons
        self.log = outcome.requests
        self._keep_telemetry(outcome)
        if outcome.died:
            raise ServerError(running.death())
        self._judge(outcome, flushed, before, running.info())
        if self.server["state"] is not None:
            layout = snapshot.take(running, plan.workload, plan.load.permits)
            self.server["layout"] = _public_state(layout)

    def _load(self, running: RunningServer) -> tuple[ServerInfo, ServerInfo, Outcome]:
        """Prepare the cache and send the load: the server flushed, just before it, what came."""
        began = time.monotonic()
        flushed = self._prepare_cache(running)
        self._note("cache_s", began)
        before = running.info()
        began = time.monotonic()
        with self._window(running):
            outcome = self._drive(running, self.plan.workload.requests, self.plan.load.permits)
        self._note("load_s", began)
        return flushed, before, outcome

    @contextmanager
    def _window(self, running: RunningServer) -> Iterator[None]:
        """The measured window: what watches or records the load does so around this and no more."""
        on_gpu = self.plan.config["hardware"]["device"] != "cpu"
        caches = compilation.caches_of({**os.environ, **self.plan.server.environment})
        with (
            compilation.watch(running.log, caches if on_gpu else ()) as self.compiled,
            watching(self.plan.config["telemetry"], self._target(running)) as watch,
            profiling(self.plan.config, self.plan.root, self.plan.id, running.url) as profiled,
        ):
            yield
        self.recording = watch.recording
        self.profile = profiled.record
        self.reasons += profiled.reasons
        self.further_metrics |= profiled.metrics

    def _target(self, running: RunningServer) -> Target:
        config = self.plan.config
        environment = {**os.environ, **self.plan.server.environment}
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        return Target(running.url, config["hardware"]["device"], config["model"]["tp"], visible)

    def _keep_telemetry(self, outcome: Outcome) -> None:
        watched = measured(self.recording, outcome.start, outcome.requests)
        self.frames["telemetry"] = watched.frame
        self.further_metrics |= watched.metrics
        self.telemetry = watched.record

    def _options(self, permits: int | None, due_when_permitted: bool) -> Options:
        client = self.plan.config["client"]
        return Options(
            permits,
            due_when_permitted,
            client["request_timeout_s"],
            client["drain_timeout_s"],
            client["workers"],
        )

    def _drive(
        self, running: RunningServer, requests: Sequence[Request], permits: int | None
    ) -> Outcome:
        options = self._options(permits, self.plan.load.due_when_permitted)
        return drive(running.url, requests, options, running.is_alive)

    def _warm_up(self, running: RunningServer) -> None:
        """The prefixes, then some of the measured prompts with short outputs; nothing is kept.

        The prefixes go first: a cold burst would compute one prefix many times. The longest prompt
        is among the others, since a shape that was never seen may have to be compiled for.
        """
        warmup = self.plan.config["warmup"]
        timeout_s = float(self.plan.config["client"]["request_timeout_s"])
        cache.ask(running.url, [p.tolist() for p in self.plan.workload.prefixes], timeout_s)
        tokens = int(warmup["output_tokens"])
        chosen = _warm_up_requests(self.plan.workload, int(warmup["requests"]), tokens)
        self.cache["warmed_requests"] = len(chosen)
        outcome = self._drive(running, chosen, self.plan.load.permits)
        failed = outcome.requests[~outcome.requests["ok"]]
        if not failed.empty:
            raise ServerError(f"the warm-up failed: {failed.iloc[0]['error']}")
        if warmup.get("freeze_gc"):  # left out of what is stored where it is not asked for
            status, _ = http.request(f"{running.url}/freeze_gc", post=True)
            if status != 200:
                raise ServerError(f"the server did not freeze its heap: {http.describe(status)}")

    def _prepare_cache(self, running: RunningServer) -> ServerInfo:
        """Flush, prove, prime; the server's state between the flush and the priming."""
        workload, config = self.plan.workload, self.plan.config
        timeout_s = float(config["client"]["request_timeout_s"])
        warmed = workload.requests[0].input_ids.tolist()
        self.cache |= cache.prove_empty(running.url, warmed, timeout_s)
        flushed = running.info()
        prefixes = [prefix.tolist() for prefix in workload.prefixes] if config["prime"] else []
        self.cache["primed_cached_tokens"] = cache.prime(running.url, prefixes, timeout_s)
        self.cache["state"] = cache.PRIMED if prefixes else cache.EMPTY
        return flushed

    def _judge(
        self, outcome: Outcome, flushed: ServerInfo, before: ServerInfo, after: ServerInfo
    ) -> None:
        plan = self.plan
        self.server |= {
            "facts": {name: after.argument(name) for name in SERVER_FACTS},
            "counters_flushed": flushed.counters,
            "counters_before": before.counters,
            "state": _public_state(after.granikv),
            "ranks": len(after.ranks),
        }
        evidence = validation.Evidence(
            log=outcome.requests,
            loop_lag_s=outcome.loop_lag_s,
            workload=plan.workload,
            system=plan.system,
            before=flushed,
            opened=before,
            after=after,
            primed=bool(plan.config["prime"]),
        )
        self.reasons += validation.reasons(evidence, plan.config["validation"])
        self.cache["hit_rate_designed"] = validation.designed_hit_rate(evidence)
        self.client["workers"] = outcome.workers
        self.client["loop_lag_p99_ms"] = validation.loop_lag_ms(outcome.loop_lag_s)

    def fail(self, error: Exception) -> None:
        """Mark the cell with what went wrong; an unforeseen error keeps its traceback."""
        self.reasons.append(" ".join(str(error).split()) or type(error).__name__)
        if not isinstance(error, HarnessError):
            self.reasons[-1] = f"{type(error).__name__}: {self.reasons[-1]}"
        self.trace = "".join(traceback.format_exception(error))

    def _keep_log(self) -> str | None:
        """The log of the server that was used, or that did not start; None without one."""
        logs = sorted(self.plan.server.directory.glob("server-*.log"))
        if not logs or not (self.server.get("reused") or _written_since(logs[-1], self.started)):
            return None
        name = f"{self.plan.server.hash}-{logs[-1].stem.removeprefix('server-')}"
        return store.keep_log(self.plan.root, name, scrub.excerpt(logs[-1]))

    def store(self) -> Cell:
        """Write the cell, valid or not."""
        plan = self.plan
        of_client = metrics.compute(self.log, plan.config["slo"])
        of_server = rates.of_window(self.compiled.log, of_client["output_tok_s_steady"])
        record: Mapping[str, Any] = {
            "id": plan.id,
            "config": plan.config,
            "workload": {
                "name": plan.workload.name,
                "sha256": plan.workload.sha256,
                "parameters": plan.workload.parameters,
                "provenance": plan.workload.provenance,
                "arrivals_sha256": plan.arrivals.sha256,
            },
            "environment": environment.describe(plan.server.python),
            "valid": not self.reasons,
            "reasons": self.reasons,
            "metrics": of_client | of_server | self.further_metrics,
            "cache": self.cache,
            "client": self.client,
            "server": {**self.server, "log": self._keep_log()},
            "telemetry": self.telemetry,
            "profile": self.profile,
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": self.seconds,
        }
        texts = {} if self.trace is None else {"traceback.txt": self.trace}
        cell = store.write(plan.root, record, self.log, texts, self.frames)
        if cell.valid:
            logger.info("%s: %.0f output tok/s", plan.title, cell.metrics["output_tok_s"])
        else:
            logger.error("%s: invalid: %s", plan.title, "; ".join(cell.reasons))
        return cell
