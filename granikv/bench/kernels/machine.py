"""The device of a run: its names, and the ceilings that floors are counted against."""

from __future__ import annotations

import platform

import torch
import triton

from granikv.bench.kernels.cases import Ceilings
from granikv.calibrate import PROBLEMS, measure_bandwidth, measure_peak


def ceilings() -> Ceilings:
    """Copy bandwidth and matrix-product peak, measured now, in a few seconds."""
    problem = PROBLEMS["cuda"]._replace(seconds=3.0)
    return Ceilings(measure_bandwidth("cuda", problem), measure_peak("cuda", problem))


def machine() -> dict[str, str]:
    """Device and versions, for the head of a report."""
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
