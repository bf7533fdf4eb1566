"""Table 5 of `granikv.bench.kernels` at a small size, through Triton's interpreter.

Run with TRITON_INTERPRET=1. Prints the report that the program prints on a GPU; the times are the
interpreter's.
"""

from __future__ import annotations

import json

import torch

from granikv import calibrate
from granikv.bench import kernels
from granikv.bench.kernels import timing
from tests.granikv import interpreter  # noqa: F401 - sets the interpreter up

CASE = kernels.Case("small", 4, 8, (4, 2), 32, (kernels.Read(0, 4, 0, 48),))


def main() -> None:
    """Without graphs, which the interpreter does not have, and no more than timed."""
    timing.captured = lambda launch, layers: (lambda: launch(0), 1)
    calibrate._MIN_REPEATS = 2
    ceilings = kernels.Ceilings(bandwidth_gbps=1000.0, peak_tflops=100.0)
    records = kernels.table5_records(0.0, ceilings, CASE, 1, device="cpu", dtype=torch.float32)
    print(json.dumps({"bench": "kernels", "device": "interpreter", "records": records}))


if __name__ == "__main__":
    main()
