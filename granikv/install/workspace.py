"""Where the set-up works: the checkout, its ``.venv`` and the state kept in it."""

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from granikv.install.errors import SetupError
from granikv.install.locks import Lock, read_lock
from granikv.install.runner import run_logged
from granikv.install.stamps import Stamps


class Workspace:
    """Paths under one checkout and the commands that act on its ``.venv``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.state = self.venv / ".granikv-setup"
        self.python = self.venv / "bin" / "python"
        self.stamps = Stamps(self.state)

    @property
    def site(self) -> Path:
        """The directory that packages are installed into."""
        site = next((self.venv / "lib").glob("python3.*/site-packages"), None)
        if site is None:
            raise SetupError(f"{self.venv} has no site-packages: remove it and run again")
        return site

    @property
    def pth(self) -> Path:
        """The file that puts the CPU stand-ins on every interpreter's path, subprocesses too."""
        return self.site / "granikv_stand_ins.pth"

    def lock(self, name: str) -> Lock:
        """Read one of the checkout's lock files."""
        return read_lock(self.root / "conf" / "locks", name)

    def pip(self, label: str, *arguments: str) -> str:
        """Run ``pip install`` in ``.venv``; returns its output."""
        command = [str(self.python), "-m", "pip", "install", "--progress-bar", "off"]
        # Compiled afterwards, on all cores.
        command += ["--no-compile", "--no-warn-script-location", *arguments]
        return run_logged(command, self.state / "pip.log", label, pip_environment())

    def run(self, label: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        """Run ``.venv``'s Python; returns its output."""
        command = [str(self.python), *arguments]
        return run_logged(command, self.state / "python.log", label, os.environ | environment)

    def make_venv(self) -> None:
        """Create ``.venv`` with the interpreter that runs this program."""
        command = [sys.executable, "-m", "venv", str(self.venv)]
        run_logged(command, self.state / "venv.log", "virtual environment", pip_environment())

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the set-up for this process; a second one waits."""
        if self.venv.exists() and not self.state.exists():
            raise SetupError(
                f"{self.venv} was not made by this program: move it away, then run again"
            )
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("another set-up of this checkout is running: waiting for it", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def pip_environment() -> dict[str, str]:
    """The user's environment without what would make pip install somewhere else."""
    dropped = {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
