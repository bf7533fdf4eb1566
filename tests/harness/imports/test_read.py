"""Results of other benchmarks: their numbers under our names and units."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.imports import read
from harness.metrics import METRICS, OBJECTIVES
from tests.harness.imports.results import sglang, vllm, write


def test_sglangs_numbers(tmp_path: Path) -> None:
    (run,) = read(write(tmp_path / "r.jsonl", sglang(cache_report={"cache_hit_rate_pct": 87.5})))
    assert run.source == "sglang.benchmark.serving"
    assert (run.id, run.system, run.model) == ("r.jsonl:1", "sglang", "llama")
    assert (run.workload, run.load) == ("random-ids 512+128", "B=8 at once")
    assert run.metrics["output_tok_s"] == 1024.0
    assert run.metrics["total_tok_s"] == 5120.0
    assert run.metrics["request_per_s"] == 8.0
    assert run.metrics["ttft_p50_s"] == pytest.approx(0.05)
    assert run.metrics["ttft_p99_s"] == pytest.approx(0.1)
    assert run.metrics["tpot_p50_ms"] == 6.5
    assert run.metrics["itl_p90_ms"] == pytest.approx(9.6)
    assert run.metrics["e2e_p50_s"] == pytest.approx(0.9)
    assert run.metrics["hit_rate"] == 0.875
    assert (run.metrics["requests"], run.metrics["duration_s"]) == (100.0, 12.5)
    assert run.settings["server.page_size"] == 16
    assert run.reasons == []


def test_vllms_numbers(tmp_path: Path) -> None:
    (run,) = read(write(tmp_path / "r.json", vllm(request_goodput=9.0, median_e2el_ms=700.0)))
    assert run.source == "vllm bench serve"
    assert (run.system, run.model) == ("vllm", "meta-llama/Llama-3.1-8B")
    assert (run.workload, run.load) == ("100 prompts of 512 tokens", "at once")
    assert run.metrics["output_tok_s"] == 1280.0
    assert run.metrics["total_tok_s"] == 6400.0
    assert run.metrics["ttft_p50_s"] == pytest.approx(0.04)
    assert run.metrics["tpot_p99_ms"] == 11.0
    assert run.metrics["e2e_p50_s"] == pytest.approx(0.7)
    assert run.metrics["goodput_req_s"] == 9.0
    assert math.isnan(run.metrics["ttft_p90_s"])


@pytest.mark.parametrize("result", [sglang(median_ttft_ms=0.0), vllm(median_ttft_ms=0.0)])
def test_a_latency_of_zero_was_not_measured(tmp_path: Path, result: dict[str, Any]) -> None:
    (run,) = read(write(tmp_path / "r.json", result))
    assert math.isnan(run.metrics["ttft_p50_s"])
    assert run.metrics["tpot_p50_ms"] > 0


def test_every_imported_metric_is_one_of_ours(tmp_path: Path) -> None:
    for result in (sglang(), vllm()):
        (run,) = read(write(tmp_path / "r.json", result))
        assert set(run.metrics) <= METRICS.keys() | OBJECTIVES.keys()


def test_lines_of_the_same_experiment_are_repetitions(tmp_path: Path) -> None:
    other = sglang(max_concurrency=16)
    found = read(write(tmp_path / "r.jsonl", sglang(), other, sglang(), sglang(tag="tuned")))
    assert [(run.system, run.load, run.repetition) for run in found] == [
        ("sglang", "B=8 at once", 0),
        ("sglang", "B=16 at once", 0),
        ("sglang", "B=8 at once", 1),
        ("tuned", "B=8 at once", 0),
    ]
    assert [run.id for run in found] == [f"r.jsonl:{line}" for line in (1, 2, 3, 4)]


def test_a_file_may_be_indented(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(vllm(), indent=2))
    assert len(read(path)) == 1


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (vllm(failed=3), "3 requests failed"),
        (vllm(completed=0), "no request was completed"),
        (sglang(completed=0), "no request was completed"),
        (sglang(errors=["", "timeout", ""]), "1 requests failed"),
    ],
)
def test_failed_requests_make_a_run_invalid(
    tmp_path: Path, result: dict[str, Any], reason: str
) -> None:
    (run,) = read(write(tmp_path / "r.json", result))
    assert list(run.reasons) == [reason]


def without(result: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != key}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            [{"a": 1}],
            "line 1: neither a result of sglang.benchmark.serving nor of vllm bench serve",
        ),
        ([3], "line 1: neither a result of"),
        ([[sglang()]], "line 1: neither a result of"),
        ([sglang(), {}], "line 2: neither a result of"),
        (
            [sglang(output_throughput=None)],
            "result of sglang.benchmark.serving: 'output_throughput' is None, not a number",
        ),
        (
            [without(sglang(), "duration")],
            "a damaged result of sglang.benchmark.serving: no 'duration'",
        ),
        (
            [vllm(median_ttft_ms="fast")],
            "a damaged result of vllm bench serve: 'median_ttft_ms' is 'fast', not a number",
        ),
        ([without(vllm(), "output_throughput")], "of vllm bench serve: no 'output_throughput'"),
    ],
)
def test_what_is_no_result_is_one_line(tmp_path: Path, lines: list[Any], words: str) -> None:
    path = write(tmp_path / "r.jsonl", *lines)
    with pytest.raises(HarnessError) as caught:
        read(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"not json", "line 1: no JSON"),
        (b'{"total_throughput": 1,\n', "line 1: no JSON"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_that_is_no_json_is_one_line(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(data)
    with pytest.raises(HarnessError, match=words) as caught:
        read(path)
    assert "\n" not in str(caught.value)
