"""Traces in Mooncake's form: arrival time, lengths, and the hashes of a prompt's blocks.

One JSON object a line: `timestamp` (ms), `input_length` and `output_length` (tokens), `hash_ids`
(one a block of 512 prompt tokens, the last one partial). A block's id stands for the block and all
before it: two prompts share exactly the blocks whose ids they share. Other keys are left alone.
Source: "Mooncake: A KVCache-centric Disaggregated Architecture for LLM Serving", FAST 2025.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from workloads.request import WorkloadError

ROOT = -1
"""The parent of a prompt's first block."""


@dataclass(frozen=True)
class TraceRequest:
    """One line. timestamp_ms: since the trace's beginning. blocks: ids, in order."""

    timestamp_ms: float
    input_length: int
    output_length: int
    blocks: tuple[int, ...]


def read(path: Path, block_tokens: int) -> list[TraceRequest]:
    """The requests of a trace, in order; `.gz` is unpacked.

    Raises WorkloadError, naming the line, for a file that is not there or not in this form: keys
    missing or of the wrong kind, a number of blocks that does not fit the length, times that run
    backwards, a block behind two different blocks.
    """
    requests: list[TraceRequest] = []
    parents: dict[int, int] = {}
    for number, line in _lines(path):
        try:
            request = _request(json.loads(line), block_tokens)
            if requests and request.timestamp_ms < requests[-1].timestamp_ms:
                raise WorkloadError("its timestamp is before the last one's")
            _check_chain(request.blocks, parents)
        except (ValueError, WorkloadError) as error:
            reason = error if isinstance(error, WorkloadError) else "it is not JSON"
            raise WorkloadError(f"trace {path}, line {number}: {reason}") from None
        requests.append(request)
    if not requests:
        raise WorkloadError(f"trace {path} is empty")
    return requests


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text (or not gzip, as .gz says)"
        raise WorkloadError(f"trace {path} cannot be read: {reason}") from None


def _request(line: Any, block_tokens: int) -> TraceRequest:
    if not isinstance(line, dict):
        raise WorkloadError("it is no JSON object")
    time = line.get("timestamp")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < 1e15:
        raise WorkloadError(f"timestamp must be milliseconds, not {time!r}")
    prompt, output = line.get("input_length"), line.get("output_length")
    if not _is_integer(prompt, 1) or not _is_integer(output, 1):
        raise WorkloadError(
            f"input_length and output_length must be integers of at least 1, not {prompt!r} and "
            f"{output!r}"
        )
    blocks = line.get("hash_ids")
    if not isinstance(blocks, list) or not all(_is_integer(block, 0) for block in blocks):
        raise WorkloadError("hash_ids must be a list of integers of at least 0")
    needed = -(-prompt // block_tokens)
    if len(blocks) != needed:
        raise WorkloadError(
            f"{prompt} tokens are {needed} blocks of {block_tokens}, hash_ids has {len(blocks)}"
        )
    return TraceRequest(float(time), prompt, output, tuple(blocks))


def _is_integer(value: Any, minimum: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _check_chain(blocks: tuple[int, ...], parents: dict[int, int]) -> None:
    for parent, block in zip((ROOT, *blocks), blocks, strict=False):
        if parents.setdefault(block, parent) != parent:
            raise WorkloadError(
                f"block {block} follows block {parents[block]} before and block {parent} here: "
                "ids must stand for a block and all before it"
            )


def siblings(requests: list[TraceRequest]) -> dict[int, int]:
    """Of each block, its number among those that follow the same block, by first appearance."""
    numbers: dict[int, int] = {}
    count: dict[int, int] = {}
    for request in requests:
        for parent, block in zip((ROOT, *request.blocks), request.blocks, strict=False):
            if block not in numbers:
                numbers[block] = count.get(parent, 0)
                count[parent] = numbers[block] + 1
    return numbers
