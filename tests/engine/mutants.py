"""Deliberate faults in the storage layer, to prove that the equality tests would notice them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def apply(name: str) -> None:
    """Put the fault called ``name`` into this process; nothing for the empty name."""
    if name:
        MUTANTS[name]()


def _row_not_repointed() -> None:
    """The last reader of every relocated run keeps its old slots."""
    tree: Any = import_module("granikv.engine.tree")
    original = tree.repoint

    def repoint(readers: list[Any], *args: Any) -> None:
        original(readers[:-1] if len(readers) > 1 else readers, *args)

    tree.repoint = repoint


def _slab_off_by_one() -> None:
    """Every slab is read one slot late."""
    runtime: Any = import_module("granikv.engine.runtime")
    original = runtime.Segment

    def shifted(base: int | None, p0: int, length: int, rows: Any) -> Any:
        return original(base if base is None else base + 1, p0, length, rows)

    runtime.Segment = shifted


def _base_two_lse() -> None:
    """The slab side's log-sum-exp is in base 2, the suffix side's in base e."""
    from granikv.attention import lse_natural_to_base2

    segmented: Any = import_module("granikv.attention.segmented")
    original = segmented.merge

    def merge(partials: Any, *args: Any, **kwargs: Any) -> Any:
        first, *others = list(partials)
        wrong = first._replace(lse=lse_natural_to_base2(first.lse))
        return original([wrong, *others], *args, **kwargs)

    segmented.merge = merge


MUTANTS: dict[str, Callable[[], None]] = {
    "row_not_repointed": _row_not_repointed,
    "slab_off_by_one": _slab_off_by_one,
    "base_two_lse": _base_two_lse,
}
