"""`sglang.launch_server` with one part of GraniKV that raises: GRANIKV_TEST_BROKEN=module:name.

The processes that the launcher starts import this module again, so the part is broken there too.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any


def _raise(*_: Any, **__: Any) -> None:
    raise RuntimeError("broken for this test")


def _break(target: str) -> None:
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, _raise)


_break(os.environ["GRANIKV_TEST_BROKEN"])

if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.srt import server_args as engine

    run_server(engine.prepare_server_args(sys.argv[1:]))
