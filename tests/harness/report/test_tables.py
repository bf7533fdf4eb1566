"""What the page's tables hold before a browser sees them."""

from __future__ import annotations

import pytest

from harness.report import tables
from harness.report.cells import Registry, describe
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, gpu_cell
from tests.harness.campaign import kernel, serving
from tests.harness.report.some_cells import here, shipped

SOURCES = Sources.of(here(), shipped())


def view(number: int) -> tuple[tables.View, Registry]:
    registry = Registry.of(SOURCES)
    found = {one.number: one for one in tables.views(SOURCES, registry)}
    return found[number], registry


def row(of: tables.View, *labels: str) -> list[tables.Place]:
    (found,) = [
        places
        for places in of.rows
        if [p.text for p in places if p.label][: len(labels)] == list(labels)
    ]
    return found


def test_every_table_is_there_with_its_headings() -> None:
    registry = Registry.of(SOURCES)
    views = tables.views(SOURCES, registry)
    assert [one.number for one in views] == list(range(1, 26))
    for one in views:
        assert sum(head.width for head in one.heads) == len(one.columns)
        assert all(len(places) == len(one.columns) for places in one.rows)
    assert {head.origin for one in views for head in one.heads} >= {"paper", "shipped", "here"}


def test_a_measured_number_leads_to_its_cells() -> None:
    table, registry = view(3)
    places = row(table, "Llama-3.1-8B/TP=1", "16K (CPU: 512 tokens)", "GraniKV")
    by_key = {column.key: place for column, place in zip(table.columns, places, strict=True)}
    detail = table.details[by_key["shipped.output_tok_s"].detail or 0]
    assert detail["runs"] == 3
    assert detail["low"] < detail["value"] < detail["high"]
    ids = [registry.entries()[index]["id"] for index in detail["cells"]]
    assert ids == [f"granikv-sharegpt-16384-b256-k1-llama31_8b-1-full-1-{n}" for n in range(3)]
    ratio = table.details[by_key["shipped.ratio_to_sglang_default"].detail or 0]
    assert len(ratio["cells"]) == 6


def test_a_number_of_the_paper_names_its_table_and_hardware() -> None:
    table, _ = view(3)
    places = row(table, "Llama-3.1-8B/TP=1", "16K (CPU: 512 tokens)", "GraniKV")
    detail = table.details[places[3].detail or 0]
    assert "Table 3 of the paper" in detail["text"]
    assert detail["hardware"] == "A100-SXM4-40GB"


def test_a_dash_has_its_reason_and_mark() -> None:
    table, _ = view(3)
    places = row(table, "Qwen-2.5-32B/TP=4", "4K", "GraniKV")
    dash = places[-1]
    assert dash.text == "–"
    assert dash.sort == ""
    assert table.reasons[(dash.mark or 0) - 1] == table.details[dash.detail or 0]["text"]


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("4K", "4096"),
        ("4K (CPU: 128 tokens)", "4096"),
        ("512", "512"),
        ("1,024", "1024"),
        ("0.05", "0.05"),
        ("Cascade", "Cascade"),
        ("148,400", "148400"),
        ("GraniKV", "GraniKV"),
    ],
)
def test_labels_sort_by_their_number(label: str, key: str) -> None:
    assert tables.sort_key(label) == key


def test_a_cell_in_words() -> None:
    gpu = {"name": "NVIDIA H200", "driver": "590.1"}
    environment = {
        "gpus": [gpu],
        "packages": {"sglang": "0.5.17", "numpy": "2", "torch": None},
        "revision": {"commit": "0123456789abcdef"},
    }
    cell = gpu_cell("granikv", 1.0, record={"environment": environment})
    words = describe(cell)
    assert words["hardware"] == "one H200 (NVIDIA H200, driver 590.1)"
    assert words["software"] == "sglang 0.5.17, revision 0123456789ab"
    assert words["workload"] == "sharegpt, prefix 16K, B = 256, tokens streamed one by one"
    assert words["system"] == "GraniKV"
    two = MadeUpCell("x", cell.config, {}, record={"environment": {"gpus": [gpu, gpu]}})
    # Its server used one: a machine's other GPUs do not make it faster.
    assert describe(two)["hardware"] == "one H200 (1 of 2 × NVIDIA H200, driver 590.1)"


def test_a_cell_without_an_environment_is_still_described() -> None:
    words = describe(gpu_cell("granikv", 1.0, valid=False, reasons=["lag"]))
    assert (words["hardware"], words["software"]) == ("one H200", "")
    assert (words["valid"], words["reasons"]) == (False, ["lag"])


def test_how_tokens_were_streamed_is_told_of_what_a_gpu_served() -> None:
    def streamed(cell: MadeUpCell) -> bool:
        return "streamed" in describe(cell)["workload"]

    in_groups = serving("granikv", "sharegpt", (16384,), 256, engine={"stream_interval": 8})
    assert describe(in_groups)["workload"].endswith("tokens streamed in groups of 8")
    assert not streamed(kernel("HOT", "shared"))
    assert not streamed(cpu_cell("granikv", 1.0))


def test_all_tokens_are_said_to_reach_the_client() -> None:
    """The share is of two rates: prefills take time in the client's, none in the engine's."""
    rates = {"engine_decode_tok_s": 18_221.0, "delivered_share": 0.822}
    assert describe(gpu_cell("granikv", 1.0, metrics=rates))["engine"] == (
        "decodes 18,221 tok/s by its own log; the client's steady rate, prefills included, is 82% "
        "of that"
    )
