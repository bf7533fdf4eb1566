"""The torch backends on CUDA tensors, and calibration of a GPU."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from granikv.calibrate import PROBLEMS, main
from granikv.hardware import load_profile
from tests.granikv.attention_cases import TOLERANCE, Shared, build, relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

# On CUDA the softmax weights are 16-bit operands too, as in every fused kernel.
HALF_TOLERANCE = 6e-3
CUDA = torch.device("cuda")

NESTED = (
    [1140, 1150, 1160, 1170, 90, 1075, 70],
    [
        Shared((0, 1, 2, 3, 4, 5, 6), 0, 64),
        Shared((0, 1, 2, 3), 64, 1000),
        Shared((1, 3), 1070, 40),
    ],
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [(4, 2), (32, 8), (20, 4), (7, 1)])
@pytest.mark.parametrize("name", ["paged", "cascade", "dense", "contiguous_unshared"])
def test_gpu_matches_the_reference_on_the_cpu(
    name: str, heads: tuple[int, int], dtype: torch.dtype
) -> None:
    case = build(*NESTED, heads=heads, d=128, dtype=dtype)
    actual = case.to(CUDA).decode(name)
    assert actual.is_cuda
    assert actual.dtype == dtype
    tolerance = TOLERANCE[dtype] if dtype == torch.float32 else HALF_TOLERANCE
    assert relative_error(actual.cpu(), case.expected()) <= tolerance


@pytest.mark.parametrize("name", ["paged", "cascade"])
def test_gpu_reads_ordinary_pages(name: str) -> None:
    case = build(*NESTED, slabs=False, d=128, dtype=torch.bfloat16)
    actual = case.to(CUDA).decode(name).cpu()
    assert relative_error(actual, case.expected()) <= HALF_TOLERANCE


def test_calibration_of_a_gpu_ends_within_a_minute(tmp_path: Path) -> None:
    begin = time.monotonic()
    assert main(["--device", "cuda", "--out", str(tmp_path / "gpu.yaml")]) == 0
    assert time.monotonic() - begin < 60
    profile = load_profile(tmp_path / "gpu.yaml")
    assert profile.title == torch.cuda.get_device_name()
    assert profile.bandwidth_gbps is not None
    assert profile.bandwidth_gbps > 100
    assert profile.m_sat is None or profile.m_sat in PROBLEMS["cuda"].m_effs
    assert profile.cost is not None
    assert "dense" in profile.cost.shared
    assert max(residuals.median for residuals in profile.cost.residuals.values()) < 0.1
