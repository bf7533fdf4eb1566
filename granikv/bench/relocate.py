"""Relocation of a prefix into a slab, K and V of every layer: `python -m granikv.bench.relocate`.

Timed by replaying a CUDA graph, beside what moving its bytes takes at this device's measured copy
bandwidth. The default reads two gigabytes, far more than an L2 holds. JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import torch

from granikv.attention.kernels.relocate import Relocator
from granikv.bench.kernels import timing
from granikv.bench.kernels.cases import Ceilings, Work
from granikv.bench.kernels.machine import ceilings, machine
from granikv.calibrate import time_together


def relocation_record(
    seconds: float, ceilings: Ceilings, tokens: int = 16_384, layers: int = 32, device: str = "cuda"
) -> dict[str, Any]:
    """A prefix of `tokens`, 8 heads of 128 a layer, from scattered slots to a slab."""
    shape = (2 * tokens, 8, 128)
    buffers = [torch.randn(shape, device=device).bfloat16() for _ in range(2 * layers)]
    source = tokens + torch.randperm(tokens, device=device)
    target = torch.arange(tokens, device=device)
    relocator = Relocator(buffers)
    replay, launches = timing.captured(lambda _: relocator.copy(source, target), 1)
    (taken,) = time_together(torch.device(device).type, [replay], seconds)
    moved = 2 * sum(b[:tokens].numel() * b.element_size() for b in buffers)
    right = all(torch.equal(b[:tokens], b[source]) for b in (buffers[0], buffers[-1]))
    return {
        "case": f"{tokens} tokens, {layers} layers, 8 heads of 128",
        "pass": "relocation",
        "equal": right,
        **timing.microseconds(taken, launches),
        "gbps": round(moved * launches / taken.median / 1e9, 1),
        "copy_gbps": round(ceilings.bandwidth_gbps, 1),
        **Work(0, moved).floors(ceilings),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object; its exit status."""
    parser = argparse.ArgumentParser(prog="granikv.bench.relocate", description=__doc__)
    parser.add_argument("--tokens", type=int, default=16_384, help="length of the prefix")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print(
            "relocate: no CUDA device is usable here; run this on the GPU's machine",
            file=sys.stderr,
        )
        return 2
    record = relocation_record(options.seconds, ceilings(), options.tokens, options.layers)
    print(json.dumps({"bench": "relocate", **machine(), "records": [record]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
