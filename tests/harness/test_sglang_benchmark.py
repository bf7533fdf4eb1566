"""Our figures beside those of SGLang's own benchmark, on the real engine on the CPU.

    python -m pytest -m full tests/harness/test_sglang_benchmark.py -s

Same server, same shape of load (equal prompts and outputs, B in flight), turn and turn about. The
two must agree within what repetitions of either differ by.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from harness import cache, http, metrics
from harness.load.drive import Options, drive
from harness.models import tiny_llama
from workloads.request import Request

pytest.importorskip("sglang", reason="the engine is not installed: run `make setup`")
pytestmark = pytest.mark.full

REQUESTS, PROMPT, OUTPUT, PERMITS = 64, 64, 32, 8
REPETITIONS = 5
START_LIMIT_S = 240
NAMES = {
    "output_tok_s": "output_throughput",
    "request_per_s": "request_throughput",
    "ttft_p50_s": "median_ttft_ms",
    "tpot_p50_ms": "median_tpot_ms",
    "e2e_p50_s": "median_e2e_latency_ms",
}
"""Our metrics, and theirs; the two in s are in ms there."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.write(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = {
        "model-path": model, "host": "127.0.0.1", "port": port, "device": "cpu",
        "dtype": "float32", "attention-backend": "torch_native", "sampling-backend": "pytorch",
        "grammar-backend": "none", "max-total-tokens": 16384, "max-running-requests": 16,
    }  # fmt: skip
    flags = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
    # Their client takes no token for one without text: this server has a tokenizer.
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "sglang.launch_server", *flags),
            *("--disable-cuda-graph", "--incremental-streaming-output"),
        ],
        env={**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while http.request(f"{address}/health")[0] != 200:
            assert server.poll() is None, "the server did not start"
            assert time.monotonic() < deadline, "the server was not up in time"
            time.sleep(1)
        yield address
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def theirs(url: str, model: Path, out: Path) -> dict[str, float]:
    cache.flush(url)
    command = [
        sys.executable, "-m", "sglang.benchmark.serving", "--backend", "sglang",
        "--base-url", url, "--model", str(model), "--dataset-name", "random-ids",
        "--random-input-len", PROMPT, "--random-output-len", OUTPUT, "--random-range-ratio", 1,
        "--num-prompts", REQUESTS, "--max-concurrency", PERMITS, "--tokenize-prompt",
        "--disable-tqdm", "--output-file", out, "--warmup-requests", 1,
        "--seed", time.time_ns() % 2**31,
    ]  # fmt: skip
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(out.read_text().splitlines()[-1])
    assert found["completed"] == REQUESTS
    scale = {name: 1000.0 if name.endswith("_s") and theirs_.endswith("_ms") else 1.0
             for name, theirs_ in NAMES.items()}  # fmt: skip
    return {name: found[theirs_] / scale[name] for name, theirs_ in NAMES.items()}


def ours(url: str, seed: int) -> dict[str, float]:
    cache.flush(url)
    generator = np.random.default_rng(seed)
    requests = [
        Request(index, generator.integers(3, 512, PROMPT, dtype=np.int32), OUTPUT, due_s=0.0)
        for index in range(REQUESTS)
    ]
    outcome = drive(url, requests, Options(PERMITS, False, 120, 120), lambda: True)
    log = outcome.requests
    assert log["ok"].all(), log["error"].unique()
    assert (log["output_tokens"] == OUTPUT).all()
    return {name: metrics.compute(log)[name] for name in NAMES}


def test_figures_agree_within_the_noise(url: str, model: Path, tmp_path: Path) -> None:
    theirs(url, model, tmp_path / "warm.jsonl")
    ours(url, 0)
    runs: dict[str, list[dict[str, float]]] = {"theirs": [], "ours": []}
    for repetition in range(REPETITIONS):
        runs["theirs"].append(theirs(url, model, tmp_path / "out.jsonl"))
        runs["ours"].append(ours(url, 1 + repetition))
    wrong = []
    print()
    for name in NAMES:
        values = {who: [run[name] for run in each] for who, each in runs.items()}
        noise = max(stdev(each) for each in values.values())
        gap = mean(values["ours"]) - mean(values["theirs"])
        shown = {who: f"{mean(each):.4g} ± {stdev(each):.2g}" for who, each in values.items()}
        print(f"{name}: {shown}, gap {gap / mean(values['theirs']):+.1%}")
        if abs(gap) > 2 * noise:
            wrong.append(name)
    assert not wrong
