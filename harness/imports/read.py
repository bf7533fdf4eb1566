"""Reading a file of another benchmark: which one it is, and its runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.imports import sglang, vllm
from harness.imports.run import NotAResultError, Run


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. fits: whether an object is a result of it. run: that result as a run."""

    source: str
    fits: Callable[[Mapping[str, Any]], bool]
    run: Callable[[Mapping[str, Any], str], Run]


BENCHMARKS = (
    Benchmark(sglang.SOURCE, sglang.fits, sglang.run),
    Benchmark(vllm.SOURCE, vllm.fits, vllm.run),
)


def read(path: Path) -> list[Run]:
    """The runs of a file; those with the same system, workload and load count as repetitions.

    Raises HarnessError, in one line, for a file that is none of these benchmarks' or is damaged.
    """
    runs: list[Run] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for line, result in _objects(path):
        run = _run(path, line, result)
        same = (run.source, run.system, run.model, run.workload, run.load)
        runs.append(replace(run, repetition=seen[same]))
        seen[same] += 1
    if not runs:
        raise HarnessError(f"{path} is empty")
    return runs


def _run(path: Path, line: int, result: Any) -> Run:
    known = " nor of ".join(benchmark.source for benchmark in BENCHMARKS)
    found = [one for one in BENCHMARKS if isinstance(result, dict) and one.fits(result)]
    if not found:
        raise HarnessError(f"{path}, line {line}: neither a result of {known}")
    try:
        return found[0].run(result, f"{path.name}:{line}")
    except NotAResultError as error:
        raise HarnessError(
            f"{path}, line {line}: a damaged result of {found[0].source}: {error}"
        ) from None


def _objects(path: Path) -> list[tuple[int, Any]]:
    """The JSON values of a file with the lines they begin on: one value, or one a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HarnessError(f"{path} cannot be read: {error}") from None
    try:
        return [(1, json.loads(text))] if text.strip() else []
    except ValueError:
        pass
    found = []
    for line, part in enumerate(text.splitlines(), 1):
        if part.strip():
            try:
                found.append((line, json.loads(part)))
            except ValueError as error:
                raise HarnessError(f"{path}, line {line}: no JSON: {error}") from None
    return found
