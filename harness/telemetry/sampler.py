"""The sampling process: `python -m harness.telemetry.sampler` reads its orders from its input.

A process and not a thread: the client must not wait for the interpreter while a reply of the server
is parsed here. It runs at a lower priority, keeps what it reads in memory, and answers once, when
its input ends; so it ends with the harness as well.

First line in, each part optional: {"gpus": {"names": [...], "hz": h, "module": "pynvml"},
"metrics": {"url": u, "hz": h}, "state": {"url": u, "hz": h}}. First line out, once every source was
read: {"ready": true}. Last line out: {"samples": [[at, source, rank, name, value], ...],
"missing": {source: reason}}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.telemetry.gpus import Gpus
from harness.telemetry.prometheus import EngineMetrics
from harness.telemetry.sample import GPU, METRICS, STATE, Sample, Source, SourceError
from harness.telemetry.state import StorageState

NICENESS = 5

Clock = Callable[[], float]


def next_tick(tick: int, elapsed: float) -> int:
    """The next point of a grid after point `tick` and after `elapsed` periods; none is made up."""
    return max(tick, int(elapsed)) + 1


class Sampler:
    """Reads one source at its rate until it is told to stop, and once more then.

    The first reading is made by the constructor, so that the window has one before it. Readings of
    one turn share the time at which it began. A source that fails is read no more, and `problem`
    says why.
    """

    def __init__(self, source: Source, clock: Clock = time.perf_counter) -> None:
        self.source = source
        self.samples: list[Sample] = []
        self.problem: str | None = None
        self._clock = clock
        self._stopped = threading.Event()
        self._read()

    def run(self) -> None:
        """Sample on a fixed grid: a slow reading delays none but itself."""
        start, tick = self._clock(), 0
        while self.problem is None:
            tick = next_tick(tick, (self._clock() - start) / self.source.period_s)
            due = start + tick * self.source.period_s
            if self._stopped.wait(max(0.0, due - self._clock())):
                break
            self._read()
        if self.problem is None:
            self._read()

    def stop(self) -> None:
        """Make `run` take its last reading and return."""
        self._stopped.set()

    def _read(self) -> None:
        at = self._clock()
        try:
            found = [Sample(at, self.source.name, *reading) for reading in self.source.read()]
        except SourceError as error:
            self.problem = str(error)
        else:
            self.samples += found


def _gpus(order: Mapping[str, Any]) -> Source:
    try:
        nvml = importlib.import_module(order["module"])
    except ImportError:
        raise SourceError(f"telemetry.nvml_module={order['module']} cannot be imported") from None
    return Gpus(nvml, order["names"], order["hz"])


SOURCES: dict[str, tuple[str, Callable[[Mapping[str, Any]], Source]]] = {
    "gpus": (GPU, _gpus),
    "metrics": (METRICS, lambda order: EngineMetrics(order["url"], order["hz"])),
    "state": (STATE, lambda order: StorageState(order["url"], order["hz"])),
}


def _samplers(orders: Mapping[str, Any]) -> tuple[list[Sampler], dict[str, str]]:
    found, missing = [], {}
    for key, (name, make) in SOURCES.items():
        if not orders.get(key):
            continue
        try:
            source = make(orders[key])
        except SourceError as error:
            missing[name] = str(error)
            continue
        found.append(Sampler(source))
        for field in getattr(source, "missing", ()):
            missing[f"{name}.{field}"] = "not on this GPU"
    return found, missing


def main() -> int:
    """Sample until the input ends, then print everything."""
    os.nice(NICENESS)
    samplers, missing = _samplers(json.loads(sys.stdin.readline()))
    threads = [threading.Thread(target=sampler.run) for sampler in samplers]
    for thread in threads:
        thread.start()
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.read()
    for sampler in samplers:
        sampler.stop()
    for thread in threads:
        thread.join()
    missing |= {s.source.name: s.problem for s in samplers if s.problem is not None}
    samples = [sample for sampler in samplers for sample in sampler.samples]
    print(json.dumps({"samples": samples, "missing": missing}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
