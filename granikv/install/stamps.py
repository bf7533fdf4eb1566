"""Which steps are done: one small JSON file a step, written only after the step succeeded."""

import json
import os
from pathlib import Path


class Stamps:
    """The files ``<directory>/<step>.json``, each holding the key of what was done and a note."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _path(self, step: str) -> Path:
        return self._directory / f"{step}.json"

    def _read(self, step: str) -> dict[str, str]:
        try:
            stamp = json.loads(self._path(step).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def is_current(self, step: str, key: str) -> bool:
        """Whether the step was finished with exactly this key."""
        return self._read(step).get("key") == key

    def note(self, step: str) -> str:
        """What the step reported when it finished; empty if it has not."""
        return self._read(step).get("note", "")

    def write(self, step: str, key: str, note: str = "") -> None:
        """Mark the step done."""
        self._directory.mkdir(parents=True, exist_ok=True)
        beside = self._path(step).with_suffix(".tmp")
        beside.write_text(json.dumps({"key": key, "note": note}), encoding="utf-8")
        os.replace(beside, self._path(step))

    def remove(self, step: str) -> None:
        """Mark the step as not done."""
        self._path(step).unlink(missing_ok=True)
