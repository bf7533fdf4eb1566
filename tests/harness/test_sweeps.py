"""Sweeps: their order, their estimate, their GPUs, and what is left when one is killed."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hydra import compose, initialize_config_dir
from rich.console import Console

from harness import cli, config
from harness.errors import HarnessError, RefusalError
from harness.servers import gpus, keeper, leases
from harness.servers.spec import servers
from harness.store import load_cells
from harness.sweeps.entry import Entry, schedule
from harness.sweeps.estimate import Estimator
from harness.sweeps.order import arrange
from harness.sweeps.run import Clock, run
from tests.harness.test_cli import REPOSITORY, command, environment, errors, servers_left

BASE = ("experiment=cpu_base", "hardware=cpu", "engine.module=tests.harness.fake_server")


def entry(server: str, repetition: int, block: int = 0) -> Entry:
    own = {"repetition": repetition, "hardware": {"device": "cpu"}, "model": {"tp": 1}}
    name = f"{server}{repetition}"
    return Entry(f"{name}-{block}", name, (), own, server, Path(), block, stored=False)


def letters(entries: list[Entry]) -> str:
    return " ".join(each.title for each in entries)


def test_rotation_gives_each_server_each_place_and_saves_a_start() -> None:
    cells = [entry(server, repetition) for server in "abc" for repetition in range(3)]
    ordered = arrange(cells, "rotated")
    assert letters(ordered) == "a0 b0 c0 c1 a1 b1 b2 c2 a2"
    assert letters(arrange(cells, "by_server")) == "a0 a1 a2 b0 b1 b2 c0 c1 c2"


def test_experiments_stay_apart_where_the_first_matters_most() -> None:
    cells = [entry("a", 0), entry("b", 0), entry("a", 1, block=1)]
    assert letters(arrange(cells, "by_server")) == "a0 a1 b0"
    assert letters(arrange(cells, "by_server", apart=True)) == "a0 b0 a1"


def test_an_order_that_is_none() -> None:
    with pytest.raises(HarnessError, match="order must be by_server or rotated, not 'random'"):
        arrange([], "random")


class Fixed(Estimator):
    """A start takes 30 s, a cell 10."""

    def cell(self, entry: Entry) -> tuple[float, bool]:
        return 10.0, True

    def start(self, entry: Entry) -> float:
        return 30.0


def test_the_estimate_counts_starts_and_leaves_out_what_is_stored() -> None:
    ordered = arrange([entry(s, r) for s in "ab" for r in range(2)], "rotated")
    forecast = Fixed().forecast(ordered)
    assert (forecast.cells, forecast.servers, forecast.seconds) == (4, 3, 4 * 10 + 3 * 30)
    assert "4 cells to measure, 0 measured already; 3 server starts; about 3 min" in str(forecast)


def measured(minutes: float | None) -> tuple[str, str]:
    """Cells measured and cells left, by title."""
    done: list[Entry] = []
    cells = [entry(server, repetition) for server in "ab" for repetition in range(3)]
    clock, console = Clock(minutes), Console(quiet=True)

    def measure(entry: Entry) -> bool:
        done.append(entry)
        return False

    left = run(cells, measure, Fixed(), clock, console, lambda _: None)
    return letters(done), letters(left)


def test_a_server_that_failed_to_start_twice_is_not_tried_again() -> None:
    """Its other cells would each wait for the same failure; those of other servers go on."""
    done: list[Entry] = []
    said: list[str] = []
    cells = [entry(server, repetition) for server in "ab" for repetition in range(4)]

    def measure(entry: Entry) -> bool:
        done.append(entry)
        return entry.server == cells[0].server

    left = run(cells, measure, Fixed(), Clock(None), Console(quiet=True), said.append)
    assert (letters(done), left) == ("a0 a1 b0 b1 b2 b3", [])
    assert "2 more cells of this server are left out" in said


def test_no_cell_is_started_that_would_not_end_in_time() -> None:
    """With 30 s only a cell whose server is up would fit, and none is; without a limit, all."""
    assert measured(0.5) == ("", "a0 a1 a2 b0 b1 b2")
    assert measured(None)[1] == ""
    assert measured(1.0)[0].split()[0] == "a0"


def composed(*overrides: str) -> Entry:
    line = [*BASE, "output=/nowhere", *overrides]
    values = config.compose_cell(line)
    return replace(entry("a", 0), values=values)


class Stored:
    """The part of a cell that an estimate reads."""

    valid, hardware = True, "cpu"

    def __init__(self, values: Any, load_s: float) -> None:
        self.config = values
        seconds = {"server_start_s": 12.0, "warm_up_s": 1.0, "load_s": load_s}
        self.record = {"seconds": seconds, "server": {"reused": False}}


def test_an_estimate_rests_on_cells_like_it_then_on_any_system_then_on_sizes() -> None:
    cell, other_system = composed(), composed("system=granikv")
    longer = composed("workload.output_tokens=256")
    nothing = Estimator()
    assert nothing.cell(longer)[0] > nothing.cell(cell)[0]
    assert not nothing.cell(cell)[1]
    known: Any = [Stored(cell.values, 40.0)]
    knows = Estimator(known)
    assert knows.cell(cell) == (41.0, True)
    assert knows.cell(other_system) == (41.0, True)
    assert knows.start(other_system) == 12.0
    assert knows.cell(longer)[0] > 41.0


def test_an_estimate_of_another_model_rests_on_its_own_system() -> None:
    slow, fast = composed(), composed("system=granikv")
    known: Any = [Stored(slow.values, 40.0), Stored(fast.values, 10.0)]
    assert Estimator(known).cell(composed("system=granikv", "model.tp=2")) == (11.0, False)
    assert Estimator(known).cell(composed("model.tp=2")) == (41.0, False)


def test_a_model_that_needs_more_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    values = config.compose_cell(["hardware=h200", "model=qwen25_32b"])
    with pytest.raises(RefusalError, match="at TP = 4 needs 4 GPUs; 2 visible here"):
        gpus.refuse_shortage(values)
    gpus.refuse_shortage(config.compose_cell(["hardware=h200", "model=qwen25_14b"]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RefusalError, match="needs 1 GPU; 0 visible here"):
        gpus.refuse_shortage(config.compose_cell(["hardware=h200", "model=llama31_8b"]))


def test_a_lease_that_can_never_be_had_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    values = {"hardware": {"device": "cuda"}, "model": {"tp": 2, "title": "a model"}}
    with pytest.raises(RefusalError, match="a model at TP = 2"), gpus.leased(values):
        pass


def test_what_cannot_run_here_is_left_out_and_a_cell_is_planned_once(tmp_path: Path) -> None:
    line = [*BASE, f"output={tmp_path}", "storage.hot_fraction=0.1,0.2"]
    planned = schedule([[*line, "system=sglang_default,sglang_fa3,granikv"], line])
    assert [each.values["system"]["name"] for each in planned.entries] == [
        "sglang_default",
        "granikv",
        "granikv",
    ]
    (reason,) = planned.refused.values()
    assert "sglang_fa3 needs a GPU" in reason


HOLDER = """
import sys, time
from pathlib import Path
from harness.servers import gpus
gpus.DIRECTORY = Path(sys.argv[1])
with gpus.leased({"hardware": {"device": "cuda"}, "model": {"tp": int(sys.argv[2])}}):
    import os
    began = time.monotonic()
    time.sleep(0.6)
    print(began, time.monotonic(), os.environ["CUDA_VISIBLE_DEVICES"])
