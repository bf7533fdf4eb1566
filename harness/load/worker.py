"""`python -m harness.load.worker FD`: a client process, started by harness.load.senders.

Reads its job from standard input, then orders from the socket FD: the index of a request to send
now, until STOP. Writes its results to standard output.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys

from harness.client import Client, now
from harness.load.loop import run, running
from harness.load.senders import NOTICE, ORDER, READY, STOP, Job, Results
from harness.load.streams import Streams, allow_many_files, undisturbed


async def work(job: Job, orders: socket.socket) -> Results:
    """Send what is ordered until STOP, or until the other side is gone."""
    streams = Streams(Client(job.url, job.timeout_s), job.bodies)
    loop = running()
    flying: set[asyncio.Task[None]] = set()
    noticing = asyncio.Lock()

    async def send(index: int) -> None:
        ended = await streams.send(index)
        # One at a time: the loop keeps a single waiter for a socket whose buffer is full.
        async with noticing:
            await loop.sock_sendall(orders, NOTICE.pack(index, ended))

    loop.beat()
    orders.send(NOTICE.pack(READY, now()))
    while message := await loop.sock_recv(orders, ORDER.size):
        (index,) = ORDER.unpack(message)
        if index == STOP:
            break
        task = loop.create_task(send(index))
        flying.add(task)
        task.add_done_callback(flying.discard)
    for task in flying:
        task.cancel()
    return Results(streams.answers(), streams.lags(loop.beats))


def main() -> None:
    """The process."""
    allow_many_files()
    job: Job = pickle.load(sys.stdin.buffer)
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        orders.setblocking(False)
        with undisturbed():
            results = run(work(job, orders))
    pickle.dump(results, sys.stdout.buffer)


if __name__ == "__main__":
    main()
