"""Finds the table modules: each `harness/tables/tableNN.py` has `build(sources) -> Table`."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import TypeAlias

import harness.tables
from harness.tables.sources import Sources
from harness.tables.table import Table

Build: TypeAlias = Callable[[Sources], Table]

_MODULE = re.compile(r"table(\d{2})")


def builders() -> dict[int, Build]:
    """Every table's build function by its number. A new table is a new file, nothing else."""
    found: dict[int, Build] = {}
    for module in pkgutil.iter_modules(harness.tables.__path__):
        match = _MODULE.fullmatch(module.name)
        if match:
            build: Build = importlib.import_module(f"harness.tables.{module.name}").build
            found[int(match[1])] = build
    return dict(sorted(found.items()))
