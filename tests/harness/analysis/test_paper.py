"""The transcription of the paper's tables against the paper's own text, where that is at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from harness import paper
from tests.harness.analysis.seed_text import TABLES

SEEDS = paper.ROOT.parent / "shared" / "seeds"
LONGEST = 6000
"""Characters in front of a caption that hold its table."""


@pytest.fixture(scope="module")
def text() -> str:
    """The longest seed, which is the paper's full text."""
    files = sorted(SEEDS.glob("*.txt"), key=lambda path: path.stat().st_size)
    if not files:
        pytest.skip("the paper's text is not at hand")
    return files[-1].read_text("utf-8")


def _found(text: str, number: int, frame: pd.DataFrame) -> bool:
    """Whether the whole table stands in the text in front of its caption, row after row."""
    captions = [match.start() for match in re.finditer(f"Table {number}: ", text)]
    assert captions, f"no caption of Table {number}"
    rows = re.compile(r"\s" + r"\s+".join(TABLES[number](frame)) + r"\S*\s+$")
    return any(rows.search(text[max(0, end - LONGEST) : end]) for end in captions)


@pytest.mark.parametrize("number", TABLES)
def test_every_row_stands_in_the_paper(number: int, text: str) -> None:
    assert _found(text, number, paper.table(number))


@pytest.mark.parametrize("number", TABLES)
def test_a_wrong_digit_is_noticed(number: int, text: str) -> None:
    frame = paper.table(number)
    numbers = frame.index[frame["value"].notna() & ~frame["metric"].eq("hot_slots")]
    last = numbers[-1]
    frame.loc[last, "printed"] = str(frame.loc[last, "printed"]) + "7"
    assert not _found(text, number, frame)


def test_every_transcribed_number_is_compared(text: str) -> None:
    """hot_slots of Table 24 stands in its note, the numbers of Figure 1 in its caption."""
    assert "HOT pool (7,4207,420 slots)" in text
    assert paper.value(paper.table(24), metric="hot_slots") == 7420
    caption = text.partition("Figure 1: ")[2][:700]
    for printed in paper.figure(1)["printed"]:
        assert re.search(rf"\D{re.escape(printed)}", caption), printed


def test_tables_are_whole() -> None:
    files = sorted(path.stem for path in paper.DIRECTORY.glob("table*.csv"))
    assert files == [f"table{number:02d}" for number in range(2, 25)]
    sizes = {number: len(paper.table(number)) for number in (3, 6, 9, 21)}
    assert sizes == {3: 45, 6: 20 * 10, 9: 36 * 10, 21: 30}


def test_no_number_stands_twice() -> None:
    for number in range(2, 25):
        frame = paper.table(number)
        assert not frame.duplicated(list(paper.KEYS)).any(), number


def test_value_and_printed() -> None:
    frame = paper.table(9)
    key: paper.Key = {"l_p": 16384, "b": 256, "system": "granikv", "metric": "ttft_p50_s"}
    assert paper.value(frame, **key) == 10.5
    assert paper.printed(paper.table(21), k=4, system="granikv", metric="tpot_p50_ms") == "38.0"


def test_one_key_names_one_number() -> None:
    with pytest.raises(paper.PaperError, match="exactly one"):
        paper.value(paper.table(9), l_p=16384)
    with pytest.raises(paper.PaperError, match="exactly one"):
        paper.value(paper.table(9), l_p=3)
    with pytest.raises(paper.PaperError, match="unknown key"):
        paper.select(paper.table(9), length=3)


def test_a_missing_file_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paper, "DIRECTORY", tmp_path)
    with pytest.raises(paper.PaperError, match="restore results/paper"):
        paper.table(98)
