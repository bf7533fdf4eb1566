"""Reading a server's log: the line that says why it died, and what it gained in a window."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TAIL_BYTES = 256 * 1024
MOST_BYTES = 64 * 2**20
# SGLang warns of every model file that it cannot import; none of these is why a server died.
NOISE = re.compile(r"Ignore import error|Sleeping \d+ seconds|kill_process_tree|SIGQUIT|py-spy")
ERROR = re.compile(r"^(\[[^\]]*\]\s*)?([A-Za-z_.]*(Error|Exception|Exit)\b.*|error: .*|ERROR.*)")
FRAME = re.compile(r"^\s|^Traceback ")


def tail(path: Path) -> list[str]:
    """The last lines of a log; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def last_error(path: Path) -> str:
    """The last error line of a log, or its last line, cut to 300 characters."""
    lines = [line for line in tail(path) if line.strip() and not NOISE.search(line)]
    errors = [line for line in lines if ERROR.match(line)]
    plain = [line for line in lines if not FRAME.match(line)]
    chosen = (errors or plain or ["its log is empty"])[-1].strip()
    return chosen if len(chosen) <= 300 else chosen[:297] + "..."


@dataclass
class Added:
    """What a log gained in a window, as text; complete once the window has closed."""

    text: str = ""


@contextmanager
def added(path: Path) -> Iterator[Added]:
    """Collect what the log gains while the block runs, the first MOST_BYTES of it."""
    gained, start = Added(), _size(path)
    yield gained
    gained.text = _between(path, start, _size(path))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _between(path: Path, start: int, end: int) -> str:
    if end <= start:
        return ""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(min(end - start, MOST_BYTES)).decode("utf-8", "replace")
