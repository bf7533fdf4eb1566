"""One profiler a class, chosen by `profile.kind`: what it does to a server and over a load."""

from __future__ import annotations

import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import http
from harness.analysis import timeline
from harness.counters import kineto, nsys
from harness.counters.trace import (
    NoKernelError,
    Profiled,
    RankTrace,
    ReportError,
    decode_window,
    longest_kernels,
)
from harness.errors import HarnessError

NONE, NCU = "none", "ncu"
MARK = "GRANIKV_HARNESS_PROFILE"
ASK_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 600.0
REPORT_TIMEOUT_S = 300.0
POLL_S = 0.5


class Profile(ABC):
    """A profiler of a server. options: the node `profile` of the configuration."""

    kind: str

    def __init__(self, options: Mapping[str, Any], root: Path, cell_id: str) -> None:
        self._options = options
        self._cell_id = cell_id
        self._directory = root / "traces" / cell_id

    @contextmanager
    def over(self, url: str) -> Iterator[Profiled]:
        """Profile a window of the load that runs in the block.

        A traced cell without its trace is of no use: what fails is a reason against it.
        """
        found = Profiled(record={"kind": self.kind})
        if absent := self.absent():
            found.record["missing"] = absent
            yield found
            return
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        steps = int(self._options["steps"])
        window = _Window(url, self.request(self._directory, self._cell_id, steps))
        window.open_in(float(self._options["start_s"]))
        try:
            yield found
        finally:
            window.cancel()
        try:
            window.close()
            kernels, whole = decode_window(self.traces())
            found.metrics = timeline.metrics(kernels, whole)
            found.record |= {"steps": whole, "kernels": longest_kernels(kernels)}
        except NoKernelError as error:
            found.record["missing"] = str(error)
        except (ReportError, ValueError) as error:
            found.reasons.append(f"profile: {error}")

    def absent(self) -> str | None:
        """Why this profiler cannot be used here, or None."""
        return None

    @abstractmethod
    def request(self, directory: Path, profile_id: str, steps: int) -> dict[str, Any]:
        """The body of SGLang's `/start_profile`."""

    @abstractmethod
    def traces(self) -> Sequence[RankTrace]:
        """What was traced, one a rank. Raises ReportError."""


class _Window:
    """`/start_profile` some time into a load, from a thread that does nothing but wait for it.

    The engine ends the window by itself after the steps that were asked for, and writes its traces
    between two steps. So an answer to `/stop_profile`, which comes between two steps as well, means
    that they are there: whether it ended the window or, with an error, found none open.
    """

    def __init__(self, url: str, request: Mapping[str, Any]) -> None:
        self._url = url
        self._request = request
        self._timer: threading.Timer | None = None
        self._status: int | None = None

    def open_in(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._open)
        self._timer.start()

    def _open(self) -> None:
        url = f"{self._url}/start_profile"
        self._status, _ = http.request(url, content=self._request, timeout_s=ASK_TIMEOUT_S)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def close(self) -> None:
        """Raises ReportError where the window was never open."""
        if self._status is None:
            raise ReportError("the load was over before the window: profile.start_s less")
        if self._status != 200:
            raise ReportError(f"/start_profile was refused: {http.describe(self._status)}")
        status, _ = http.request(f"{self._url}/stop_profile", post=True, timeout_s=STOP_TIMEOUT_S)
        if status == 0:
            raise ReportError("/stop_profile was not answered")


class Kineto(Profile):
    """SGLang's own trace."""

    kind = "kineto"

    def request(self, directory: Path, profile_id: str, steps: int) -> dict[str, Any]:
        """Kernels and launches."""
        return kineto.request(directory, profile_id, steps)

    def traces(self) -> Sequence[RankTrace]:
        """From the files that the engine wrote."""
        return kineto.read(self._directory, self._cell_id)


class Nsys(Profile):
    """Nsight Systems around the server; every server makes its reports in one directory."""

    kind = "nsys"

    def __init__(self, options: Mapping[str, Any], root: Path, cell_id: str) -> None:
        super().__init__(options, root, cell_id)
        self._reports = _reports(root)
        self._known = set(self._reports.glob("*.nsys-rep"))

    def absent(self) -> str | None:
        """It has to be installed."""
        return None if nsys.is_there() else "nsys is not installed"

    def request(self, directory: Path, profile_id: str, steps: int) -> dict[str, Any]:
        """The CUDA profiler API."""
        return nsys.request(directory, profile_id, steps)

    def traces(self) -> Sequence[RankTrace]:
        """From the report that appears once the window is closed, exported beside it."""
        report = self._directory / f"{self._cell_id}.nsys-rep"
        self._await_report().replace(report)
        return nsys.read(nsys.export(report))

    def _await_report(self) -> Path:
        """The new report, once it does not grow any more."""
        deadline = time.monotonic() + REPORT_TIMEOUT_S
        sizes: dict[Path, int] = {}
        while time.monotonic() < deadline:
            for path in sorted(set(self._reports.glob("*.nsys-rep")) - self._known):
                size = path.stat().st_size
                if size and sizes.get(path) == size:
                    return path
                sizes[path] = size
            time.sleep(POLL_S)
        raise ReportError(f"nsys wrote no report within {REPORT_TIMEOUT_S:.0f} s")


KINDS: dict[str, type[Profile]] = {profile.kind: profile for profile in (Kineto, Nsys)}


def _reports(root: Path) -> Path:
    return root / "traces" / "nsys"


def kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's configuration as it counts and is stored: without the node of no profile."""
    profiled = config["profile"]["kind"] != NONE
    return {name: part for name, part in config.items() if profiled or name != "profile"}


def environment(options: Mapping[str, Any]) -> dict[str, str]:
    """What marks the server of a traced cell as one of its own.

    A process in which CUPTI was once used may go on paying for it, so a server that was traced
    must serve no cell of speed.
    """
    return {} if options["kind"] == NONE else {MARK: str(options["kind"])}


def wrapper(options: Mapping[str, Any], root: Path) -> tuple[str, ...]:
    """What stands before a server's command. Raises HarnessError for a kind that no server has."""
    kind = options["kind"]
    if kind == NCU:
        raise HarnessError(
            "profile.kind=ncu replays each kernel many times: it counts a benchmark, not a server"
        )
    if kind != NONE and kind not in KINDS:
        raise HarnessError(f"profile.kind is none, kineto, nsys or ncu, not {kind!r}")
    if kind != Nsys.kind or not nsys.is_there():
        return ()
    _reports(root).mkdir(parents=True, exist_ok=True)
    return tuple(nsys.wrapper(_reports(root) / "server-%p"))


@contextmanager
def profiling(config: Mapping[str, Any], root: Path, cell_id: str, url: str) -> Iterator[Profiled]:
    """The profile that a stored configuration asks for, over the block; nothing without one."""
    if "profile" not in config:
        yield Profiled()
        return
    profile = KINDS[config["profile"]["kind"]](config["profile"], root, cell_id)
    with profile.over(url) as found:
        yield found
