"""A burst behind warm prefixes on one engine, in this process: `python -m granikv.engine.burst`.

The quickest end-to-end look at a machine without the harness: B requests at once behind k primed
prefixes, a number of repetitions, JSON out. Random token ids; dummy weights unless a model has its
own. TPOT is taken at the client from streamed counts, so it includes the engine's host side.

    python -m granikv.engine.burst --model DIR --prefix 16384 --rows 256                  # stock
    python -m granikv.engine.burst --model DIR --prefix 16384 --rows 256 --backend dense  # GraniKV
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from granikv.config import BACKENDS, GraniKVConfig
from granikv.flags import engine_options

SUFFIX_TOKENS = 64


class Reply(NamedTuple):
    """One request, from sending on."""

    ttft_s: float
    tpot_ms: float
    tokens: int


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bursts and print one JSON document."""
    options = _parser().parse_args(argv)
    engine = _engine(options)
    try:
        bursts = [_burst(engine, options, repetition) for repetition in range(options.repetitions)]
        state = engine.get_server_info()["internal_states"][0].get("granikv", [None])[0]
    finally:
        engine.shutdown()
    report = {
        "bench": "burst",
        "backend": options.backend or "stock",
        "prefixes": options.prefix,
        "rows": options.rows,
        "output_tokens": options.output,
        "suffix_tokens": SUFFIX_TOKENS,
        "engine": options.engine,
        "bursts": bursts,
        "counters": None if state is None else state["counters"],
    }
    print(json.dumps(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--model", required=True, help="folder with config.json")
    parser.add_argument("--prefix", type=int, nargs="+", required=True, help="tokens of each class")
    parser.add_argument("--rows", type=int, default=256, help="requests at once")
    parser.add_argument("--output", type=int, default=128, help="output tokens of each")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=120_000, help="largest token id")
    parser.add_argument("--backend", choices=BACKENDS, help="GraniKV with this backend; else stock")
    parser.add_argument("--hot-fraction", type=float, default=0.2)
    parser.add_argument(
        "--engine", type=json.loads, default={}, help="further arguments of sglang.Engine, as JSON"
    )
    return parser


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the examples' lines."""


def _engine(options: argparse.Namespace) -> Any:
    import sglang

    arguments: dict[str, Any] = {
        "model_path": options.model,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "grammar_backend": "none",
        "max_running_requests": options.rows,
        "stream_interval": 16,
        "random_seed": 0,
        "log_level": "warning",
        **options.engine,
    }
    if options.backend is not None:
        config = GraniKVConfig(backend=options.backend, hot_fraction=options.hot_fraction)
        config.store()
        arguments |= engine_options(config)
    return sglang.Engine(**arguments)


def _burst(engine: Any, options: argparse.Namespace, repetition: int) -> dict[str, float]:
    """Prime every class, then send all rows at once."""
    heads = [_tokens(f"prefix {i}", n, options) for i, n in enumerate(options.prefix)]
    run = engine.loop.run_until_complete
    for number, head in enumerate(heads):
        tail = _tokens(f"prime {repetition} {number}", 8, options)
        run(_one(engine, head + tail, 1))
        run(_one(engine, [*head, *reversed(tail)], 2))
    prompts = [
        heads[i % len(heads)] + _tokens(f"suffix {repetition} {i}", SUFFIX_TOKENS, options)
        for i in range(options.rows)
    ]

    async def all_rows() -> list[Reply]:
        return list(await asyncio.gather(*[_one(engine, p, options.output) for p in prompts]))

    start = time.perf_counter()
    replies = run(all_rows())
    wall_s = time.perf_counter() - start
    if any(reply.tokens != options.output for reply in replies):
        raise SystemExit("burst: a reply is shorter than asked; nothing is reported")
    result = {
        "wall_s": wall_s,
        "output_tok_s": options.rows * options.output / wall_s,
        "tpot_p50_ms": statistics.median(reply.tpot_ms for reply in replies),
        "ttft_p50_s": statistics.median(reply.ttft_s for reply in replies),
    }
    print(f"burst {repetition}: {result['output_tok_s']:,.0f} output tok/s", file=sys.stderr)
    return result


async def _one(engine: Any, prompt: list[int], output: int) -> Reply:
    sampling = {"temperature": 0, "max_new_tokens": output, "ignore_eos": True}
    start = time.perf_counter()
    stream = await engine.async_generate(input_ids=prompt, sampling_params=sampling, stream=True)
    first, first_tokens, last, tokens = 0.0, 0, start, 0
    async for part in stream:
        last, tokens = time.perf_counter(), int(part["meta_info"]["completion_tokens"])
        if not first:
            first, first_tokens = last, tokens
    decoded = max(1, tokens - first_tokens)
    return Reply(first - start, (last - first) / decoded * 1000, tokens)


def _tokens(seed: str, length: int, options: argparse.Namespace) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(3, options.vocabulary) for _ in range(length)]


if __name__ == "__main__":
    raise SystemExit(main())
