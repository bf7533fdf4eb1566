"""Writing a result: beside its place, then moved there, so that no reader sees half a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness.errors import HarnessError


def write(path: Path, data: bytes) -> Path:
    """Put `data` at `path`, making its directory. Raises HarnessError when that fails."""
    beside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        beside = Path(name)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        beside.chmod(0o644)
        os.replace(beside, path)
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise HarnessError(f"{path} could not be written: {error.strerror or error}") from error
    return path
