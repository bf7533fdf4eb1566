"""Runs the tests of the kernels through Triton's interpreter, in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
TESTS = {
    "kernels": ["test_kernels.py"],
    "steps": [
        "test_cascade_step.py",
        "test_hydragen.py",
        "test_children.py::test_fused_children_interpreted",
    ],
}


@pytest.mark.parametrize("name", TESTS)
def test_interpreted_on_the_cpu(name: str) -> None:
    environment = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x"]
    done = subprocess.run(
        [*command, *(f"tests/granikv/{test}" for test in TESTS[name])],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    assert passed, "a test was skipped or deselected:\n" + done.stdout
    assert int(passed[1]) > 50
