"""Real engines for the tests: one tiny model, one program a run, stock's answers made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from harness.models import tiny_llama
from tests.engine import forked
from tests.engine.scenarios import SCENARIOS

pytest.importorskip("sglang", reason="the engine is not installed: run `make setup`")

REPOSITORY = Path(__file__).parents[2]
RUN_LIMIT_S = 420
CPU_ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "PYTHONPATH": os.pathsep.join(p for p in (str(REPOSITORY), os.environ.get("PYTHONPATH")) if p),
}
BUSY_CHECKS = {
    "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
}
ENGINE = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "skip_tokenizer_init": True,
    "dtype": "float32",
    "max_running_requests": 16,
    "random_seed": 0,
    "log_level": "info",
}


class Run:
    """What a finished run left behind."""

    def __init__(self, returncode: int, log: str, results: dict[str, Any]) -> None:
        self.returncode = returncode
        self.log = log[-6000:]
        self.retractions = log.count("Retract requests")
        self.results = results

    def answers(self, scenario: str) -> list[list[int]]:
        return list(self.results[scenario]["answers"])

    def counters(self) -> dict[str, int]:
        """The counters after the last scenario: they count from the engine's start."""
        states = [r["state"] for r in self.results.values() if isinstance(r, dict)]
        return dict(states[-1].get("counters", {}))


Driver = Callable[..., Run]


def _spawned(
    job: Path, out: Path, log: Path, environment: Mapping[str, str], limit_s: float
) -> int:
    """The exit status of a run whose processes start as a user's do."""
    with log.open("w") as output:
        return subprocess.run(
            [sys.executable, "-m", "tests.engine.drive", str(job), str(out)],
            cwd=REPOSITORY,
            env=dict(environment),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        ).returncode


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if hasattr(request.config, "workerinput") else base


@pytest.fixture(scope="session")
def model(shared_dir: Path) -> Path:
    """The tiny Llama with real random weights."""
    path = shared_dir / "tiny_llama"
    with FileLock(shared_dir / "model.lock"):
        if not path.exists():
            tiny_llama.write(path)
    return path


@pytest.fixture(scope="session")
def drive(shared_dir: Path, model: Path) -> Driver:
    """Runs scenarios on one engine: `drive(name, granikv=..., engine=..., scenarios=...)`.

    On the CPU its processes are forked, unless `spawned`.
    """

    def run(
        name: str,
        granikv: dict[str, Any] | None,
        engine: dict[str, Any],
        scenarios: list[str] | None = None,
        mutant: str = "",
        refused: int | None = None,
        teacher: dict[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        spawned: bool = False,
    ) -> Run:
        job = {
            "engine": {"model_path": str(model), **ENGINE, **engine},
            "granikv": granikv,
            "scenarios": list(SCENARIOS) if scenarios is None else scenarios,
            "refused": refused,
            "teacher": teacher,
        }
        job_path, out_path = shared_dir / f"{name}.job.json", shared_dir / f"{name}.out.json"
        log_path = shared_dir / f"{name}.log"
        job_path.write_text(json.dumps(job))
        on_cpu = engine.get("device", "cpu") == "cpu"
        own = {**os.environ, **CPU_ENVIRONMENT, "GRANIKV_TEST_MUTANT": mutant}
        if not on_cpu:
            del own["SGLANG_USE_CPU_ENGINE"]
        if engine.get("dtype", "float32") == "float32" and engine.get("device") == "cuda":
            # SGLang's Triton kernels multiply float32 in TF32 unless Triton is told otherwise.
            own |= {"GRANIKV_TEST_NATIVE_OPS": "1", "TRITON_F32_DEFAULT": "ieee"}
        if not mutant:
            own |= BUSY_CHECKS
        own |= environment or {}
        start = forked.run if on_cpu and not spawned else _spawned
        returncode = start(job_path, out_path, log_path, own, RUN_LIMIT_S)
        results = json.loads(out_path.read_text()) if out_path.exists() else {}
        return Run(returncode, log_path.read_text(), results)

    return run


@pytest.fixture(scope="session")
def stock(shared_dir: Path, drive: Driver) -> Run:
    """Unmodified SGLang's answers to every scenario, with room for all of them."""
    room = {"max_total_tokens": 8192, "chunked_prefill_size": 2048}
    return once(shared_dir, "stock", lambda: drive("stock", None, room))


def once(shared_dir: Path, name: str, run: Callable[[], Run]) -> Run:
    """The run called `name`, which must succeed; made by one worker for all."""
    path = shared_dir / f"{name}.out.json"
    with FileLock(shared_dir / f"{name}.lock"):
        if path.exists():
            return Run(0, "", json.loads(path.read_text()))
        made = run()
    assert made.returncode == 0, made.log
    return made
