"""The line of a log that says why a server died."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.servers.log import last_error

TRACEBACK = """\
[2026-01-01 00:00:00] server_args=ServerArgs(model_path='m')
[2026-01-01 00:00:01] Ignore import error when loading x: No module named 'vllm'
[2026-01-01 00:00:02] Scheduler hit an exception: Traceback (most recent call last):
  File "allocator.py", line 197, in alloc_extend
    kernel[(bs,)](
RuntimeError: 0 active drivers ([]). There should only be one.

[2026-01-01 00:00:02] SIGQUIT received. signum=None. It usually means one child failed.
[2026-01-01 00:00:07] kill_process_tree called: parent_pid=1
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (TRACEBACK, "RuntimeError: 0 active drivers ([]). There should only be one."),
        ("error: --granikv-backend 'x' is unknown\n", "error: --granikv-backend 'x' is unknown"),
        (
            "launch_server.py: error: argument --page-size: invalid int value: 'x'\n",
            "launch_server.py: error: argument --page-size: invalid int value: 'x'",
        ),
        ("[2026-01-01 00:00:00] OSError: [Errno 98] address in use\nbye\n", "[2026-01-01 00:00:00] "
         "OSError: [Errno 98] address in use"),
        ("loading weights\nKilled\n", "Killed"),
        ("", "its log is empty"),
        ("torch.OutOfMemoryError: no memory\n", "torch.OutOfMemoryError: no memory"),
    ],
)  # fmt: skip
def test_the_last_error(tmp_path: Path, log: str, line: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(log)
    assert last_error(path) == line


def test_a_missing_log_and_a_long_line(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none") == "its log is empty"
    path = tmp_path / "server.log"
    path.write_text("x" * 10**6)
    assert len(last_error(path)) == 300
