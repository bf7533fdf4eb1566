"""A checkout whose ``.venv`` is a recording shell script: the set-up's flow without downloads."""

import shutil
import sys
from pathlib import Path

import pytest

from granikv.install.machine import Machine
from granikv.install.workspace import Workspace
from tests.project.paths import ROOT

PLAIN = Machine("Linux", "x86_64", "3.11.7", (2, 36), None, 100_000)

# Records its arguments, one line a call. A file `fail` holds a word: the call that has it as a
# part of its arguments fails. A file `versions` is what `pip index versions` answers.
_SCRIPT = """#!/bin/sh
here={root}
echo "$*" | tr '\\n' ' ' >> "$here/calls"
echo >> "$here/calls"
case "$*" in
  *"index versions"*) cat "$here/versions"; exit 0;;
esac
if [ -f "$here/fail" ] && echo "$*" | grep -q -e "$(cat "$here/fail")"; then
  echo "WARNING: Location 'file:///x' is ignored: it is neither a file nor a directory."
  echo "ERROR: No matching distribution found"
  exit 1
fi
echo "VERIFIED 0.5.17 2.13.0+cpu False"
"""


class FakeCheckout:
    """A temporary checkout; ``calls`` are the commands its ``.venv`` was given."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "conf" / "locks", root / "conf" / "locks")
        shutil.copy(ROOT / "pyproject.toml", root)
        self.offer("2.13.0+cpu, 2.13.0")

    def offer(self, versions: str) -> None:
        """What the package index says it has of torch."""
        (self.root / "versions").write_text(f"Available versions: {versions}\n")

    def fail_on(self, word: str | None) -> None:
        """Make commands with this word fail; None lifts it."""
        path = self.root / "fail"
        if word is None:
            path.unlink()
        else:
            path.write_text(word)

    def take_calls(self) -> list[str]:
        """The commands since the last look."""
        path = self.root / "calls"
        if not path.exists():
            return []
        lines = path.read_text().splitlines()
        path.unlink()
        return [line.rstrip() for line in lines]

    def make_venv(self, work: Workspace) -> None:
        """Stands in for ``Workspace.make_venv``."""
        work.python.parent.mkdir(parents=True)
        work.python.write_text(_SCRIPT.format(root=self.root))
        work.python.chmod(0o755)
        (work.venv / "lib" / f"python3.{sys.version_info[1]}" / "site-packages").mkdir(parents=True)


def install_fakes(checkout: FakeCheckout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain machine, and a ``.venv`` that only records."""
    monkeypatch.setattr("granikv.install.cli.detect", lambda _root: PLAIN)
    monkeypatch.setattr(Workspace, "make_venv", lambda work: checkout.make_venv(work))
