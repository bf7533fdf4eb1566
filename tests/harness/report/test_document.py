"""REPRODUCE.md's computed parts are what the claims, the shipped cells and the paper give now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness import paper, store
from harness.analysis import discrepancies
from harness.analysis.claims.claim import FILE, load
from harness.errors import HarnessError
from harness.report import document
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell

CLAIM = next(c for c in load(FILE) if c.id == "table3-llama-16k-default")


def test_the_document_is_up_to_date() -> None:
    text = document.FILE.read_text("utf-8")
    assert document.rewritten(text, store.load_shipped(paper.RESULTS)) == text, (
        "run `python -m harness.report.document` and commit REPRODUCE.md"
    )


def test_a_part_that_was_changed_by_hand_is_computed_again() -> None:
    text = document.FILE.read_text("utf-8")
    changed = text.replace("1.35×", "9.99×")
    assert changed != text
    assert document.rewritten(changed, store.load_shipped(paper.RESULTS)) == text


def cells(ratio: float) -> list[MadeUpCell]:
    speeds = (("granikv", ratio * 1000.0), ("sglang_default", 1000.0))
    return [gpu_cell(s, v, repetition=r) for s, v in speeds for r in range(3)]


@pytest.mark.parametrize(("ratio", "said"), [(3.5, "| PASS 3.50×"), (1.2, "| **FAIL** 1.20×")])
def test_a_claim_with_cells_has_its_verdict(ratio: float, said: str) -> None:
    part = document.claims_part([CLAIM], cells(ratio))
    assert said in part.splitlines()[-1]
    assert ("1 PASS" in part) == (ratio > 2)


def test_a_claim_without_cells_is_not_measured() -> None:
    assert "| not measured |" in document.claims_part([CLAIM], [])
    other = [cpu_cell("granikv", 3.0)]
    assert "forms no ratio" in document.claims_part([CLAIM], other)


def test_a_claim_cannot_break_the_table() -> None:
    line = document.claims_part([replace(CLAIM, sentence="a | b")], []).splitlines()[-1]
    assert line.count(" | ") == 4
    assert r"a \| b" in line


def test_every_contradiction_stands_there_and_is_recomputed() -> None:
    assert document.notes_part().count("\n- ") + 1 == len(paper.notes())
    assert {note.id for note in paper.notes()} == set(discrepancies.ids())


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(HarnessError, match="unknown part 'other'"):
        document.rewritten("<!-- computed: other -->\n<!-- end -->\n", [])


def test_the_command_rewrites_the_file_or_says_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.md"
    path.write_text("before\n<!-- computed: notes -->\nby hand\n<!-- end -->\nafter\n")
    assert document.main(path) == 0
    text = path.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "by hand" not in text
    assert document.main(tmp_path / "none.md") == 1
    assert "No such file" in capsys.readouterr().err
