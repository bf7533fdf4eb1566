"""Small files written all at once, and the hashes that name cells and servers."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def identity(value: Any) -> str:
    """Short stable hash of JSON-like data, for cells and servers: 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_json(path: Path, value: Any) -> None:
    """Write JSON beside `path`, then put it in place; NaN becomes null."""
    write_text(path, json.dumps(_jsonable(value), indent=1, sort_keys=True, allow_nan=False) + "\n")


def write_record(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON as `write_json` does, but small: one line a member, without spaces in it."""
    members = (
        f"{json.dumps(name)}:"
        + json.dumps(_jsonable(part), separators=(",", ":"), sort_keys=True, allow_nan=False)
        for name, part in sorted(value.items())
    )
    write_text(path, "{\n" + ",\n".join(members) + "\n}\n")


def write_text(path: Path, text: str) -> None:
    """Write a text beside `path`, then put it in place."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file beside `path`, then put it in place; nothing is left when that fails."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
