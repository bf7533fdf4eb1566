"""`python -m harness`: one cell, or a sweep with -m. An error is one line and a non-zero exit."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from harness import config as configuration
from harness import hardware, server
from harness.config import describe
from harness.errors import HarnessError
from harness.jobs import measure, plan
from harness.servers import gpus, leases
from harness.sweeps import multirun
from harness.sweeps.multirun import SweepError


class InvalidCellError(HarnessError):
    """The cell was measured, or tried, and is kept, but must not be used."""


def run_cell(values: dict[str, Any]) -> None:
    """Measure the cell of a resolved configuration. Raises HarnessError unless it is valid."""
    with gpus.leased(values):
        cell_plan = plan(values)
        used_roots.add(cell_plan.root)
        cell = measure(cell_plan, rerun=bool(values["rerun"]))
    if not cell.valid:
        more = f" (and {len(cell.reasons) - 1} more)" if len(cell.reasons) > 1 else ""
        raise InvalidCellError(f"cell {cell.id} is invalid: {cell.reasons[0]}{more}")


used_roots: set[Path] = set()
"""Results directories whose servers this process may have started."""


@hydra.main(
    config_path=str(configuration.DIRECTORY), config_name=configuration.NAME, version_base="1.3"
)
def _job(config: DictConfig) -> None:
    try:
        run_cell(configuration.plain(config))
    except Exception as error:
        directory = Path(HydraConfig.get().runtime.output_dir)
        (directory / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
        # A launcher may carry it to another process: the line is enough there.
        raise HarnessError(describe(error)) from None


def _cell_id(*, _root_: DictConfig) -> str:
    """`${cell_id:}`: of the cell that a job measures, or the job's number where it cannot be."""
    own = [str(key) for key in _root_ if key not in configuration.NOT_A_CELLS]
    try:
        return plan(configuration.plain(OmegaConf.masked_copy(_root_, own))).id
    except HarnessError:
        return f"job-{_root_.hydra.job.num}"


def _visible_gpus() -> int:
    """`${visible_gpus:}`: how many jobs a launcher may run at once; one without a GPU."""
    return max(1, len(hardware.visible_gpus()))


OmegaConf.register_new_resolver("cell_id", _cell_id, replace=True)
OmegaConf.register_new_resolver("visible_gpus", _visible_gpus, replace=True)


INSIST_S = 2.0


class _Interruption:
    """SIGINT and SIGTERM as exceptions that arrive.

    Python drops an exception that a signal raises inside a destructor or a callback, and the sweep
    would go on: so the signal is sent again until the program is on its way out.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._again: threading.Timer | None = None
        self._previous = {number: signal.signal(number, self._raise) for number in self.NUMBERS}

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self._rest()
        self._again = threading.Timer(INSIST_S, os.kill, (os.getpid(), number))
        self._again.daemon = True
        self._again.start()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _rest(self) -> None:
        if self._again is not None:
            self._again.cancel()

    def end(self) -> None:
        """The signals mean again what they meant before."""
        self._rest()
        for number, handler in self._previous.items():
            signal.signal(number, handler)


@contextmanager
def servers_ended() -> Iterator[None]:
    """End this session's servers on the way out, however that comes about."""
    interruption = _Interruption()
    session = leases.open_session()
    try:
        yield
    finally:
        interruption.end()
        if session == leases.stamp(os.getpid()):
            for root in sorted(used_roots | multirun.used_roots):
                server.release(root)


def with_hardware(arguments: Sequence[str]) -> list[str]:
    """The overrides, and this machine's hardware profile unless one is chosen."""
    chosen = any(argument.startswith("hardware=") for argument in arguments)
    detected = [] if chosen else [f"hardware={hardware.detect()}"]
    return [*arguments, *detected]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Hydra then raises instead of printing its own report and leaving.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    failures: list[str] = []
    try:
        sys.argv = [sys.argv[0], *with_hardware(given)]
        with servers_ended():
            _job()
    except SweepError as error:
        failures = error.failures
    except (HarnessError, HydraException, OSError) as error:
        failures = [describe(error)]
    except KeyboardInterrupt:
        print("error: interrupted; finished cells are kept", file=sys.stderr)
        return 130
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0
