"""Compilation inside the measured window: what a log says of it, and what the caches show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.servers import compilation

COMPILING = [
    ("CUDA graph capture", "[2026-01-01 00:00:01] Capture target decode CUDA graph begin. bs=[8]"),
    ("CUDA graph capture", "Capturing batches (bs=256 avail_mem=18.55 GB):   0%|          | 0/4"),
    ("CUDA graph capture", "Capturing num tokens (num_tokens=8192 avail_mem=20.18 GB):  0%| | 0/8"),
    ("CUDA graph capture", "[2026-01-01 00:00:01] captured 12 CUDA graphs, deduped to 3 execs"),
    ("Triton autotuning", "Triton autotuning for function _fwd_kernel,"),
    ("Triton autotuning", "Autotuning kernel _fwd_kernel with config BLOCK_M: 64, num_warps: 4"),
    (
        "FlashInfer autotuning",
        "2026-01-01 00:00:01,008 - INFO - autotuner.py:256 - flashinfer.jit: "
        "[Autotuner]: Autotuning process starts ...",
    ),
    ("FlashInfer autotuning", "[AutoTuner]: Tuning fp4_gemm:   0%|          | 0/23"),
    ("FlashInfer autotuning", "[2026-01-01 00:00:01] Running FlashInfer autotune with cache: x"),
    (
        "FlashInfer JIT",
        "2026-01-01 00:00:01,9 - INFO - bgmv_moe.py:130 - flashinfer.jit: Generated BGMV MoE JIT",
    ),
    ("torch.compile", "AUTOTUNE mm(256x4096, 4096x4096)"),
    ("torch.compile", "[2026-01-01 00:00:01] Compiling a graph for dynamic shape takes 3.10 s"),
    ("DeepGEMM", "[2026-01-01 00:00:01] Try DeepGEMM JIT Compiling for <GEMM> N=1, K=2"),
    ("SGLang JIT", "Cached JIT module sgl_kernel_jit_x failed to load; rebuilding."),
    ("a C++ or CUDA build", "[1/3] /usr/local/cuda/bin/nvcc -c batch_decode.cu -o batch_decode.o"),
    ("a C++ or CUDA build", "ninja: Entering directory `build'"),
    ("a C++ or CUDA build", "Emitting ninja build file /x/build.ninja..."),
    ("a C++ or CUDA build", "ptxas info    : 0 bytes gmem"),
    ("compilation", "just-in-time compilation of merge_states took 4 s"),
]

SERVING = """\
[2026-01-01 00:00:01] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: \
0.02, #running-req: 0, #queue-req: 0, #pending-token: 8, cuda graph: True
[2026-01-01 00:00:02] Decode batch, #running-req: 256, #token: 45056, token usage: 0.05, cuda \
graph: True, gen throughput (token/s): 3528.05, #queue-req: 0
[2026-01-01 00:00:02] INFO:     127.0.0.1:51234 - "POST /generate HTTP/1.1" 200 OK
[2026-01-01 00:00:03] Cache flushed successfully!
[2026-01-01 00:00:03] server_args=ServerArgs(torch_compile_max_bs=32, tag='Compiling')
ninja: no work to do.
"""


@pytest.mark.parametrize(("what", "line"), COMPILING)
def test_a_line_of_compiling_is_recognised(what: str, line: str) -> None:
    (found,) = compilation.in_text(f"{SERVING}{line}\n{SERVING}")
    assert found.startswith(f"{what}: {line[:40]}")


def test_the_lines_of_serving_are_none() -> None:
    assert compilation.in_text(SERVING) == []


def test_each_pattern_has_its_example() -> None:
    assert {what for what, _ in COMPILING} == set(compilation.PATTERNS)


def test_a_progress_bar_is_read_between_its_carriage_returns() -> None:
    assert len(compilation.in_text("0%\rCapturing batches (bs=8)\rCapturing batches (bs=4)\n")) == 2


def test_only_what_is_logged_inside_the_window_counts(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("Capturing batches (bs=8)\n")
    with compilation.watch(log) as quiet, log.open("a") as file:
        file.write("Decode batch, cuda graph: True\n")
    with compilation.watch(log) as busy, log.open("a") as file:
        file.write("AUTOTUNE mm(1x2, 2x3)\n")
    with log.open("a") as file:
        file.write("Capturing batches (bs=4)\n")
    assert quiet.reasons == []
    assert busy.found == ["torch.compile: AUTOTUNE mm(1x2, 2x3)"]
    assert "compiled inside the measured window: torch.compile" in busy.reasons[0]


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    with compilation.watch(tmp_path / "none.log") as compiled:
        pass
    assert compiled.reasons == []


def test_a_kernel_that_appears_in_a_cache_counts(tmp_path: Path) -> None:
    """Triton prints nothing when it compiles: only its cache shows it."""
    cache, log = tmp_path / "triton" / "cache", tmp_path / "server.log"
    old, new = cache / "AAA" / "old.cubin", cache / "BBB" / "new.cubin"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    os.utime(old, (1.0, 1.0))
    with compilation.watch(log, [cache]) as compiled:
        new.parent.mkdir()
        new.write_bytes(b"")
        (new.parent / "group.json").write_text("{}")
    assert compiled.found == ["new kernel new.cubin"]


def test_the_caches_are_those_of_the_servers_environment() -> None:
    chosen = {"HOME": "/h", "TRITON_CACHE_DIR": "/t", "FLASHINFER_WORKSPACE_BASE": "/f"}
    found = [str(path) for path in compilation.caches_of(chosen)]
    assert found[:3] == ["/t", "/f/.cache/flashinfer", "/h/.cache/tvm-ffi"]
    assert compilation.caches_of({"TRITON_HOME": "/t", "HOME": "/h"})[0] == Path("/t/.triton/cache")
