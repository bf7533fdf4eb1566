"""Long commands: output to a log, a progress line now and then, the log's end on failure."""

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from granikv.install.errors import SetupError

QUIET_S = 5.0
EVERY_S = 10.0
_TAIL_BYTES = 8192
_NOISE = re.compile(r"^\s*(WARNING: Location .* is ignored|\[notice\]|Looking in |$)")
_DOING = re.compile(
    r"^\s*(?:(Collecting|Building wheel for) (\S+)|(Downloading) ([^\s-]+)\S* (\(.*\))"
    r"|(Installing) collected packages)"
)


def run_logged(
    command: Sequence[str], log: Path, label: str, environment: Mapping[str, str] | None = None
) -> str:
    """Run to the end; returns what this command printed.

    The log gets everything. Raises SetupError with the last telling lines when it fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode())
        file.flush()
        start = file.tell()
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
            )
        except OSError as error:
            raise SetupError(f"{label}: cannot run {command[0]}: {error.strerror}") from error
        code = _wait(child, log, label)
    with log.open("rb") as file:
        file.seek(start)
        output = file.read().decode(errors="replace")
    if code != 0:
        raise SetupError(f"{label} failed:\n{telling_lines(output)}\nthe whole log is {log}")
    return output


def _wait(child: subprocess.Popen[bytes], log: Path, label: str) -> int:
    begun = time.monotonic()
    due = begun + QUIET_S
    try:
        while True:
            try:
                return child.wait(timeout=max(0.05, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"  {label}: {time.monotonic() - begun:.0f} s{_doing(log)}", flush=True)
                due += EVERY_S
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def _doing(log: Path) -> str:
    for line in reversed(_tail(log).splitlines()):
        match = _DOING.match(line)
        if match:
            action, *rest = (part for part in match.groups() if part)
            return ", " + " ".join([action.lower(), *rest])
    return ""


def telling_lines(output: str, count: int = 8) -> str:
    """The last lines of pip's output without what says nothing."""
    lines = [line.rstrip() for line in output.splitlines() if not _NOISE.match(line)]
    return "\n".join(f"  | {line[:200]}" for line in lines[-count:])
