"""Which GPUs a cell's server may use: held by one cell at a time, whatever program measures it.

The locks lie in the machine's temporary directory, so they hold across results directories, and a
process that is killed lets go of its own.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness import hardware as machine
from harness.errors import RefusalError

logger = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
DIRECTORY = Path(tempfile.gettempdir()) / "granikv-gpus"
POLL_S = 0.2

_last: list[tuple[str, ...]] = []
"""The GPUs that this process had last: its server is up there."""


def refuse_shortage(values: Mapping[str, Any]) -> None:
    """Raises RefusalError where the cell's server needs more GPUs than are visible here."""
    if values["hardware"]["device"] == machine.CPU:
        return
    needed, there = int(values["model"]["tp"]), len(machine.visible_gpus())
    if needed > there:
        title = values["model"]["title"]
        raise RefusalError(
            f"{title} at TP = {needed} needs {needed} GPU{'s' * (needed > 1)}; {there} visible here"
        )


@contextmanager
def leased(values: Mapping[str, Any]) -> Iterator[None]:
    """As many GPUs as the cell's tensor-parallel degree, named in CUDA_VISIBLE_DEVICES meanwhile.

    Waits for GPUs that other cells hold. A cell of the CPU needs none. Raises RefusalError where
    fewer are visible.
    """
    if values["hardware"]["device"] == machine.CPU:
        yield
        return
    refuse_shortage(values)
    outer = os.environ.get(VISIBLE)
    with _one_of(_groups(int(values["model"]["tp"]))) as chosen:
        os.environ[VISIBLE] = ",".join(chosen)
        _last[:] = [chosen]
        try:
            yield
        finally:
            if outer is None:
                del os.environ[VISIBLE]
            else:
                os.environ[VISIBLE] = outer


def _groups(degree: int) -> list[tuple[str, ...]]:
    """Neighbours, so that groups of one degree fill the machine; the one used last comes first."""
    visible = machine.visible_gpus()
    starts = range(0, len(visible) - degree + 1, degree)
    groups = [tuple(visible[start : start + degree]) for start in starts]
    return sorted(groups, key=lambda group: group not in _last)


@contextmanager
def _one_of(groups: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    waiting = False
    while True:
        for group in groups:
            with ExitStack() as held:
                if _take(held, group):
                    yield group
                    return
        if not waiting:
            logger.info("waiting for a GPU: other cells are measured on all that are visible")
            waiting = True
        time.sleep(POLL_S)


def _take(held: ExitStack, group: Sequence[str]) -> bool:
    """Whether all were free; they are held then."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):
        DIRECTORY.chmod(0o1777)
    for name in group:
        lock = FileLock(DIRECTORY / f"gpu-{_own_id(name).replace('/', '-')}.lock", mode=0o666)
        try:
            held.enter_context(lock.acquire(timeout=0))
        except Timeout:
            return False
    return True


def _own_id(name: str) -> str:
    """The UUID of a GPU as CUDA_VISIBLE_DEVICES names it; the name where the driver knows none.

    Jobs of one node that see only their own GPUs all call the first of them 0.
    """
    import pynvml

    if not name.isdigit():
        return name
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return name
    try:
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(int(name)))
        return uuid.decode() if isinstance(uuid, bytes) else str(uuid)
    except pynvml.NVMLError:
        return name
    finally:
        pynvml.nvmlShutdown()
