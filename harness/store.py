"""Cells on disk: `results/runs/<id>/{cell.json, requests.parquet, ...}`, written all at once.

`load_cells(root)` gives every cell, valid or not, with the reasons. Tables and figures read nothing
else.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from harness import parquet
from harness.errors import HarnessError
from harness.files import write_bytes, write_record
from harness.servers import scrub

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1

LOGS = "server-logs"
"""Directory below runs/: one scrubbed log a server."""

SHIPPED = ("h200", "h200-x2", "h200-x4")
"""Folders of a results directory: cells of machines with one H200, two and four."""

REQUEST_COLUMNS: dict[str, str] = {
    "index": "int64",
    "prefix_class": "int64",  # -1: none
    "scheduled_s": "float64",  # when the arrivals say it is due
    "permitted_s": "float64",  # when it was due and one of the B permits was free
    "sent_s": "float64",
    "first_token_s": "float64",
    "last_token_s": "float64",
    "prompt_tokens_asked": "int64",
    "prompt_tokens": "int64",  # the server's own count, as are the next two
    "cached_tokens": "int64",
    "output_tokens": "int64",
    "output_tokens_asked": "int64",
    "status": "int64",  # HTTP; 0: no reply
    "ok": "bool",  # a complete reply of at least one token
    "error": "object",
    "finish_reason": "object",
    "output_sha256": "object",  # of the token ids, to compare systems without storing content
    "chunk_s": "object",  # arrival time of each streamed chunk
    "chunk_tokens": "object",  # tokens in it
}
"""Columns of a request log. Times are seconds since the start of the load in whole nanoseconds, NaN
for never. `requests.parquet` has the times in ns (`harness.parquet`)."""
LEFT_OUT = ("output_sha256", "chunk_s")
"""Columns that a log without token times is stored without: of its chunks only each first is known,
which came when the first token did."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One measured cell: a system, workload, load and repetition on one machine.

    id: hash of the resolved configuration and of the workload's tokens.
    config: the resolved configuration (groups system, model, workload, load, hardware, ...).
    metrics: `harness.metrics.METRICS`; NaN where not measured.
    valid, reasons: whether it passed validation, and if not why, one line each.
    hardware: name of the hardware profile it ran under.
    state: what `/server_info` told of GraniKV after the load (rank 0), or None for another system.
    layout: the same while requests were in flight after the measured window, for drawing the tree.
    environment: versions, devices, revision.
    record: everything in cell.json.
    """

    id: str
    config: dict[str, Any]
    metrics: dict[str, float]
    valid: bool
    reasons: tuple[str, ...]
    hardware: str
    state: dict[str, Any] | None
    layout: dict[str, Any] | None
    environment: dict[str, Any]
    directory: Path
    record: dict[str, Any] = field(repr=False)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request (REQUEST_COLUMNS). Raises HarnessError if the file is another's."""
        return completed(self._table("requests", self.record["requests_sha256"]))

    def frame(self, name: str) -> pd.DataFrame | None:
        """A further table that was stored with the cell (`write`), or None. Raises HarnessError."""
        digest = self.record.get("frames_sha256", {}).get(name)
        return None if digest is None else self._table(name, digest)

    def _table(self, name: str, sha256: str) -> pd.DataFrame:
        path = self.directory / f"{name}.parquet"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise HarnessError(f"cell {self.id} has no {path.name}: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise HarnessError(f"cell {self.id}: {path.name} was changed; measure it again")
        return parquet.decode(data)

    @property
    def system(self) -> str:
        """Name of the system, as in conf/system/."""
        return str(self.config["system"]["name"])

    @property
    def repetition(self) -> int:
        """Which repetition, from 0."""
        return int(self.config["repetition"])

    @property
    def unserved(self) -> bool:
        """Whether its server did not even come up."""
        return not self.valid and self.record.get("seconds") == {}


def runs(root: Path) -> Path:
    """Where the cells of a results directory lie."""
    return root / "runs"


def read(directory: Path) -> Cell | None:
    """The cell in one directory; None where there is none or one of another schema.

    Raises HarnessError for a damaged one.
    """
    record = _record(directory)
    if record is None or record.get("schema_version") != SCHEMA_VERSION:
        return None
    try:
        unpacked = {**record, "server": _with_trees(record["server"], _nodes)}
        return _cell(unpacked, directory)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(directory, f"{type(error).__name__} {error}") from None


def _record(directory: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((directory / "cell.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _damaged(directory, str(error)) from None
    if not isinstance(record, dict):
        raise _damaged(directory, "not an object")
    return record


def _damaged(directory: Path, why: str) -> HarnessError:
    return HarnessError(f"{directory}/cell.json is damaged ({why}); remove it")


def _cell(record: dict[str, Any], directory: Path) -> Cell:
    metrics = {k: float("nan") if v is None else float(v) for k, v in record["metrics"].items()}
    server = record["server"]
    return Cell(
        id=record["id"],
        config=record["config"],
        metrics=metrics,
        valid=record["valid"],
        reasons=tuple(record["reasons"]),
        hardware=record["config"]["hardware"]["name"],
        state=server.get("state"),
        layout=server.get("layout"),
        environment=record["environment"],
        directory=directory,
        record=record,
    )


def load_cells(root: Path) -> list[Cell]:
    """Every cell under `root` (a results directory), valid or not, by id.

    Cells of another schema are left out, which the log says. Raises HarnessError for a damaged one.
    """
    directory = runs(root)
    if not directory.is_dir():
        return []
    paths = [path for path in sorted(directory.iterdir()) if not path.name.startswith(".")]
    cells = {path: read(path) for path in paths}
    for line in _other_schemas([path for path, cell in cells.items() if cell is None]):
        logger.warning("%s: %s", directory, line)
    return [cell for cell in cells.values() if cell is not None]


def shipped_folders(root: Path) -> list[Path]:
    """The folders of a results directory that the repository keeps."""
    return [root / name for name in SHIPPED]


def load_shipped(root: Path) -> list[Cell]:
    """Every cell of the shipped folders, one an id."""
    cells = (cell for path in shipped_folders(root) for cell in load_cells(path))
    return list({cell.id: cell for cell in cells}.values())


def _other_schemas(directories: Sequence[Path]) -> list[str]:
    """What is left out for its schema, one line a version."""
    records = [record for path in directories if (record := _record(path)) is not None]
    counts = Counter(record.get("schema_version") for record in records)
    return [
        f"{count} cells of schema {version} are left out, this program reads {SCHEMA_VERSION}: "
        + (
            "they are newer, so update it"
            if isinstance(version, int) and version > SCHEMA_VERSION
            else "measure them again"
        )
        for version, count in sorted(counts.items(), key=lambda item: str(item[0]))
    ]


def find_valid(root: Path, cell_id: str) -> Cell | None:
    """The valid cell of this id, which a sweep need not measure again; else None."""
    cell = read(runs(root) / cell_id)
    return cell if cell is not None and cell.valid else None


@contextmanager
def claim(root: Path, cell_id: str) -> Iterator[None]:
    """Only one program at a time measures a cell; another waits, and then finds it measured.

    What one that was killed had begun to write is removed.
    """
    locks = runs(root) / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / cell_id):
        for begun in runs(root).glob(f".{cell_id}.*"):
            shutil.rmtree(begun, ignore_errors=True)
        yield


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A request log with REQUEST_COLUMNS and their types, its times as they are stored."""
    log = pd.DataFrame(list(rows), columns=list(REQUEST_COLUMNS)).astype(REQUEST_COLUMNS)
    for name in parquet.TIMES & (set(REQUEST_COLUMNS) - {"chunk_s"}):
        log[name] = parquet.whole_ns(log[name])
    log["chunk_s"] = log["chunk_s"].map(lambda times: list(parquet.whole_ns(times)))
    return log


def completed(log: pd.DataFrame) -> pd.DataFrame:
    """A log with all REQUEST_COLUMNS, those that were left out too (LEFT_OUT)."""
    if not set(LEFT_OUT).isdisjoint(log.columns):
        return log
    chunks = zip(log["first_token_s"], log["chunk_tokens"], strict=True)
    first = [[at] * len(counts) for at, counts in chunks]
    whole = log.assign(output_sha256="", chunk_s=pd.Series(first, index=log.index, dtype="object"))
    return whole[list(REQUEST_COLUMNS)]


def write(
    root: Path,
    record: Mapping[str, Any],
    log: pd.DataFrame,
    texts: Mapping[str, str] | None = None,
    frames: Mapping[str, pd.DataFrame] | None = None,
) -> Cell:
    """Store one cell: the whole directory appears at once, or not at all.

    `record` is cell.json without `schema_version` and the hashes; `texts` are further files by
    name, `frames` further tables by the name under which `Cell.frame` gives them back. What may
    name this machine in the reasons, the texts and the engine's settings is scrubbed. An earlier
    cell of the same id moves to `rejected/`. Raises HarnessError when the disk does not take it.
    """
    target = runs(root) / str(record["id"])
    beside: Path | None = None
    try:
        runs(root).mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=runs(root)))
        full = {
            **record,
            "config": _public(record["config"]),
            "reasons": [scrub.scrub(reason) for reason in record["reasons"]],
            "server": _with_trees(record["server"], _columns),
            "schema_version": SCHEMA_VERSION,
            "requests_sha256": _write_table(beside, "requests", log),
            "frames_sha256": {
                name: _write_table(beside, name, frame) for name, frame in (frames or {}).items()
            },
        }
        for name, text in (texts or {}).items():
            (beside / name).write_text(scrub.scrub(text), encoding="utf-8")
        write_record(beside / "cell.json", full)
        beside.chmod(0o755)
        _set_aside(root, target)
        beside.replace(target)
    except OSError as error:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
        raise HarnessError(f"cell {target.name} not stored: {error.strerror or error}") from error
    cell = read(target)
    assert cell is not None
    return cell


def _public(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without directories and keys in what is handed on to the engine."""
    engine = dict(config.get("engine") or {})
    if "arguments" in engine:
        engine["arguments"] = scrub.arguments([str(one) for one in engine["arguments"]])
    if "environment" in engine:
        engine["environment"] = scrub.environment(engine["environment"])
    return {**config, "engine": engine} if engine else dict(config)


def _with_trees(server: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """What is told of a server, the trees in its states converted."""
    states = {name: server.get(name) for name in ("state", "layout")}
    return dict(server) | {
        name: state | {"tree": convert(state["tree"])}
        for name, state in states.items()
        if state and "tree" in state
    }


def _columns(tree: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """A tree's nodes as cell.json has them: one list for each of their keys."""
    return {name: [node[name] for node in tree] for name in (tree[0] if tree else ())}


def _nodes(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in rows]


def keep_log(root: Path, name: str, text: str) -> str:
    """Keep a server's log for all cells that it served; its path below `runs`.

    A later cell of the same server writes it anew. Raises HarnessError when the disk does not take
    it.
    """
    path = runs(root) / LOGS / f"{name}.log.gz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, gzip.compress(text.encode("utf-8"), mtime=0))
    except OSError as error:
        raise HarnessError(f"log {name} not stored: {error.strerror or error}") from error
    return str(path.relative_to(runs(root)))


def _write_table(directory: Path, name: str, table: pd.DataFrame) -> str:
    """Write a table; the SHA-256 of its file."""
    data = parquet.encode(table)
    (directory / f"{name}.parquet").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _set_aside(root: Path, target: Path) -> None:
    """Keep an earlier attempt under rejected/<id>-<n>; drop leftovers that are no cell."""
    if not target.exists():
        return
    if not (target / "cell.json").is_file():
        shutil.rmtree(target)
        return
    rejected = root / "rejected"
    rejected.mkdir(parents=True, exist_ok=True)
    places = (rejected / f"{target.name}-{attempt}" for attempt in itertools.count())
    target.replace(next(place for place in places if not place.exists()))
