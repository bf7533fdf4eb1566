"""The page in a real browser: it loads without an error, controls change what they should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from granikv.pools import hot_size
from harness.analysis import amdahl
from harness.analysis.roofline import LLAMA_8B_HEADLINE
from tests.harness.report.browser import Page, binary, browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(binary() is None, reason="no chromium here (Debian: apt install chromium)"),
]
TAB, ENTER, ESCAPE, RIGHT, DOWN = 9, 13, 27, 39, 40


@pytest.fixture(scope="module")
def opened(path: Path) -> Iterator[Page]:
    """One browser with the page of a few cells."""
    with browser() as page:
        page.resize(1200)
        page.open(path)
        yield page


@pytest.fixture
def page(opened: Page) -> Iterator[Page]:
    """The page, which must end each test without an error on its console."""
    opened.run("document.querySelector('dialog').close()")
    yield opened
    assert opened.errors == []


def rows(page: Page, table: str) -> list[list[str]]:
    """Texts of a table's body."""
    found: list[list[str]] = page.run(
        f"[...document.querySelectorAll('{table} tbody tr')]"
        ".map(r => [...r.cells].map(c => c.textContent.trim()))"
    )
    return found


def column(page: Page, table: str, index: int) -> list[str]:
    return [row[index] for row in rows(page, table)]


def sort(page: Page, table: str, index: int) -> None:
    page.run(f"document.querySelectorAll('{table} .sort')[{index}].click()")


def results(page: Page) -> list[str]:
    """The Amdahl explorer's numbers."""
    found: list[str] = page.run(
        "[...document.querySelectorAll('#a-out dd')].map(d => d.textContent)"
    )
    return found


def test_it_asks_the_network_for_nothing(page: Page) -> None:
    assert page.run("document.title") == "GraniKV: reproduction report"
    outside = [a for a in page.requests if not a.startswith(("data:", "file:", "about:", "blob:"))]
    assert outside == []
    assert len([address for address in page.requests if address.startswith("file:")]) == 1


def test_every_image_is_drawn(page: Page) -> None:
    sizes = page.run(
        "Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))"
    )
    assert len(sizes) >= 9
    assert min(sizes) > 100


def test_a_claim_is_read_without_scrolling_sideways(page: Page) -> None:
    """What was observed and why stands beside the claim, on a laptop's screen."""
    page.resize(1280)
    hidden = page.run(
        "(() => { const box = document.querySelector('#claims .scroll');"
        " return box.scrollWidth - box.clientWidth; })()"
    )
    page.resize(1200)
    assert hidden <= 0


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_itself_never_scrolls_sideways(page: Page, width: int) -> None:
    page.resize(width)
    try:
        assert page.run("document.documentElement.scrollWidth") <= width
        wide = page.run(
            "[...document.querySelectorAll('.scroll')].some(s => s.scrollWidth > s.clientWidth)"
        )
        assert wide  # tables scroll in their own boxes
    finally:
        page.resize(1200)


