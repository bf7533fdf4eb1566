"""The kernel benchmark: its floors are those of the measured table, its cases what they say."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("triton")

from granikv.bench import relocate
from granikv.bench.kernels import (
    CASES,
    Ceilings,
    build,
    layers_for,
    work_of,
)
from granikv.bench.kernels.cli import main

H200 = Ceilings(bandwidth_gbps=4300.0, peak_tflops=790.0)


def test_floors_of_the_headline_shape() -> None:
    work = work_of(CASES[0])
    assert work["prefix"].floors(H200) == {"floor_flop_us": 43.49, "floor_bytes_us": 7.8}
    assert work["suffix"].floors(H200)["floor_bytes_us"] == pytest.approx(62.4, abs=0.1)
    assert work["whole"].floors(H200)["floor_bytes_us"] == pytest.approx(70.2, abs=0.1)


def test_equal_work_behind_different_compositions() -> None:
    by_name = {case.name: case for case in CASES}
    one = by_name["one class of 7,680"]
    assert by_name["four classes 2K/4K/8K/16K"].flop == one.flop
    assert by_name["4K read by all, then four of 4K"].flop == CASES[0].flop
    assert by_name["four classes of 8K"].flop == CASES[0].flop


def test_a_case_on_a_device_agrees_with_its_page_table() -> None:
    case = next(c for c in CASES if "read by all" in c.name)
    small = case._replace(
        rows=8,
        suffix=3,
        heads=(2, 1),
        d=16,
        reads=tuple(r._replace(first=r.first // 32, rows=r.rows // 32) for r in case.reads),
    )
    storage = build(small, 2, torch.device("cpu"), torch.float32)
    assert len(storage.k) == len(storage.v) == 2
    used = []
    for row, ranges in enumerate(storage.plan.paged):
        for segment in storage.plan.segments:
            if row in segment.rows:
                assert segment.base is not None
                slots = storage.page_table[row, segment.p0 : segment.p0 + segment.length]
                expected = torch.arange(segment.base, segment.base + segment.length)
                assert torch.equal(slots.long(), expected)
        used += storage.page_table[row, ranges[0].start : ranges[0].start + 3].tolist()
    assert len(set(used)) == 24
    assert min(used) > 5 * 4096
    assert max(used) < storage.k[0].shape[0]


def test_a_cold_cache_is_larger_than_the_l2() -> None:
    l2 = 60 * 2**20
    for case in CASES:
        assert layers_for(case, "warm", l2) == 1
        layers = layers_for(case, "cold", l2)
        assert layers * min(case.prefix_bytes, case.suffix_bytes) >= 3 * l2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for program in (main, relocate.main):
        assert program([]) == 2
        assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_records_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "B=32", "--seconds", "0.05"]) == 0
    report = json.loads(capsys.readouterr().out)
    records = [r for r in report["records"] if r["case"] != "ceilings"]
    assert {r["pass"] for r in records} >= {"prefix", "suffix", "whole", "relocation", "snapshot"}
    for record in records:
        assert record.get("relative_error", 0.0) <= 6e-3
        assert record.get("equal", True)
        # A tenth of slack: the ceilings are measured too, and so have an error themselves.
        if record["pass"] == "relocation" or record.get("l2") == "cold":
            assert record["us"] > 0.9 * record["floor_bytes_us"]