"""


def held(tmp_path: Path, visible: str, *degrees: int) -> list[tuple[float, float, str]]:
    """From when to when programs that start together hold which GPUs, in order of time."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), str(degree)],
            env={**environment(), "CUDA_VISIBLE_DEVICES": visible},
            stdout=subprocess.PIPE,
            text=True,
        )
        for degree in degrees
    ]
    told = [program.communicate(timeout=60)[0].split() for program in programs]
    return sorted((float(began), float(ended), names) for began, ended, names in told)


def test_one_gpu_is_held_by_one_program_at_a_time(tmp_path: Path) -> None:
    first, second = held(tmp_path, "0", 1, 1)
    assert first[2] == second[2] == "0"
    assert first[1] <= second[0]


def test_two_gpus_are_held_by_two(tmp_path: Path) -> None:
    assert {names for _, _, names in held(tmp_path, "0,1", 1, 1)} == {"0", "1"}


def test_a_pair_is_held_whole(tmp_path: Path) -> None:
    """A cell on both GPUs and one on a single one never overlap."""
    first, second = held(tmp_path, "0,1", 2, 1)
    assert {first[2], second[2]} <= {"0,1", "0", "1"}
    assert first[1] <= second[0]


def test_the_lease_is_given_back_and_the_environment_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpus, "DIRECTORY", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    values = {"hardware": {"device": "cuda"}, "model": {"tp": 1}}
    for _ in range(2):
        with gpus.leased(values):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "4"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"


