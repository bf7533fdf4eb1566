"""The state of the server's prefix cache before a load: flushed, proven empty, then primed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import tenacity
from numpy.typing import NDArray

from harness import http
from harness.client import Client, Reply, body
from harness.errors import ServerError

logger = logging.getLogger(__name__)

EMPTY, PRIMED = "empty", "primed"
"""The state of the cache when a load begins, as cell.json has it."""

FLUSH_TIMEOUT_S = 60.0
FLUSH_PAUSE_S = 0.2


def flush(url: str) -> int:
    """Empty the cache; how many times the server refused before it did. Raises ServerError.

    The engine refuses while anything is pending, just after a stream too, and says so by status.
    The error repeats what it said last.
    """
    answers: list[str] = []

    def accepted() -> bool:
        status, said = http.request(f"{url}/flush_cache", post=True)
        if status == 0:
            raise ServerError("the server did not answer the flush")
        if status != 200:
            answers.append(f"status {status} {_first_line(said)}".strip())
        return status == 200

    flushing = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda ok: not ok),
        wait=tenacity.wait_fixed(FLUSH_PAUSE_S),
        stop=tenacity.stop_after_delay(FLUSH_TIMEOUT_S),
    )
    try:
        flushing(accepted)
    except tenacity.RetryError:
        raise ServerError(
            f"the server refused to flush its cache for {FLUSH_TIMEOUT_S:.0f} s, "
            f"{len(answers)} times: {answers[-1]}"
        ) from None
    return len(answers)


def _first_line(said: bytes) -> str:
    return (said.decode("utf-8", "replace").strip().splitlines() or [""])[0][:200]


def ask(url: str, prompts: Sequence[Sequence[int]], timeout_s: float) -> list[Reply]:
    """Send prompts one after the other for one token each. Raises ServerError for a failed one."""

    async def run() -> list[Reply]:
        client = Client(url, timeout_s)
        return [await client.generate(body(list(prompt), 1)) for prompt in prompts]

    replies = asyncio.run(run())
    for reply in replies:
        reply.parse()
        if not reply.ok:
            raise ServerError(f"a request before the load failed: {reply.error}")
    return replies


def prove_empty(url: str, warmed: Sequence[int], timeout_s: float) -> dict[str, Any]:
    """Flush, then ask again for a prompt that the warm-up left in the cache: none may be cached.

    Returns the proof for cell.json; the cache is empty again afterwards. Raises ServerError.
    """
    refused = flush(url)
    cached = ask(url, [warmed], timeout_s)[0].cached_tokens
    if cached:
        raise ServerError(
            f"the cache is not empty after a flush: {cached} tokens were still cached"
        )
    refused += flush(url)
    return {
        "state": EMPTY,
        "probe_tokens": len(warmed),
        "probe_cached_tokens": cached,
        "flushes_refused": refused,
    }


def prime(url: str, prefixes: Sequence[Sequence[int]], timeout_s: float) -> list[int]:
    """Send each prefix once; how many of its tokens were cached already.

    Those of a head that it shares with one before it may be. Raises ServerError for more: the cache
    was not empty.
    """
    cached = [reply.cached_tokens for reply in ask(url, prefixes, timeout_s)]
    for number, (found, shared) in enumerate(zip(cached, shared_heads(prefixes), strict=True)):
        if found > shared:
            raise ServerError(
                f"the cache was not empty before priming: {found} tokens of prefix {number} were "
                f"cached, and it shares {shared} with those before it"
            )
    return cached


def shared_heads(prefixes: Sequence[Sequence[int]]) -> list[int]:
    """For each prefix the length in tokens of its longest common head with any before it."""
    arrays = [np.asarray(prefix) for prefix in prefixes]
    return [
        max((_common(array, other) for other in arrays[:number]), default=0)
        for number, array in enumerate(arrays)
    ]


def _common(one: NDArray[np.int_], other: NDArray[np.int_]) -> int:
    length = min(one.size, other.size)
    differs = np.flatnonzero(one[:length] != other[:length])
    return int(differs[0]) if differs.size else length
