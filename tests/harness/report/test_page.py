"""The page as text: whole, self-contained and safe."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness import paper, report
from harness.analysis.claims.claim import load
from harness.errors import HarnessError
from harness.figures import registry
from harness.report import figures

VOID = {"meta", "link", "input", "img", "br"}


class Outline(HTMLParser):
    """Elements in order with their attributes; complains of one that is closed wrongly."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(path: Path) -> str:
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    return parser


def test_it_is_one_file(path: Path) -> None:
    assert path.name == "report.html"
    assert list(path.parent.iterdir()) == [path]


def test_elements_are_closed_and_ids_are_unique(outline: Outline) -> None:
    assert outline.open == []
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_it_asks_for_nothing_from_outside(outline: Outline, text: str) -> None:
    for _, attributes in outline.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:"))
    assert "default-src 'none'" in text
    without_images = re.sub(r"data:image/svg\+xml;base64,[\w+/=]+", "", text)
    addresses = set(re.findall(r"https?://[\w./-]+", without_images))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, not a place


def test_every_table_figure_claim_and_note_is_there(outline: Outline, text: str) -> None:
    ids = {attributes.get("id") for _, attributes in outline.elements}
    assert {f"table{n:02d}" for n in range(1, 26)} <= ids
    assert {f"figure-{name}" for name in registry.FIGURES} <= ids
    assert {f"note-{note.id}" for note in paper.notes()} <= ids
    for claim in load(paper.ROOT / "claims.yaml"):
        assert claim.source.replace("&", "&amp;") in text
    images = [a for tag, a in outline.elements if tag == "img"]
    assert len(images) == len(registry.FIGURES)
    assert all(image["alt"] for image in images)
    assert set(figures.TITLES) == set(registry.FIGURES)


def test_every_control_has_a_label(outline: Outline, text: str) -> None:
    labelled = {a["for"] for tag, a in outline.elements if tag == "label" and "for" in a}
    inside = set(re.findall(r"<label[^>]*>[^<]*<(?:input|select) id=\"([\w-]+)\"", text))
    controls = {a["id"] for tag, a in outline.elements if tag in ("input", "select")}
    assert controls == labelled | inside


def test_what_a_cell_says_cannot_become_markup(text: str) -> None:
    assert "onerror=hit" in text
    assert "<img src=x" not in text
    assert "</script><img" not in text
    data = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    reasons = [detail.get("text", "") for table in json.loads(data)["details"] for detail in table]
    assert any("</script><img src=x onerror=hit>" in reason for reason in reasons)


def test_a_cpu_run_is_called_a_functional_check(text: str) -> None:
    assert "functional check, tiny model on the CPU: 4 valid of 5 cells" in text
    assert "It says nothing about speed" in text


def test_it_holds_no_time_and_no_path_of_this_machine(text: str) -> None:
    assert str(paper.ROOT) not in text
    assert str(Path.home()) + "/" not in text


def test_without_any_cell_the_page_still_stands(tmp_path: Path) -> None:
    empty = report.render([], [], tmp_path).read_text("utf-8")
    assert "No measured cell is kept with the project yet." in empty
    assert "No cell was measured on this machine" in empty
    assert "Not drawn. No cell holds a server" in empty


def test_a_directory_that_cannot_be_written_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.report.build.page", lambda sources, drawn: "")
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError, match="could not be written"):
        report.render([], [], tmp_path / "file")
