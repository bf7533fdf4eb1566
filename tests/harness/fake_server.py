"""A stand-in for an inference server: SGLang's endpoints, a prefix cache, and faults on demand.

`python -m tests.harness.fake_server --port N ...` takes SGLang's flags. Faults are read from the
JSON file that the environment variable FAULTS names, at every request, so that one server serves
many tests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from aiohttp import web

STORAGE_CONFIG = {"hot_fraction": float, "admission": str, "min_tokens": int, "eviction": str}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model-path")
    parser.add_argument("--page-size", type=int, default=1)
    parser.add_argument("--attention-backend")
    parser.add_argument("--dtype")
    parser.add_argument("--stream-interval", type=int, default=1)
    parser.add_argument("--granikv", action="store_true")
    parser.add_argument("--sglang-cascade", action="store_true")
    parser.add_argument("--granikv-backend", default="auto")
    for name, kind in STORAGE_CONFIG.items():
        parser.add_argument("--granikv-" + name.replace("_", "-"), type=kind)
    return parser.parse_known_args(argv)[0]


@dataclass
class Fake:
    """The server's state. faults: a fixed dict, or the file of the environment variable FAULTS."""

    options: argparse.Namespace
    fixed_faults: dict[str, Any] | None = None
    prompts: list[list[int]] = field(default_factory=list)
    served: Counter[Any] = field(default_factory=Counter)
    refused: dict[Any, int] = field(default_factory=dict)
    counters: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            (
                "steps",
                "relocations",
                "steps_dense",
                "steps_cascade",
                "steps_paged",
                "steps_overflowed",
            ),
            0,
        )
    )
    in_flight: int = 0
    logged: Counter[Any] = field(default_factory=Counter)

    @property
    def faults(self) -> dict[str, Any]:
        if self.fixed_faults is not None:
            return self.fixed_faults
        path = os.environ.get("FAULTS")
        return json.loads(Path(path).read_text()) if path and Path(path).is_file() else {}

    def cached(self, prompt: list[int]) -> int:
        """Tokens of the longest stored prompt that opens this one, whole pages, one left to do."""
        best = 0
        for stored in self.prompts:
            same = 0
            for ours, theirs in zip(prompt, stored, strict=False):
                if ours != theirs:
                    break
                same += 1
            best = max(best, same)
        page = int(self.options.page_size)
        return min(best, len(prompt) - 1) // page * page

    def info(self) -> dict[str, Any]:
        faults = self.faults
        plugin = (self.options.granikv or self.options.sglang_cascade) and not faults.get("stock")
        state = {}
        if plugin:
            forced = self.options.granikv_backend
            state = {
                "system": "granikv" if self.options.granikv else "sglang_cascade",
                "config": {
                    **{name: getattr(self.options, "granikv_" + name) for name in STORAGE_CONFIG},
                    "hardware": "/somewhere/profiles/cpu.yaml",
                },
                "backends": {"decode": "granikv", "forced": None if forced == "auto" else forced},
                "pools": {
                    "capacity": 16384, "page_size": 1, "hot_start": 1, "hot_size": 6000,
                    "hot_free": 5992, "hot_live": 8, "hot_live_ranges": [[1, 8]],
                    "hot_donated": 0, "hot_donated_ranges": [],
                    "cold_free": 10000, "cold_live": 384,
                },
                "counters": dict(self.counters),
                "tree": [{"id": 1, "parent": None, "p0": 0, "length": 8, "pool": "HOT", "base": 1,
                          "readers": self.in_flight, "children": 0}],
            }  # fmt: skip
        return {
            "version": "0.5.17",
            "attention_backend": self.options.attention_backend,
            "page_size": self.options.page_size,
            "dtype": self.options.dtype,
            "radix_cache_backend": "granikv" if self.options.granikv else None,
            "internal_states": [{"granikv": [state]} if plugin else {}],
            **faults.get("info", {}),
        }


def application(fake: Fake) -> web.Application:
    app = web.Application(client_max_size=2**30)

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=200)

    async def server_info(_: web.Request) -> web.Response:
        return web.json_response(fake.info())

    async def flush(_: web.Request) -> web.Response:
        refused = fake.refused.get(fake.faults.get("nonce"), 0)
        if refused < fake.faults.get("refuse_flushes", 0) or fake.in_flight:
            fake.refused[fake.faults.get("nonce")] = refused + 1
            return web.Response(status=400, text="Flush cache failed: 1 request runs.\nLater.")
        if not fake.faults.get("flush_lies"):
            fake.prompts.clear()
        return web.Response(status=200)

    async def freeze(_: web.Request) -> web.Response:
        return web.Response(status=fake.faults.get("freeze_status", 200))

    async def generate(request: web.Request) -> web.StreamResponse:
        return await _generate(fake, request)

    app.add_routes(
        [
            web.get("/health", health),
            web.get("/server_info", server_info),
            web.post("/flush_cache", flush),
            web.post("/freeze_gc", freeze),
            web.post("/generate", generate),
        ]
    )
    return app


