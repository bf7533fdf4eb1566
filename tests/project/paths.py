"""Where the checkout's own files are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "conf" / "locks"