def boxes(page: Page) -> list[tuple[str, bool, bool, bool]]:
    """Of each table: whether it is wider than its box, shaded on the right, and told to be."""
    found = page.run(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("
        "[...document.querySelectorAll('.tablebox .scroll')].map((b) => [b.closest('section').id,"
        " b.scrollWidth > b.clientWidth, b.classList.contains('more'),"
        " b.previousElementSibling.offsetParent !== null])))))"
    )
    return [tuple(one) for one in found]


def test_columns_outside_their_box_are_told_of(page: Page) -> None:
    page.resize(1400)
    try:
        found = boxes(page)
        assert {wide for _, wide, _, _ in found} == {True, False}
        assert all(wide == more == told for _, wide, more, told in found)
        page.run("document.querySelector('#table09 .scroll').scrollLeft = 1e6")
        assert ("table09", True, False, True) in boxes(page)
    finally:
        page.run("document.querySelector('#table09 .scroll').scrollLeft = 0")
        page.resize(1200)


def test_headings_sort_up_down_and_back(page: Page) -> None:
    before = rows(page, "#table03")
    sort(page, "#table03", 3)
    found = column(page, "#table03", 3)
    rising = [float(text.replace(",", "")) for text in found if text]
    assert rising == sorted(rising)
    assert found[len(rising) :] == [""] * 9  # the paper has no SGLang with FA3
    heading = "document.querySelectorAll('#table03 thead tr:last-child th')[3]"
    assert page.run(f"{heading}.getAttribute('aria-sort')") == "ascending"
    sort(page, "#table03", 3)
    assert column(page, "#table03", 3)[0] == "6,284" or rising[-1] == float(
        column(page, "#table03", 3)[0].replace(",", "")
    )
    assert page.run(f"{heading}.getAttribute('aria-sort')") == "descending"
    sort(page, "#table03", 3)
    assert rows(page, "#table03") == before
    assert page.run(f"{heading}.hasAttribute('aria-sort')") is False


def test_lengths_sort_by_tokens_and_missing_numbers_stay_last(page: Page) -> None:
    sort(page, "#table09", 0)
    sort(page, "#table09", 0)
    lengths = column(page, "#table09", 0)
    assert lengths[0].startswith("16K")
    assert lengths[-1] == "512"
    sort(page, "#table09", 0)
    for _ in range(2):
        sort(page, "#table03", 6)  # shipped tok/s: one length of one model is measured
        texts = column(page, "#table03", 6)
        assert texts[0][0].isdigit()
        assert texts[-1].startswith("–")
    sort(page, "#table03", 6)


def test_a_number_shows_its_cells_command_and_hardware(page: Page) -> None:
    page.run(
        "[...document.querySelectorAll('#table03 tbody tr')].find(r => r.textContent.includes"
        "('16K') && r.textContent.includes('GraniKV')).cells[6].querySelector('.v').click()"
    )
    assert page.run("document.getElementById('detail').open") is True
    said = page.text("detail")
    assert "granikv-sharegpt-16384-b256-k1-llama31_8b-1-full-1-0" in said
    assert "python -m harness system=granikv model=llama31_8b workload=sharegpt" in said
    assert "one H200" in said
    assert "95% bootstrap over 3 runs" in said
    assert "16K" in page.text("detail-h")
    page.press("Escape", ESCAPE)
    assert page.run("document.getElementById('detail').open") is False


def test_a_number_of_the_paper_and_a_dash_say_where_they_come_from(page: Page) -> None:
    page.run("document.querySelector('#table05 .v').click()")
    assert "Printed in Table 5 of the paper" in page.text("detail")
    assert "A100-SXM4-40GB" in page.text("detail")
    page.run("document.querySelector('dialog').close()")
    page.run(
        "[...document.querySelectorAll('#table13 .v')].find(v => v.textContent[0] === '–').click()"
    )
    assert "no shipped cell: not measured yet" in page.text("detail")


def test_what_a_cell_says_stays_text(page: Page) -> None:
    page.run(
        "[...document.querySelectorAll('.v')].find(v => DATA.details[v.closest('table').dataset"
        ".table][v.dataset.d].text?.includes('onerror')).click()"
    )
    assert "<img src=x onerror=hit>" in page.text("detail")
    assert page.run("document.querySelectorAll('#detail img').length") == 0


def test_a_table_is_one_tab_stop_and_the_arrows_move_in_it(page: Page) -> None:
    stops = "document.querySelectorAll('#table03 .v[tabindex=\"0\"]').length"
    page.run("enter(document.querySelector('#table03 .v'))")
    assert page.run(stops) == 1
    page.run("document.querySelector('#table03 .v[tabindex=\"0\"]').focus()")
    page.press("ArrowDown", DOWN)
    page.press("ArrowDown", DOWN)
    page.press("ArrowRight", RIGHT)
    assert page.run("document.activeElement.textContent") == "1.35×"
    assert page.run(stops) == 1
    page.press("Enter", ENTER)
    assert page.run("document.getElementById('detail').open") is True
    page.press("Escape", ESCAPE)
    assert page.run("document.activeElement.textContent") == "1.35×"


def test_the_first_tab_stop_skips_to_the_content(page: Page) -> None:
    page.run("document.activeElement.blur(); window.scrollTo(0, 0); getSelection().empty()")
    page.run("document.querySelector('.skip').focus()")
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0
    page.press("Enter", ENTER)
    assert page.run("document.activeElement.id") == "main"


def test_go_to_table(page: Page) -> None:
    page.fill("jump", "table24")
    assert page.run("document.activeElement.closest('section').id") == "table24"


def test_colours_follow_the_system_and_the_choice(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.media(prefers_color_scheme="light")
    light = page.run(background)
    page.media(prefers_color_scheme="dark")
    dark = page.run(background)
    assert light != dark
    page.fill("theme", "light")
    assert page.run(background) == light
    page.fill("theme", "auto")
    assert page.run(background) == dark
    page.media(prefers_color_scheme="light")
    page.fill("theme", "dark")
    assert page.run(background) == dark
    page.fill("theme", "auto")


CONTRAST = """(() => {
  const rgb = (s) => s.match(/[\\d.]+/g).map(Number);
  const lum = (s) => { const [r, g, b] = rgb(s).slice(0, 3).map(v => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e)
    .backgroundColor; const p = rgb(c); if (p.length < 4 || p[3] > 0) return c; }
    return 'rgb(255, 255, 255)'; };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('p, dt, dd, th, td, a, .badge, label, li, h2, h3, code,'
      + ' figcaption, .sort, .v')) {
    if (!e.textContent.trim() || e.offsetParent === null) continue;
    if (e.classList.contains('hidden')) continue;
    const [a, b] = [lum(getComputedStyle(e).color), lum(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.className + ': ' + e.textContent.trim().slice(0, 40)];
  }
  return worst; })()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(page: Page, scheme: str) -> None:
    page.media(prefers_color_scheme=scheme)
    try:
        ratio, where = page.run(CONTRAST)
        assert ratio >= 4.5, where
    finally:
        page.media()


def test_on_paper_everything_is_there(page: Page) -> None:
    page.media("print")
    try:
        assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
        heights = page.run(
            "[...document.querySelectorAll('.scroll')].map(s => getComputedStyle(s).maxHeight)"
        )
        assert set(heights) == {"none"}
    finally:
        page.media()
    assert len(page.command("Page.printToPDF")["data"]) > 100_000


def test_saving_a_table_gives_what_it_shows(page: Page) -> None:
    text = page.run("csvOf(document.querySelector('#table05 table'))")
    lines = text.splitlines()
    assert lines[0].startswith('"Storage","Prefix is read","paper (A100-SXM4-40GB), Wall (µs)"')
    assert '"449"' in lines[1]
    assert len(lines) == 5


def test_the_layout_explorer_admits_slabs_first_fit(page: Page) -> None:
    page.fill("l-preset", "1")
    table = {row[0]: row[1:] for row in rows(page, "#l-table")}
    assert table["Prefixes in slabs"] == ["0", "4 of 4"]
    assert table["Prefix tokens read in a step"] == [f"{64 * 30_720:,}", "30,720"]
    page.fill("l-fp", 0.2)  # 29,680 slots: 2K + 4K + 8K fit, 16K does not
    table = {row[0]: row[1:] for row in rows(page, "#l-table")}
    assert table["Prefixes in slabs"] == ["0", "3 of 4"]
    assert table["Prefix tokens read in a step"][1] == f"{14_336 + 64 * 16_384:,}"
    assert f"HOT holds {hot_size(148_400, 0.2):,} slots" in page.text("l-result")


def test_the_layout_explorer_counts_part_filled_pages(page: Page) -> None:
    page.fill("l-preset", "0")
    page.fill("l-lengths", "100")
    page.fill("l-suffix", 17)
    page.fill("l-b", 2)
    page.fill("l-page", "16")
    table = {row[0]: row[1:] for row in rows(page, "#l-table")}
    assert table["Slots in use"] == [str(112 + 2 * 32), str(100 + 2 * 17)]
    assert table["of them empty (part-filled pages)"] == [str(12 + 2 * 15), "0"]
    page.fill("l-page", "1")
    assert {r[0]: r[1] for r in rows(page, "#l-table")}["Slots in use"] == "134"
    assert page.run("document.querySelectorAll('#l-hot rect').length") > 2


def test_the_layout_explorer_shows_a_live_server(page: Page) -> None:
    options = page.run("[...document.querySelectorAll('#l-preset option')].map(o => o.textContent)")
    live = next(n for n, text in enumerate(options) if text.startswith("Live: multi_prefix 64/128"))
    page.fill("l-preset", str(live))
    said = page.text("l-result")
    assert "reported 960 slots in slabs" in said
    assert "takes 4 of 4 prefixes" in said


@pytest.mark.parametrize(
    ("element", "bad", "error"),
    [
        ("l-lengths", "2048, x", "l-error"),
        ("l-b", "0", "l-error"),
        ("d-b", "1.5", "d-error"),
        ("a-s", "", "a-error"),
        ("r-lp", "-4", "r-error"),
    ],
)
def test_an_unusable_input_is_said_and_marked(
    page: Page, element: str, bad: str, error: str
) -> None:
    good = page.run(f"document.getElementById('{element}').value")
    page.fill(element, bad)
    assert page.text(error) != ""
    assert page.run(f"document.getElementById('{element}').ariaInvalid") == "true"
    page.fill(element, good)
    assert page.text(error) == ""


def test_the_dispatch_explorer_applies_the_papers_rule(page: Page) -> None:
    a100 = page.run("DATA.explore.profiles.findIndex(p => p.name === 'a100_40gb')")
    page.fill("d-profile", str(a100))
    page.fill("d-b", 256)
    page.fill("d-group", 4)
    assert "= 1,024 ≥ 1,024: dense" in page.text("d-result")
    page.fill("d-b", 255)
    assert "= 1,020 < 1,024: cascade" in page.text("d-result")
    backend = (
        "[...document.querySelectorAll('#d-map tbody tr')].find(r => r.cells[0].textContent"
        ".startsWith('5'))"
    )
    classes = page.run(f"[...{backend}.cells].slice(1).map(c => c.className)")
    assert classes == ["cascade"] * 8 + ["dense"] * 3  # 128 · 5 = 640, 256 · 5 = 1,280
    page.fill("d-msat", 640)
    assert page.run(f"{backend}.cells[8].className") == "dense"
    page.fill("d-b", 256)
    page.fill("d-k", 8)
    assert "each of 8 classes has about 128 rows" in page.text("d-result")
    page.fill("d-k", 1)


def test_a_profile_with_a_cost_model_does_not_go_by_the_papers_rule(page: Page) -> None:
    for name, fitted in (("h200", True), ("a100_40gb", False)):
        page.fill(
            "d-profile", str(page.run(f"DATA.explore.profiles.findIndex(p => p.name === '{name}')"))
        )
        assert ("goes by its fitted cost model" in page.text("d-result")) is fitted


def test_a_profile_without_m_sat_asks_for_one(page: Page) -> None:
    unfitted = page.run("DATA.explore.profiles.findIndex(p => p.m_sat === null)")
    if unfitted < 0:
        pytest.skip("every profile here is fitted")
    page.fill("d-profile", str(unfitted))
    assert "not fitted" in page.text("d-result")
    assert rows(page, "#d-map") == []
    page.fill("d-msat", 512)
    assert "dense" in page.text("d-result")


@pytest.mark.parametrize(("preset", "config"), [(0, "Llama"), (1, "14B"), (2, "32B")])
def test_the_amdahl_explorer_gives_table_22(page: Page, preset: int, config: str) -> None:
    page.fill("a-preset", str(preset))
    shown = page.run(f"document.querySelectorAll('#a-preset option')[{preset}].textContent")
    assert config in shown
    printed = {0: ("2.29×", "2.47×"), 1: ("2.59×", "2.91×"), 2: ("2.24×", "2.25×")}[preset]
    eq3, eq4, busy, *_ = results(page)
    assert eq3 == eq4 == printed[0]
    assert busy == printed[1]


def test_the_amdahl_explorer_agrees_with_the_analysis(page: Page) -> None:
    for name, value in (("alpha", 40), ("beta", 10), ("gamma", 20), ("s", 4), ("measured", 1.3)):
        page.fill(f"a-{name}", value)
    expected = [
        amdahl.speedup(0.4, 4),
        amdahl.speedup_with_fixed_terms(0.4, 0.1, 0.2, 4),
        amdahl.speedup(amdahl.share_of_kernel_time(0.4, 0.2), 4),
        amdahl.effective_kernel_speedup(0.4, 1.3),
        1 / 0.6,
    ]
    assert results(page) == [f"{value:.2f}×" for value in expected]
    page.fill("a-measured", 3)
    assert results(page)[3] == "∞"
    page.fill("a-gamma", 60)
    assert "more than 100%" in page.text("a-error")
    page.fill("a-preset", "0")
    assert page.text("a-error") == ""


def test_the_roofline_explorer_agrees_with_the_analysis(page: Page) -> None:
    page.fill("r-profile", "a100_40gb")
    page.fill("r-b", 256)
    page.fill("r-lp", 8192)
    table = {row[0]: row[1:] for row in rows(page, "#r-table")}
    shape = LLAMA_8B_HEADLINE
    assert table["Useful work"][0] == f"{shape.flop / 1e9:.1f} GFLOP"
    assert table["K and V read, by the byte model"] == [
        f"{shape.bytes_read(shared=False) / 1e9:.2f} GB",
        f"{shape.bytes_read(shared=True) / 1e6:.1f} MB",
    ]
    assert table["Arithmetic intensity"] == ["4 FLOP/byte", "1,024 FLOP/byte"]
    assert table["Bound by"] == ["memory", "arithmetic"]
    assert table["Roof"] == ["6.22 TFLOP/s", "312 TFLOP/s"]
    page.fill("r-b", 8)
    assert {r[0]: r[1:] for r in rows(page, "#r-table")}["Bound by"] == ["memory", "memory"]
    assert page.run("document.querySelectorAll('#r-chart circle').length") == 2
    assert page.text("r-measured").startswith("Hollow: measured by the paper (Table 23) at B = 256")
    page.fill("r-profile", "h200")
    assert page.text("r-measured").startswith("Hollow: measured by this project's cells at B = 256")


def label_after_scrolling(page: Page, width: int) -> tuple[float, float, float]:
    """Left edges of Table 9's box, of its first system and of that column's heading."""
    page.resize(width)
    left = page.run(
        "(() => { const box = document.querySelector('#table09 .scroll');"
        " box.scrollLeft = box.scrollWidth; const x = (e) => e.getBoundingClientRect().left;"
        " const rows = box.querySelectorAll('tr');"
        " return [x(box), x(rows[2].cells[2]), x(rows[1].cells[2])]; })()"
    )
    page.resize(1200)
    box, label, title = left
    return box, label, title


def test_labels_stay_in_sight_while_numbers_scroll(page: Page) -> None:
    box, label, title = label_after_scrolling(page, 1000)
    assert box < label < box + 300
    assert title == label


def test_the_source_of_the_numbers_stays_in_sight_too(page: Page) -> None:
    """Else a measured number scrolls to where the paper's heading was."""
    page.resize(1000)
    edges = page.run(
        "(() => { const box = document.querySelector('#table09 .scroll'); box.scrollLeft = 500;"
        " const [labels, , shipped] = box.querySelector('tr').cells;"
        " const span = shipped.querySelector('span').getBoundingClientRect();"
        " const seen = shipped.getBoundingClientRect(), corner = labels.getBoundingClientRect();"
        " box.scrollIntoView({ behavior: 'instant', block: 'center' });"
        " const at = labels.getBoundingClientRect();"
        " const over = document.elementFromPoint(at.right - 3, at.top + at.height / 2);"
        " return [span.left, Math.max(seen.left, corner.right), over === labels]; })()"
    )
    page.resize(1200)
    assert edges[0] >= edges[1]
    assert edges[2], "the paper's heading lies over the labels'"


def test_on_a_phone_labels_scroll_away_to_leave_room_for_numbers(page: Page) -> None:
    box, label, _ = label_after_scrolling(page, 360)
    assert label < box


def test_no_label_of_the_roofline_leaves_the_chart(page: Page) -> None:
    """Of the profile that has measured kernels; each says its storage and who reads."""
    page.fill("r-profile", "h200")
    page.fill("r-b", 256)
    texts = page.run(
        "[...document.querySelectorAll('#r-chart text:not([transform])')]"
        ".map(t => [t.textContent, t.getBBox().x, t.getBBox().x + t.getBBox().width])"
    )
    assert {"HOT, read once", "paged, by each row"} <= {text for text, _, _ in texts}
    assert [text for text, left, right in texts if left < 0 or right > 640] == []


def test_claims_carry_their_verdicts(page: Page) -> None:
    verdicts = column(page, "#claims", 0)
    assert set(verdicts) <= {"PASS", "FAIL", "INCONCLUSIVE"}
    assert "FAIL" in verdicts  # the made-up counters give dense steps no rows
    sort(page, "#claims", 0)
    assert column(page, "#claims", 0) == sorted(verdicts)
    for _ in range(2):
        sort(page, "#claims", 0)
