"""Every number in the list of contradictions, recomputed from the transcription."""

from __future__ import annotations

import pytest

from harness import paper
from harness.analysis import discrepancies

NOTES = {note.id: note for note in paper.notes()}


def _decimals(number: float) -> int:
    return len(str(number).partition(".")[2]) if isinstance(number, float) else 0


def test_every_note_is_computed_and_every_computation_noted() -> None:
    assert list(NOTES) == list(discrepancies.ids())


@pytest.mark.parametrize("name", NOTES)
def test_the_numbers_follow_from_the_tables(name: str) -> None:
    computed = discrepancies.compute(name)
    assert set(computed) == set(NOTES[name].numbers)
    for key, noted in NOTES[name].numbers.items():
        slack = 0.5 * 10 ** -_decimals(noted) + 1e-9
        assert computed[key] == pytest.approx(noted, abs=slack), key


@pytest.mark.parametrize("name", NOTES)
def test_a_note_says_where_and_what(name: str) -> None:
    note = NOTES[name]
    assert note.where
    assert note.printed
    assert note.found
