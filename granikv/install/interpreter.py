"""The interpreter that builds ``.venv``: parses on old Pythons, since it may be started by one."""

import os
import shutil
import subprocess
import sys

SUPPORTED = ((3, 11), (3, 12), (3, 13))


def is_supported(version):  # type: (tuple[int, ...]) -> bool
    """Whether a (major, minor, ...) version can build the project."""
    return tuple(version[:2]) in SUPPORTED


def find_supported():  # type: () -> str | None
    """Path of the first supported ``python3.x`` on PATH that starts; None without one."""
    for major, minor in SUPPORTED:
        path = shutil.which("python%d.%d" % (major, minor))  # noqa: UP031
        # A version manager's shim is on PATH for versions that are not active: try it.
        if path and subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            return path
    return None


def ensure_supported(module, arguments):  # type: (str, list[str]) -> str | None
    """Continue under a supported interpreter, replacing this process if need be.

    Returns None under a supported one, else the one-line error.
    """
    if is_supported(sys.version_info[:2]):
        return None
    path = find_supported()
    if path is not None:
        os.execv(path, [path, "-m", module, *arguments])
    running = "%d.%d (%s)" % (*sys.version_info[:2], sys.executable)  # noqa: UP031
    return (
        f"GraniKV needs Python 3.11, 3.12 or 3.13; this is {running} and no other is on PATH: "
        "install one, or name it with `make PYTHON=/path/to/python3.11`"
    )
