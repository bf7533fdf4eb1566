"""The pinned requirement files, ``conf/locks/<name>.txt``, and what they cost to install."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from granikv.install.errors import SetupError

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)")


@dataclass(frozen=True)
class Size:
    """Megabytes (10^6 bytes) on Linux x86_64 with CPython 3.11."""

    download_mb: int
    disk_mb: int


@dataclass(frozen=True)
class Lock:
    """One lock file: canonical name -> exact version."""

    path: Path
    pins: dict[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the pins; comments and order do not count."""
        body = "\n".join(f"{name}=={version}" for name, version in sorted(self.pins.items()))
        return hashlib.sha256(body.encode()).hexdigest()


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_pins(text: str, source: str) -> dict[str, str]:
    """Read ``name==version`` lines.

    Raises SetupError for a line that is not an exact pin, or a name pinned twice.
    """
    pins: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        match = _PIN.fullmatch(line)
        if match is None:
            raise SetupError(f"{source}:{number}: not an exact pin (name==version): {line}")
        name = canonical(match[1])
        if name in pins:
            raise SetupError(f"{source}:{number}: {name} is pinned twice")
        pins[name] = match[2]
    return pins


def read_lock(directory: Path, name: str) -> Lock:
    """Read ``<directory>/<name>.txt``. Raises SetupError if it is missing or malformed."""
    path = directory / f"{name}.txt"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}; is the checkout whole?") from error
    return Lock(path, parse_pins(text, str(path)))
