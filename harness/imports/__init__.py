"""Results of other benchmarks, read as runs with our metrics' names and units.

read(Path("sglang_1130.jsonl"))     of `python -m sglang.benchmark.serving`
read(Path("vllm-result.json"))      of `vllm bench serve --save-result` (or --append-result)
"""

from harness.imports.read import read
from harness.imports.run import Run

__all__ = ["Run", "read"]
