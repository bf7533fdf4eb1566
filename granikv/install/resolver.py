"""Dependency resolution without installing: uv reads package metadata and fetches no wheels."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from granikv.install.errors import SetupError
from granikv.install.locks import parse_pins

PYTHON = "3.11"
PLATFORM = "x86_64-manylinux_2_35"
_TIMEOUT_S = 300


def resolve(
    uv: Path,
    sources: Sequence[str],
    *,
    constraints: Sequence[Path] = (),
    requirements: Sequence[str] = (),
) -> dict[str, str]:
    """Resolve on Linux x86_64; returns canonical name -> version of the whole closure.

    ``sources`` are uv's own arguments (a pyproject file, ``--extra NAME``); ``requirements`` are
    lines given on standard input. Raises SetupError with the resolver's reason.
    """
    command = [str(uv), "pip", "compile", *sources, "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-version", PYTHON, "--python-platform", PLATFORM]
    for path in constraints:
        command += ["--constraint", str(path)]
    if requirements:
        command.append("-")
    try:
        done = subprocess.run(
            command,
            input="\n".join(requirements),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise SetupError(f"{uv} is missing: run `make setup` first") from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"the resolver gave no answer in {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise SetupError(f"the resolver refused: {_reason(done.stderr)}")
    return parse_pins(done.stdout, "uv")


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return " ".join(lines) or "no reason given"


def differences(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    """What separates a resolution from a lock, one phrase a package."""
    phrases = []
    for name in sorted(wanted.keys() | found.keys()):
        before, after = wanted.get(name), found.get(name)
        if before != after:
            phrases.append(f"{name}: lock {before or 'none'}, resolver {after or 'none'}")
    return phrases
