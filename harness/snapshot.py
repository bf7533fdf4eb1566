"""The radix tree's layout while requests read it, for the drawing of HOT and COLD."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from harness.client import Client, body
from harness.errors import ServerError
from harness.server import RunningServer
from workloads.request import Workload

logger = logging.getLogger(__name__)

MOST_REQUESTS = 32
OUTPUT_TOKENS = 64
POLL_S = 0.05


def take(server: RunningServer, workload: Workload, permits: int | None) -> dict[str, Any] | None:
    """GraniKV's state in the middle of a short burst, after the measured window; None without it.

    Nothing of this is measured. A snapshot that fails costs the drawing, not the cell.
    """
    count = min(permits or MOST_REQUESTS, MOST_REQUESTS, len(workload.requests))
    requests = [
        replace(request, max_new_tokens=OUTPUT_TOKENS) for request in workload.requests[:count]
    ]
    bodies = [body(request.input_ids.tolist(), request.max_new_tokens) for request in requests]
    try:
        return asyncio.run(_watch(server, bodies))
    except ServerError as error:
        logger.warning("no snapshot of the tree: %s", error)
        return None


async def _watch(server: RunningServer, bodies: list[bytes]) -> dict[str, Any] | None:
    """The state with the most readers seen while the burst ran."""
    best: dict[str, Any] | None = None
    most = -1
    client = Client(server.url, request_timeout_s=120.0)
    burst = [asyncio.create_task(client.generate(message)) for message in bodies]
    while not all(task.done() for task in burst):
        state = (await asyncio.to_thread(server.info)).granikv
        readers = sum(node.get("readers", 0) for node in (state or {}).get("tree", ()))
        if readers > most:
            best, most = state, readers
        await asyncio.sleep(POLL_S)
    return best
