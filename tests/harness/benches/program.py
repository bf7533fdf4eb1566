"""A benchmark program that measures nothing: it counts its runs and prints what a file holds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

directory = Path(os.environ["PROGRAM"])
with (directory / "runs").open("a") as runs:
    runs.write(" ".join(sys.argv[1:]) + "\n")
if (directory / "hangs").exists():
    time.sleep(60)
if (directory / "fails").exists():
    print("first\nkernels: no CUDA device is usable here", file=sys.stderr)
    raise SystemExit(2)
print((directory / "report.json").read_text())
