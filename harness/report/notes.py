"""What in the paper does not follow from its own tables, each number recomputed."""

from __future__ import annotations

from dataclasses import dataclass

from harness import paper
from harness.analysis import discrepancies


@dataclass(frozen=True)
class Row:
    """One note, with its numbers as (name, recomputed value) in plain words."""

    id: str
    where: str
    printed: str
    found: str
    numbers: tuple[tuple[str, str], ...]


def rows() -> list[Row]:
    """All notes in the file's order."""
    return [
        Row(
            note.id,
            note.where,
            note.printed,
            note.found,
            tuple(
                (name.replace("_", " "), f"{value:,.4g}")
                for name, value in discrepancies.compute(note.id).items()
            ),
        )
        for note in paper.notes()
    ]
