"""The command that measures a cell, from its resolved configuration and the groups in conf/."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from harness import paper
from harness.analysis.cells import KERNEL

CONF = paper.ROOT / "conf"
GROUPS = ("system", "model", "workload", "load", "hardware")
"""Always said. Further groups of `conf/config.yaml` are said where they are not its default."""
WHOLE = frozenset({"hardware"})
"""Groups that are chosen and not changed: a profile is another file."""
NOT_ASKED = frozenset({"output", "rerun", "hydra", "defaults"})
NOT_STORED = frozenset({("model", "path"), ("engine", "python")})
"""Keys of conf/ that a stored cell leaves out: paths of one machine."""

_PLAIN = re.compile(r"[\w./+-]+")

Config: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, ...]


@cache
def _read(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text("utf-8"))
    return loaded if isinstance(loaded, dict) else {}


def command(config: Config) -> str | None:
    """`python -m harness ...` with every override; None where conf/ has no such group."""
    overrides: list[str] = []
    further = _further()
    for group in (*_groups(config), *(name for name in further if name in config)):
        wanted = config.get(group)
        if not isinstance(wanted, Mapping):
            return None
        choice = _choice(group, wanted)
        if choice is None:
            return None
        if choice != further.get(group):
            overrides.append(f"{group}={choice}")
        if group not in WHOLE:
            base = _read(CONF / group / f"{choice}.yaml")
            overrides += _overrides(_changes((group,), base, wanted, config))
    defaults = {k: v for k, v in _read(CONF / "config.yaml").items() if k not in NOT_ASKED}
    asked = {*GROUPS, *further, *NOT_ASKED}
    rest = {k: v for k, v in config.items() if k not in asked}
    overrides += _overrides(_changes((), defaults, rest, config))
    return " ".join(["python -m harness", *(shlex.quote(one) for one in overrides)])


def _further() -> dict[str, str]:
    """Groups beyond GROUPS, by the file that is chosen unless another is."""
    chosen = [one for one in _read(CONF / "config.yaml")["defaults"] if isinstance(one, dict)]
    return {k: v for one in chosen for k, v in one.items() if k not in GROUPS and v is not None}


def _groups(config: Config) -> tuple[str, ...]:
    """A benchmark has no load."""
    workload = config.get("workload")
    of_kernel = isinstance(workload, Mapping) and workload.get("kind") == KERNEL
    return tuple(group for group in GROUPS if not (of_kernel and group == "load"))


def _choice(group: str, wanted: Config) -> str | None:
    """The file of a group that the configuration came from: by name, or of its kind the nearest."""
    if "name" in wanted:
        name = str(wanted["name"])
        return name if (CONF / group / f"{name}.yaml").is_file() else None
    files = sorted((CONF / group).glob("*.yaml"))
    of_kind = [path for path in files if _read(path).get("kind") == wanted.get("kind")]
    if not of_kind:
        return None
    return min(of_kind, key=lambda path: len(list(_changes((), _read(path), wanted, {})))).stem


def _changes(prefix: Key, base: Config, wanted: Config, whole: Config) -> Iterator[tuple[Key, Any]]:
    """Each key whose value is not the base's; nested mappings are compared key by key."""
    for name, value in wanted.items():
        key = (*prefix, str(name))
        known = _resolved(base.get(name), whole)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            yield from _changes(key, known, value, whole)
        elif name not in base and key not in NOT_STORED and value is not None:
            yield ("+" + key[0], *key[1:]), value
        elif name in base and value != known:
            yield key, value


def _resolved(value: Any, whole: Config) -> Any:
    """What `${a.b}` stands for in the whole configuration."""
    if not (isinstance(value, str) and value.startswith("${") and value.endswith("}")):
        return value
    found: Any = whole
    for part in value[2:-1].split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _overrides(changes: Iterator[tuple[Key, Any]]) -> list[str]:
    return [f"{'.'.join(key)}={_value(value)}" for key, value in changes]


def _value(value: Any) -> str:
    """In Hydra's override grammar."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(_value(one) for one in value) + "]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return value if isinstance(value, str) else json.dumps(value)
