"""Configurations the tests build from: the shipped ones of conf/workload/, and small ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).parents[2] / "conf" / "workload"

CONF_NAMES = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem != "kernel")
"""A kernel is launched and not asked: it has no requests."""

VOCAB_SIZE = 128_000

TURNS: dict[str, Any] = {"shrink_turns_to": [4, 16]}
SMALL: dict[str, dict[str, Any]] = {
    "sharegpt": {"prefix_length": 32, **TURNS},
    "multi_prefix": {"prefix_lengths": [16, 48, 32], "common_head": 5, **TURNS},
    "synthetic": {"prefix_length": 32, "suffix_min": 4, "suffix_max": 9},
    "negative_control": {"prefix_length": 32, **TURNS},
}


def small(kind: str, **changes: Any) -> dict[str, Any]:
    """A configuration of 12 requests over 512 token ids, with changes."""
    common = {"kind": kind, "requests": 12, "output_tokens": 6, "vocab_size": 512}
    return {**common, **SMALL[kind], **changes}


def shipped(name: str, **changes: Any) -> dict[str, Any]:
    """conf/workload/<name>.yaml with a vocabulary, and changes."""
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    return {**config, "vocab_size": VOCAB_SIZE, **changes}
