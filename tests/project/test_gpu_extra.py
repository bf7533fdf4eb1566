"""The gpu extra resolves to its lock, asked of the package index without installing anything."""

import shutil
import sys
from pathlib import Path

import pytest

from granikv.install import cli
from granikv.install.errors import SetupError
from granikv.install.workspace import Workspace
from tests.project.paths import ROOT

_NO_NETWORK = ("error sending request", "failed to fetch", "dns error", "no answer in")


def uv() -> Path:
    """The resolver of this environment."""
    beside = Path(sys.executable).parent / "uv"
    return beside if beside.exists() else Path(shutil.which("uv") or "uv")


def test_the_gpu_extra_resolves_to_its_lock() -> None:
    try:
        line = cli.dry_run(ROOT, uv())
    except SetupError as error:
        if any(phrase in str(error).lower() for phrase in _NO_NETWORK):
            pytest.skip(f"no package index within reach: {error}")
        raise
    assert "packages resolve" in line


def test_a_changed_lock_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "conf" / "locks", tmp_path / "conf" / "locks")
    lock = tmp_path / "conf" / "locks" / "engine-gpu.txt"
    found = Workspace(tmp_path).lock("base").pins | Workspace(tmp_path).lock("engine-gpu").pins
    monkeypatch.setattr(cli, "resolve", lambda *_args, **_kwargs: found)
    assert cli.dry_run(tmp_path, uv())
    lock.write_text(lock.read_text().replace("sglang==0.5.17", "sglang==0.5.16"))
    with pytest.raises(SetupError, match=r"sglang: lock 0\.5\.16, resolver 0\.5\.17"):
        cli.dry_run(tmp_path, uv())


def test_a_resolver_that_is_missing_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="run `make setup` first"):
        cli.dry_run(ROOT, tmp_path / "uv")
