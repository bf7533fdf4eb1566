"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.analysis import output
from harness.errors import HarnessError


def test_it_writes_and_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    output.write(path, b"one")
    assert output.write(path, b"two") == path
    assert path.read_bytes() == b"two"
    assert [found.name for found in path.parent.iterdir()] == ["file.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = output.write(tmp_path / "file.txt", b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(HarnessError, match="No space left"):
        output.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HarnessError, match="could not be written"):
        output.write(tmp_path / "file" / "below.txt", b"x")