def test_jobs_that_see_one_gpu_each_do_not_wait_for_one_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both call it 0; its own id tells them apart, and is the same GPU under either name."""
    monkeypatch.setattr(gpus, "DIRECTORY", tmp_path)
    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    values = {"hardware": {"device": "cuda"}, "model": {"tp": 1}}
    for visible, uuid in (("0", "GPU-a"), ("0", "GPU-b"), ("GPU-a", "unused")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle, uuid=uuid: uuid)
        with gpus.leased(values):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"gpu-GPU-a.lock", "gpu-GPU-b.lock"}


def test_a_server_that_is_given_up_cannot_be_taken_any_more(tmp_path: Path) -> None:
    launch = {"linger_s": 0}
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    watch = keeper.Keeper(tmp_path)
    watch.last_used -= 1
    mark = leases.stamp(os.getpid())
    leases.take(tmp_path, mark)
    assert watch._wanted()
    leases.drop(tmp_path, mark)
    watch.last_used -= 1
    assert not watch._wanted()
    assert json.loads((tmp_path / "server.json").read_text())["ending"]


def sweep_of_twelve(root: Path) -> list[str]:
    overrides = ("system=sglang_default,granikv", "repetition=0,1,2,3,4,5")
    return command(root, "-m", *overrides, "hydra.sweeper.order=by_server")


def started(root: Path) -> dict[str, str]:
    """When each valid cell was measured."""
    return {cell.id: cell.record["started"] for cell in load_cells(root) if cell.valid}


def test_a_sweep_that_is_killed_three_times_ends_with_its_cells_and_no_work_twice(
    tmp_path: Path,
) -> None:
    count = tmp_path / "count"
    faults = {"count": str(count), "tpot_s": 0.004}
    (tmp_path / "faults.json").write_text(json.dumps(faults))
    chance = random.Random(4)
    for _ in range(3):
        before = started(tmp_path)
        aim = len(before) + chance.choice((1, 2))
        process = subprocess.Popen(
            sweep_of_twelve(tmp_path),
            env=environment(),
            cwd=REPOSITORY,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while len(started(tmp_path)) < aim and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 1.5))
        process.kill()
        process.wait()
        assert before.items() <= started(tmp_path).items()
    kept = started(tmp_path)
    done = subprocess.run(
        sweep_of_twelve(tmp_path), env=environment(), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    cells = load_cells(tmp_path)
    assert len(cells) == 12
    assert all(cell.valid for cell in cells)
    assert kept.items() <= started(tmp_path).items()
    requests = len(count.read_text().splitlines())
    assert 12 * 32 <= requests <= (12 + 3) * 32
    assert not servers_left(tmp_path)
    assert "by_server (hydra.sweeper.order): " in done.stderr
    assert "[12/12] " in done.stderr
    jobs = {path.parent.name for path in (tmp_path / "logs").rglob("harness.log")}
    assert jobs == {cell.id for cell in cells}


def test_jobs_of_a_parallel_launcher_take_a_gpu_each(tmp_path: Path) -> None:
    (tmp_path / "faults.json").write_text(json.dumps({"tpot_s": 0.03, "die_after": 1000}))
    overrides = [
        *command(tmp_path, "-m", "system=sglang_default,granikv"),
        "hydra/launcher=per_gpu",
        "hardware=h200",
        "telemetry=none",
    ]
    done = subprocess.run(
        overrides,
        env={**environment(), "CUDA_VISIBLE_DEVICES": "0,1", "TMPDIR": str(tmp_path)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    launches = [json.loads(path.read_text()) for path in tmp_path.glob("servers/*/launch.json")]
    assert {launch["device"] for launch in launches} == {"cuda-0", "cuda-1"}
    cells = load_cells(tmp_path)
    assert len(cells) == 2
    assert not errors(done.stderr)
    assert not servers_left(tmp_path)


def test_every_order_has_the_same_cells() -> None:
    cells = [entry(s, r, block=b) for s, r, b in itertools.product("abcd", range(3), range(2))]
    plain = {each.id for each in cells}
    for order, apart in itertools.product(("by_server", "rotated"), (False, True)):
        assert {
            each.id for each in arrange(sorted(cells, key=lambda e: e.block), order, apart)
        } == plain


def test_a_slurm_job_asks_for_as_many_gpus_as_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(cli.main)  # its import makes the resolvers known
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with initialize_config_dir(str(config.DIRECTORY), version_base="1.3"):
        slurm = compose(
            config.NAME,
            ["hydra/launcher=slurm", "model=qwen25_14b"],
            return_hydra_config=True,
        )
        joblib = compose(config.NAME, ["hydra/launcher=per_gpu"], return_hydra_config=True)
    assert slurm.hydra.launcher.gpus_per_node == 2
    assert "SlurmLauncher" in slurm.hydra.launcher._target_
    assert joblib.hydra.launcher.n_jobs == 3


def test_a_slurm_job_has_its_own_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert servers(tmp_path) == tmp_path / "servers" / "77"
    monkeypatch.delenv("SLURM_JOB_ID")
    assert servers(tmp_path) == tmp_path / "servers"
