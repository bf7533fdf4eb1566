"""The Hopper kernels compile for sm_90a, on any machine, within what a multiprocessor has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
REGISTERS = 65_536
SHARED = 233_472
"""Bytes of shared memory of a multiprocessor; each program takes 1 KiB more than it asks for."""
STACK = 48
"""Bytes a thread that may be put off to memory: a few values of the ring's walk."""


@pytest.fixture(scope="module")
def compiled() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("hopper_compile.py"))],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TRITON_INTERPRET": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if "0 compatible backends" in done.stderr or "No module named" in done.stderr:
        pytest.skip("this build of Triton has no NVIDIA backend")
    assert done.returncode == 0, done.stderr
    kernels: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return kernels


def test_every_role_uses_the_tensor_cores_and_asynchronous_copies(compiled: dict[str, Any]) -> None:
    prefix, ring = (
        compiled["launches"]["_prefix_kernel_hopper"],
        compiled["launches"]["_suffix_kernel_hopper"],
    )
    fused = compiled["fused"]["_fused_kernel_hopper"]
    assert prefix["wgmma"]
    assert prefix["bulk_copies"]
    assert ring["wgmma"]
    assert ring["copies"]
    assert fused["copies"] >= ring["copies"]
    assert fused["bulk_copies"] == prefix["bulk_copies"]


def test_no_kernel_spills_or_asks_for_too_much(compiled: dict[str, Any]) -> None:
    for kernels in compiled.values():
        for kernel in kernels.values():
            assert kernel["stack"] <= STACK
            assert kernel["registers"] * kernel["warps"] * 32 <= REGISTERS
            assert kernel["shared"] + 1024 <= SHARED


def test_launches_that_begin_early_wait_for_the_one_before(compiled: dict[str, Any]) -> None:
    assert compiled["fused"]["_fused_kernel_hopper"]["triggers"] == 1
    for kernels in compiled.values():
        assert kernels["_merge_kernel"]["waits"] == 1
    launches = compiled["launches"]
    assert launches["_prefix_kernel_hopper"]["triggers"] == 1
    assert launches["_suffix_kernel_hopper"]["triggers"] == 1
    assert launches["_suffix_kernel_hopper"]["waits"] == 1
