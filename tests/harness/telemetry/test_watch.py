"""Sampling: the loop, the process, and cells that were watched on the fake server."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.plan import plan
from harness.store import Cell
from harness.telemetry.sample import Reading, SourceError
from harness.telemetry.sampler import Sampler, next_tick
from harness.telemetry.watch import FAILED, Target, Watch, orders, watching

FAKE_NVML = "tests.harness.telemetry.fake_nvml"
GPU_ONLY = {"gpu_hz": 50, "metrics_hz": 0, "state_hz": 0, "nvml_module": FAKE_NVML}


def target(visible: str | None = None, ranks: int = 1, device: str = "cuda") -> Target:
    return Target("http://127.0.0.1:9", device, ranks, visible)


class Counting:
    """A source whose reading number `fails_at` fails; it tells when it was read `tells` times."""

    name, period_s = "counting", 0.001

    def __init__(self, fails_at: int = 10**9, tells: int = 5) -> None:
        self.count, self.fails_at, self.tells = 0, fails_at, tells
        self.read_enough = threading.Event()

    def read(self) -> Iterator[Reading]:
        self.count += 1
        if self.count >= self.tells:
            self.read_enough.set()
        if self.count == self.fails_at:
            raise SourceError("gone")
        yield Reading(0, "count", float(self.count))


def test_the_first_reading_is_before_and_the_last_after() -> None:
    source = Counting()
    sampler = Sampler(source)
    assert [s.value for s in sampler.samples] == [1.0]
    thread = threading.Thread(target=sampler.run)
    thread.start()
    assert source.read_enough.wait(10)
    before = source.count
    sampler.stop()
    thread.join(10)
    assert source.count > before
    assert [s.value for s in sampler.samples] == [float(i + 1) for i in range(source.count)]
    times = [s.at for s in sampler.samples]
    assert times == sorted(times)


def test_a_source_that_fails_is_given_up_and_what_it_gave_is_kept() -> None:
    sampler = Sampler(Counting(fails_at=4))
    sampler.run()
    assert sampler.problem == "gone"
    assert [s.value for s in sampler.samples] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("tick", "elapsed", "following"), [(0, 0.0, 1), (1, 1.0004, 2), (3, 3.9, 4), (3, 13.2, 14)]
)
def test_after_a_slow_reading_the_grid_goes_on(tick: int, elapsed: float, following: int) -> None:
    assert next_tick(tick, elapsed) == following


def test_a_process_samples_every_gpu_of_the_server() -> None:
    with watching(GPU_ONLY, target("GPU-aabb,0", ranks=2)) as watch:
        pass
    powers = {s.rank: s.value for s in watch.recording.samples if s.name == "power_w"}
    assert powers == {0: 50.0, 1: 100.0}
    assert watch.recording.missing == {}


def test_a_source_that_is_absent_is_said_and_the_rest_goes_on() -> None:
    options = {**GPU_ONLY, "metrics_hz": 5}
    with watching(options, target()) as watch:
        pass
    assert watch.recording.missing == {"metrics": "GET /metrics failed: no reply"}
    assert {s.source for s in watch.recording.samples} == {"gpu"}


def test_without_a_driver_the_recording_says_so() -> None:
    with watching({**GPU_ONLY, "nvml_module": "pynvml"}, target("GPU-none")) as watch:
        pass
    assert watch.recording.samples == []
    assert "gpu" in watch.recording.missing


def test_without_the_package_the_recording_says_so() -> None:
    with watching({**GPU_ONLY, "nvml_module": "no_such_module"}, target()) as watch:
        pass
    assert watch.recording.missing == {
        "gpu": "telemetry.nvml_module=no_such_module cannot be imported"
    }


def test_a_sampling_process_that_cannot_start_costs_its_samples_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with watching(GPU_ONLY, target()) as watch:
        pass
    assert watch.recording.missing == FAILED


def test_a_sampling_process_that_dies_costs_its_samples_alone() -> None:
    watch = Watch(GPU_ONLY, target())
    assert watch._process is not None
    watch._process.kill()
    watch.stop()
    assert watch.recording.missing == FAILED


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (target(device="cpu"), "the server runs on the CPU"),
        (target("0", ranks=2), "CUDA_VISIBLE_DEVICES names 1 GPUs, the server uses 2"),
    ],
)
def test_what_is_missing_before_the_start(where: Target, reason: str) -> None:
    told, missing = orders(GPU_ONLY, where)
    assert told == {}
    assert missing == {"gpu": reason}


def test_a_cell_keeps_power_energy_and_rows_of_its_window(
    run_cell: Callable[..., Cell], tmp_path: Path
) -> None:
    """100 W all along: whatever the start and the warm-up took, the load's energy is its own."""
    options = [f"telemetry.{key}={value}" for key, value in GPU_ONLY.items()]
    # A home of its own: what other programs compile meanwhile is none of this server's.
    home = f"+engine.environment.HOME={tmp_path}"
    cell = run_cell("hardware.device=cuda", home, *options, tpot_s=0.005)
    assert cell.valid, cell.reasons
    seconds = cell.metrics["duration_s"]
    assert cell.metrics["energy_j"] == pytest.approx(100.0 * seconds, rel=0.02)
    tokens = cell.requests["output_tokens"].sum()
    joules = cell.metrics["energy_j"]
    assert cell.metrics["joules_per_output_token"] == pytest.approx(joules / tokens)
    rows = cell.frame("telemetry")
    assert rows is not None
    first, last = cell.record["telemetry"]["window_s"]
    assert last - first == pytest.approx(seconds)
    assert rows["t_s"].between(first, last).all()
    assert set(rows["name"]) >= {"power_w", "energy_j", "sm_clock_mhz"}


def test_a_cell_keeps_pools_over_time_and_says_what_it_could_not_watch(
    run_cell: Callable[..., Cell],
) -> None:
    cell = run_cell("telemetry=server", "telemetry.state_hz=50", "system=granikv", tpot_s=0.003)
    assert cell.valid, cell.reasons
    assert cell.record["telemetry"]["missing"] == {
        "gpu": "the server runs on the CPU",
        "metrics": "GET /metrics failed: status 404",
    }
    assert math.isnan(cell.metrics["joules_per_output_token"])
    rows = cell.frame("telemetry")
    assert rows is not None
    steps = rows[rows["name"] == "steps"].sort_values("t_s")["value"]
    assert steps.is_monotonic_increasing
    assert steps.iloc[-1] > steps.iloc[0]
    assert (rows[rows["name"] == "pool_hot_size"]["value"] == 6000).all()


def test_watching_changes_no_identity(cell_config: Callable[..., dict[str, Any]]) -> None:
    watched = {plan(cell_config(f"telemetry={name}")).id for name in ("none", "gpu", "server")}
    assert len(watched) == 1


def test_server_metrics_are_asked_of_the_server(
    cell_config: Callable[..., dict[str, Any]],
) -> None:
    for name, wanted in (("gpu", False), ("server", True)):
        arguments = plan(cell_config(f"telemetry={name}")).server.arguments
        assert ("--enable-metrics" in arguments) == wanted
