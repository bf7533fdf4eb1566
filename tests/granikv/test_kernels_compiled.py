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
STACK = 32
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
        compiled["streams"]["_prefix_kernel_hopper"],
        compiled["streams"]["_suffix_kernel_hopper"],
    )
    fused = compiled["fused"]["_fused_kernel_hopper"]
    assert prefix["wgmma"]
    assert prefix["bulk_copies"]
    assert ring["wgmma"]
    assert ring["copies"]
    assert fused["copies"] == ring["copies"]
    assert fused["bulk_copies"] == prefix["bulk_copies"]


def test_no_kernel_spills_or_asks_for_too_much(compiled: dict[str, Any]) -> None:
    for kernels in compiled.values():
        for kernel in kernels.values():
            assert kernel["stack"] <= STACK
            assert kernel["registers"] * kernel["warps"] * 32 <= REGISTERS
            assert kernel["shared"] + 1024 <= SHARED


def test_prefix_and_ring_fit_a_multiprocessor_together(compiled: dict[str, Any]) -> None:
    both = compiled["streams"].values()
    # Registers are given to a warp in units of 8 a thread.
    assert sum(-(-k["registers"] // 8) * 8 * k["warps"] * 32 for k in both) <= REGISTERS
    assert sum(k["shared"] + 1024 for k in both) <= SHARED
