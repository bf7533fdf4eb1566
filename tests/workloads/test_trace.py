"""Replay of block traces: exact lengths, exactly the recorded sharing, faults in one line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.configs import shipped
from workloads import NO_PREFIX, Request, Workload, WorkloadError, build
from workloads.block_trace import read

BLOCK = 8
LINES = [
    {"timestamp": 1000, "input_length": 20, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 1000, "input_length": 24, "output_length": 1, "hash_ids": [0, 1, 3]},
    {"timestamp": 2500, "input_length": 9, "output_length": 7, "hash_ids": [0, 4], "group": "A"},
    {"timestamp": 4000, "input_length": 20, "output_length": 3, "hash_ids": [0, 1, 2]},
    {"timestamp": 4000, "input_length": 3, "output_length": 3, "hash_ids": [9]},
]
REAL = Path(__file__).parents[3] / "shared" / "data" / "traces"


def written(path: Path, lines: Sequence[Any] = LINES) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def trace(path: Path | None, **changes: Any) -> Workload:
    return build(
        {
            "kind": "trace",
            "trace_file": None if path is None else str(path),
            "block_tokens": BLOCK,
            "vocab_size": 64,
            **changes,
        }
    )


def common(one: Request, other: Request) -> int:
    """Tokens that two prompts share from the start."""
    length = min(one.prompt_len, other.prompt_len)
    differ = np.flatnonzero(one.input_ids[:length] != other.input_ids[:length])
    return int(differ[0]) if differ.size else length


def test_lengths_times_and_sharing_are_the_trace_s(tmp_path: Path) -> None:
    workload = trace(written(tmp_path / "t.jsonl"))
    requests = workload.requests
    assert [r.prompt_len for r in requests] == [20, 24, 9, 20, 3]
    assert [r.max_new_tokens for r in requests] == [5, 1, 7, 3, 3]
    assert [r.due_s for r in requests] == [0.0, 0.0, 1.5, 3.0, 3.0]
    shared = [common(a, b) for a, b in combinations(requests, 2)]
    assert shared == [16, 8, 20, 0, 8, 16, 0, 8, 0, 0]
    assert all(r.prefix_class == NO_PREFIX for r in requests)
    assert workload.reuse_is_timed
    assert workload.recorded_s == (0.0, 0.0, 1.5, 3.0, 3.0)


def test_the_same_seed_gives_the_same_tokens(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl")
    assert trace(path).sha256 == trace(written(tmp_path / "u.jsonl.gz")).sha256
    assert trace(path).sha256 != trace(path, seed=43).sha256
    assert str(tmp_path) not in json.dumps(trace(path).parameters) + trace(path).provenance


def test_hash_golden() -> None:
    built = build(shipped("trace_cpu", vocab_size=512))
    assert built.sha256 == "1ee9925a083edf95d72adf365ff2e722d4a62ad048d31232ab3b879fa7e25800"


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl")
    part = trace(path, skip=1, requests=2, max_prompt=20)
    assert [r.prompt_len for r in part.requests] == [9, 20]
    assert [r.due_s for r in part.requests] == [0.0, 1.5]
    assert len(trace(path, requests=3, max_prompt=9).requests) == 2
    with pytest.raises(WorkloadError, match="no request of at most 2 prompt tokens after the firs"):
        trace(path, max_prompt=2)
    with pytest.raises(WorkloadError, match="the trace has no request after the first 5"):
        trace(path, skip=5)


def test_scaled_down_the_sharing_stays(tmp_path: Path) -> None:
    requests = trace(written(tmp_path / "t.jsonl"), scale=4).requests
    assert [r.prompt_len for r in requests] == [5, 6, 3, 5, 1]
    assert [r.max_new_tokens for r in requests] == [2, 1, 2, 1, 1]
    assert [common(a, b) for a, b in combinations(requests, 2)][:4] == [4, 2, 5, 0]
    with pytest.raises(WorkloadError, match="scale 3 must divide block_tokens 8"):
        trace(tmp_path / "t.jsonl", scale=3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hash_ids": [0, 1]}, "20 tokens are 3 blocks of 8, hash_ids has 2"),
        ({"hash_ids": None}, "hash_ids must be a list of integers"),
        ({"hash_ids": [0, 1, "x"]}, "hash_ids must be a list of integers"),
        ({"hash_ids": [5, 1, 2]}, "block 1 follows block 0 before and block 5 here"),
        ({"input_length": 0}, "input_length and output_length must be integers of at least 1"),
        ({"output_length": None}, "input_length and output_length must be integers"),
        ({"timestamp": "now"}, "timestamp must be milliseconds, not 'now'"),
        ({"timestamp": 5}, "its timestamp is before the last one's"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = written(tmp_path / "t.jsonl", [*LINES[:3], {**LINES[3], **changes}])
    with pytest.raises(WorkloadError, match=f"t.jsonl, line 4: {words}") as caught:
        trace(path)
    assert "\n" not in str(caught.value)


def test_a_missing_or_foreign_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"none\.jsonl cannot be read: No such file"):
        trace(tmp_path / "none.jsonl")
    (tmp_path / "x.jsonl").write_text("timestamp,ContextTokens\n")
    with pytest.raises(WorkloadError, match="line 1: it is not JSON"):
        trace(tmp_path / "x.jsonl")
    (tmp_path / "y.jsonl.gz").write_text("{}")
    with pytest.raises(WorkloadError, match="cannot be read: it is not text"):
        trace(tmp_path / "y.jsonl.gz")
    (tmp_path / "e.jsonl").write_text("\n")
    with pytest.raises(WorkloadError, match="is empty"):
        trace(tmp_path / "e.jsonl")
    with pytest.raises(WorkloadError, match="one of conversation, toolagent"):
        trace(None, trace="other")


def test_a_vocabulary_too_small_for_the_sharing_is_refused(tmp_path: Path) -> None:
    lines = [{**LINES[0], "input_length": 8, "hash_ids": [block]} for block in range(62)]
    with pytest.raises(WorkloadError, match="62 different first tokens are needed"):
        trace(written(tmp_path / "t.jsonl", lines))


@pytest.mark.parametrize(
    ("name", "requests", "seconds"), [("conversation", 2000, 669.0), ("toolagent", 269, 39.7)]
)
def test_the_shipped_excerpts(name: str, requests: int, seconds: float) -> None:
    built = build(shipped("trace", trace=name, requests=None, max_prompt=None, scale=32))
    assert len(built.requests) == requests
    assert built.requests[-1].due_s == pytest.approx(seconds, abs=0.05)
    assert common(built.requests[0], built.requests[1]) == 16  # block 0, of 512 / 32 tokens


@pytest.mark.skipif(not REAL.is_dir(), reason="the traces are not here")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("conversation", "mooncake_conversation_trace.jsonl.gz"),
        ("toolagent", "mooncake_toolagent_excerpt.jsonl"),
    ],
)
def test_real_traces_are_read_and_the_excerpts_are_theirs(name: str, file: str) -> None:
    assert len(read(REAL / file, 512)) in (12_031, 269)
    config = shipped("trace", trace=name, requests=200, scale=32)
    assert build(config).sha256 == build(config | {"trace_file": str(REAL / file)}).sha256
