"""Who uses a server: one file a session, named by its process, so that a dead one does not count.

A session is the program that the user started; the workers that it starts share its lease.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil

SESSION_VARIABLE = "GRANIKV_HARNESS_SESSION"


def stamp(pid: int) -> str:
    """`pid-start time`, which no later process can share. Raises psutil.NoSuchProcess."""
    process = psutil.Process(pid)
    try:
        # Ticks since boot: the wall-clock start time moves when the clock is set.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return f"{pid}-{fields[19]}"
    except OSError:
        return f"{pid}-{process.create_time():.2f}"


def is_alive(mark: str) -> bool:
    """Whether the process of this stamp still runs (a zombie does not)."""
    pid, _, _ = mark.partition("-")
    try:
        process = psutil.Process(int(pid))
        return stamp(int(pid)) == mark and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError):
        return False


def open_session() -> str:
    """This program's stamp, made known to the processes it starts; the outermost program's wins."""
    inherited = os.environ.get(SESSION_VARIABLE, "")
    if inherited and is_alive(inherited):
        return inherited
    mark = stamp(os.getpid())
    os.environ[SESSION_VARIABLE] = mark
    return mark


def take(directory: Path, session: str) -> None:
    """Note that a session uses the server of this directory."""
    (directory / "leases").mkdir(parents=True, exist_ok=True)
    (directory / "leases" / session).touch()


def drop(directory: Path, session: str) -> None:
    """Note that it no longer does."""
    with suppress(FileNotFoundError):
        (directory / "leases" / session).unlink()


def living(directory: Path) -> list[str]:
    """The sessions that use the server and are alive; dead ones are forgotten."""
    held = []
    for path in (directory / "leases").glob("*"):
        if is_alive(path.name):
            held.append(path.name)
        else:
            drop(directory, path.name)
    return held