def tokens_of(prompt: list[int], count: int) -> list[int]:
    """The output is a function of the prompt, as greedy decoding is."""
    return [(sum(prompt) + 7 * i) % 500 for i in range(count)]


async def _generate(fake: Fake, request: web.Request) -> web.StreamResponse:
    body = await request.json()
    faults, prompt = fake.faults, body["input_ids"]
    asked = body["sampling_params"]["max_new_tokens"]
    measured = asked > faults.get("ignore_up_to", 4)
    # Counted from when the faults were set, whatever was served to the tests before.
    index = fake.served[faults.get("nonce")]
    fake.served[faults.get("nonce")] += measured
    if measured and "count" in faults:
        with Path(faults["count"]).open("a") as count:
            count.write("1\n")
    if not measured:
        faults = {key: faults[key] for key in ("flush_lies", "dirty") if key in faults}
    struck = measured and index % faults.get("every", 1) == 0
    if struck and "die_after" in faults and index >= faults["die_after"]:
        print("RuntimeError: out of memory, so to speak", flush=True)
        os._exit(9)
    if struck and "log" in faults and fake.logged[faults.get("nonce")] < faults.get("times", 99):
        fake.logged[faults.get("nonce")] += 1
        print(faults["log"], flush=True)
    if struck and "status" in faults:
        return web.Response(status=faults["status"], text="no such luck")
    cached = fake.cached(prompt) + faults.get("dirty", 0)
    if faults.get("never_cached"):
        cached = 0
    fake.in_flight += 1
    try:
        await asyncio.sleep(faults.get("ttft_s", 0.0))
        return await _stream(fake, request, prompt, asked, cached, faults if struck else {})
    finally:
        fake.in_flight -= 1


async def _stream(
    fake: Fake,
    request: web.Request,
    prompt: list[int],
    asked: int,
    cached: int,
    faults: dict[str, Any],
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    count = faults.get("tokens", asked)
    ids = tokens_of(prompt, count)
    first, group = faults.get("chunk", 1), faults.get("chunk", fake.options.stream_interval)
    ends = [*range(min(first, count), count, group), count] if count else []
    fake.counters["relocations"] += cached == 0 and not faults.get("silent")
    for start, done in pairwise([0, *ends]):
        if start:
            await asyncio.sleep(faults.get("tpot_s", 0.001))
            _count_step(fake, faults)
        reason = None
        if done == count:
            reason = {"type": faults.get("finish", "length"), "message": "because"}
        event = {
            "output_ids": ids[start:done] + faults.get("extra_ids", []),
            "padding": "x" * faults.get("padding", 0),
            "meta_info": {
                "prompt_tokens": len(prompt) + faults.get("prompt_drift", 0),
                "cached_tokens": cached,
                "completion_tokens": done,
                "finish_reason": None if faults.get("early_end") else reason,
            },
        }
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
    if "error" in faults:
        await response.write(
            b"data: " + json.dumps({"error": {"message": faults["error"]}}).encode() + b"\n\n"
        )
    await response.write(b"data: [DONE]\n\n")
    fake.prompts.append(prompt)
    return response


def _count_step(fake: Fake, faults: dict[str, Any]) -> None:
    if fake.faults.get("silent"):
        return
    forced = fake.options.granikv_backend
    if fake.options.sglang_cascade:
        forced = "cascade"
    backend = "dense" if forced == "auto" else forced
    for counter in ("steps", f"steps_{backend}"):
        fake.counters[counter] = fake.counters.get(counter, 0) + 1
    fake.counters["steps_overflowed"] += bool(faults.get("overflow"))


def main() -> None:
    options = arguments()
    fake = Fake(options)
    faults = fake.faults
    if "refuse_start" in faults:
        print(
            "Traceback (most recent call last):\n  File 'x'\n" + faults["refuse_start"], flush=True
        )
        sys.exit(1)
    if "orphan" in faults:
        sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(faults["orphan"]).write_text(str(sleeper.pid))
    try:
        web.run_app(application(fake), host=options.host, port=options.port, print=None)
    except OSError as error:
        print(f"OSError: {error}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
