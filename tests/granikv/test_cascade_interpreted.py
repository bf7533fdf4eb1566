"""Runs the steps of cascade and Hydragen through Triton's interpreter, in their own process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]


def test_the_steps_interpreted_on_the_cpu() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x"]
    done = subprocess.run(
        [*command, "tests/granikv/test_cascade_step.py", "tests/granikv/test_hydragen.py"],
        cwd=ROOT,
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    assert passed, "a test was skipped or deselected:\n" + done.stdout
    assert int(passed[1]) > 50
