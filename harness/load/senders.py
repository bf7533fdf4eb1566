"""Who sends the requests: this process, or several worker processes beside it.

The schedule and the permits stay in one process whatever the number of workers, so that B holds
for all of them together and a freed permit goes to the request that has waited longest. Permits
divided among workers would leave some idle while requests of another worker wait. The price is
one message each way for a request, and none for its tokens; the log shows it as send lag.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.client import Client, now
from harness.errors import HarnessError
from harness.load.loop import running
from harness.load.streams import Streams, allow_many_files

STREAMS_PER_WORKER = 32
"""Fewer streams a process: less time to read all of them, or to send them, when they come at once,
as they do. Reading takes about 30 µs a token, sending half a millisecond a request."""
CORES_PER_WORKER = 2
START_TIMEOUT_S = 60.0
STOP = -1
ORDER = struct.Struct("<q")
"""To a worker: the index of a request to send, or STOP."""
NOTICE = struct.Struct("<qd")
"""From a worker: the index of a request and when its stream ended; READY and its clock at first."""
READY = -2
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """What a worker is given. url: of the server. bodies: of its share of the requests."""

    url: str
    timeout_s: float
    bodies: Mapping[int, bytes]


@dataclass
class Results:
    """By harness.load.streams.Streams: answers of each request, lags of the event loops in s."""

    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    lags: list[float] = field(default_factory=list)


def workers_for(streams: int, cores: int) -> int:
    """How many processes to read so many concurrent streams with: 1 where cores are few.

    The server, which shares the machine, needs the others; a worker is idle most of the time.
    """
    return max(1, min(-(-streams // STREAMS_PER_WORKER), cores // CORES_PER_WORKER))


class Senders(ABC):
    """Sends requests of a job by their index."""

    @abstractmethod
    async def start(self) -> None:
        """To call once, before the clock starts."""

    @abstractmethod
    async def send(self, index: int) -> float:
        """Send a request; when its stream ended, on the clock of `harness.client.now`, in s."""

    @abstractmethod
    def check(self) -> None:
        """Raises HarnessError if a request can never be sent or answered for a fault of ours."""

    @abstractmethod
    async def results(self) -> Results:
        """To call once, at the end: gives up what is still in flight."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing running."""


class Here(Senders):
    """All requests from this process."""

    def __init__(self, job: Job) -> None:
        self._streams = Streams(Client(job.url, job.timeout_s), job.bodies)

    async def start(self) -> None:
        allow_many_files()
        self._loop = running()
        self._loop.beat()

    async def send(self, index: int) -> float:
        return await self._streams.send(index)

    def check(self) -> None:
        """Nothing that could go wrong by itself."""

    async def results(self) -> Results:
        return Results(self._streams.answers(), self._streams.lags(self._loop.beats))

    def close(self) -> None:
        """Nothing was started."""


class Workers(Senders):
    """The requests dealt out to `count` processes, in turn."""

    def __init__(self, job: Job, count: int) -> None:
        self._workers = []
        try:
            for place in range(count):
                bodies = {i: text for i, text in job.bodies.items() if i % count == place}
                self._workers.append(_Worker(Job(job.url, job.timeout_s, bodies), place))
        except BaseException:
            self.close()
            raise

    async def start(self) -> None:
        await asyncio.gather(*(worker.start() for worker in self._workers))

    async def send(self, index: int) -> float:
        return await self._workers[index % len(self._workers)].send(index)

    def check(self) -> None:
        for worker in self._workers:
            worker.check()

    async def results(self) -> Results:
        parts = await asyncio.gather(*(worker.results() for worker in self._workers))
        whole = Results()
        for part in parts:
            whole.answers |= part.answers
            whole.lags += part.lags
        return whole

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


class _Worker:
    """This side of one worker process (harness.load.worker).

    The job goes in by its standard input and the results come out by its standard output; orders
    and notices pass through a socket that keeps messages whole.
    """

    def __init__(self, job: Job, place: int) -> None:
        self._place = place
        self._waiting: dict[int, asyncio.Future[float]] = {}
        self._ordering = asyncio.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(p for p in (str(REPOSITORY), os.environ.get("PYTHONPATH")) if p)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.load.worker", str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        self._job = job

    async def start(self) -> None:
        began = now()
        self._socket.setblocking(False)
        await asyncio.to_thread(self._give_job)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                message = await loop.sock_recv(self._socket, NOTICE.size)
        except TimeoutError:
            message = b""
        if len(message) != NOTICE.size:
            raise self._failure("did not start")
        _, clock = NOTICE.unpack(message)
        if not began <= clock <= now():
            raise HarnessError(
                "the client's processes do not share a clock on this system: use client.workers=1"
            )
        loop.add_reader(self._socket, self._take_notice)

    def _give_job(self) -> None:
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        try:
            with stdin:
                pickle.dump(self._job, stdin)
        except BrokenPipeError:
            raise self._failure("did not start") from None

    async def send(self, index: int) -> float:
        answered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[index] = answered
        await self._order(index)
        return await answered

    async def _order(self, index: int) -> None:
        # One at a time: the loop keeps a single waiter for a socket whose buffer is full.
        # A broken socket is a dead worker, which `check` reports.
        async with self._ordering:
            with suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(self._socket, ORDER.pack(index))

    def _take_notice(self) -> None:
        while True:
            try:
                message = self._socket.recv(NOTICE.size)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                asyncio.get_running_loop().remove_reader(self._socket)
                return
            index, ended = NOTICE.unpack(message)
            future = self._waiting.pop(index)
            if not future.done():
                future.set_result(ended)

    def check(self) -> None:
        if self._process.poll() is not None:
            raise self._failure("died")

    async def results(self) -> Results:
        self.check()
        await self._order(STOP)
        data = await asyncio.to_thread(self._read_results)
        asyncio.get_running_loop().remove_reader(self._socket)
        try:
            results = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError):
            raise self._failure("died") from None
        assert isinstance(results, Results)
        return results

    def _read_results(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def _failure(self, what: str) -> HarnessError:
        self._process.kill()
        code = self._process.wait()
        return HarnessError(
            f"client worker {self._place} {what} (exit status {code}): its own message, if any, is "
            "above; client.workers=1 does without"
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def make(job: Job, workers: int) -> Senders:
    """Senders of so many processes; one means this one."""
    return Here(job) if workers == 1 else Workers(job, workers)
