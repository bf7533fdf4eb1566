"""Where torch is not installed (``make check``), leave out the test files that need it."""

import importlib.util
import re
from pathlib import Path

_HAS_TORCH = importlib.util.find_spec("torch") is not None
_NEEDS_TORCH = re.compile(
    r"^\s*(?:import|from)\s+(?:torch|sglang|granikv\.(?:attention|engine|bench)|tests\.engine)\b",
    re.MULTILINE,
)
_left_out: set[Path] = set()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip collecting a test file that imports torch when there is none."""
    if _HAS_TORCH or collection_path.suffix != ".py":
        return None
    if _NEEDS_TORCH.search(collection_path.read_text(encoding="utf-8")) is None:
        return None
    _left_out.add(collection_path)
    return True


def pytest_report_collectionfinish() -> str:
    """Say how many files were left out, so that their absence is no surprise."""
    return f"no torch here: {len(_left_out)} test files left out" if _left_out else ""
