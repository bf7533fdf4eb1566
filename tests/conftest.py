"""What holds for every test: nothing needs torch where there is none, and SIGINT interrupts."""

import gc
import importlib.util
import os
import re
import signal
from pathlib import Path

_HAS_TORCH = importlib.util.find_spec("torch") is not None
_NEEDS_TORCH = re.compile(
    r"^\s*(?:import|from)\s+(?:torch|sglang|granikv\.(?:attention|engine|bench)|tests\.engine)\b",
    re.MULTILINE,
)

# Tests run side by side, a worker a core: where each one's torch had a thread for every core, they
# would mostly wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and the programs under test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip collecting a test file that imports torch when there is none."""
    if _HAS_TORCH or collection_path.suffix != ".py":
        return None
    needs_torch = _NEEDS_TORCH.search(collection_path.read_text(encoding="utf-8"))
    return True if needs_torch else None


def pytest_collection_finish() -> None:
    """Spare the imported modules: with an engine among them each of a load's collections, which
    comes before it is sent, would look at 700,000 objects that never go."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """Say that files are left out, so that their absence is no surprise."""
    return "" if _HAS_TORCH else "torch is not installed: test files that import it are left out"
