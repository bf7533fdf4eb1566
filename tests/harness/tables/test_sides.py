"""What tables and captions say of the two sides of a ratio, and of how systems prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness import paper
from harness.tables import registry
from harness.tables.labels import system_label
from harness.tables.metrics import BASELINES
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import K4, kernel, serving
from tests.harness.figures.drawn import drawing

SHIPPED = "shipped (one H200): "
PREFILLS = {"sglang_default": ("flashinfer", 16), "sglang_cascade": ("flashinfer", 16)}


def measured(
    system: str, l_p: int = 8192, *, at: str = "16:00", commit: str = "a", **parts: Any
) -> MadeUpCell:
    """A cell that says when and by which revision it was measured, and how its server prefills."""
    cell = serving(
        system, parts.pop("kind", "sharegpt"), parts.pop("lengths", (l_p,)), 256, **parts
    )
    backend, page_size = PREFILLS.get(system, ("fa3", 1))
    facts = {"attention_backend": backend, "page_size": page_size}
    facts["prefill_attention_backend"] = None
    record = {
        "started": f"2026-11-30T{at}:00+00:00",
        "environment": {"revision": {"commit": commit}},
        "server": {"facts": facts},
    }
    return replace(cell, record=record)


def notes(number: int, cells: Sequence[MadeUpCell], about: str) -> list[str]:
    table = registry.builders()[number](Sources.of((), cells))
    return [note.removeprefix(SHIPPED) for note in table.notes if about in note]


def three(**parts: Any) -> list[MadeUpCell]:
    return [measured(system, **parts) for system in BASELINES]


APART = (
    ": both sides measured apart (another revision, perhaps another GPU); an interval covers runs "
    "on one server of each side."
)


def test_sides_of_other_revisions_are_told_by_place() -> None:
    old = [measured("granikv", l_p) for l_p in (8192, 16384)] + [measured("sglang_default", 16384)]
    new = [measured("sglang_default", 8192, commit="b")]
    new += [measured("sglang_cascade", l_p, commit="b") for l_p in (8192, 16384)]
    both = [measured(system, 4096, commit="b") for system in BASELINES]
    assert notes(3, [*old, *new, *both], "apart") == [
        "GraniKV to SGLang default at L_p = 8K; GraniKV to SGLang-Cascade at L_p = 8K and 16K"
        + APART
    ]


def test_a_side_whose_own_runs_are_of_two_revisions_is_told() -> None:
    """Their interval is not of one server."""
    four: dict[str, Any] = {"kind": "multi_prefix", "lengths": K4, "k": 4}
    runs = [measured("granikv", commit=name, repetition=n, **four) for n, name in enumerate("abb")]
    cells = [*runs, measured("sglang_default", **four)]
    assert notes(21, cells, "apart") == [
        f"GraniKV to SGLang default{APART.removesuffix('.')}, "
        "but of GraniKV runs of several revisions."
    ]


@pytest.mark.parametrize(
    ("later", "said"), [("16:59", []), ("17:01", ["more than an hour between them"])]
)
def test_hours_that_lie_apart_are_told_of_one_revision(later: str, said: list[str]) -> None:
    cells = [measured("granikv"), measured("sglang_default", at=later)]
    found = notes(3, cells, "apart")
    assert [note.partition("apart (")[2].partition(",")[0] for note in found] == said


def test_runs_in_turns_are_not_apart_however_long_they_took() -> None:
    cells = [
        measured(system, at=at, repetition=run)
        for run, at in enumerate(("12:00", "14:00"))
        for system in ("granikv", "sglang_default")
    ]
    assert notes(3, cells, "apart") == []


def test_a_number_computed_of_two_systems_has_two_sides() -> None:
    dense, cascade = (
        measured(system, kind="synthetic", commit=system)
        for system in ("granikv_dense", "granikv_cascade")
    )
    said = f"GraniKV forced dense to GraniKV forced cascade{APART}"
    assert notes(16, [dense, cascade], "apart") == [said]
    same = [replace(cell, record=dense.record) for cell in (dense, cascade)]
    assert notes(16, same, "apart") == []


def test_the_dispatcher_and_its_child_are_told_apart_too() -> None:
    """What choosing costs is the first question to Table 16's columns."""
    dense = measured("granikv_dense", kind="synthetic", commit="b")
    cells = [measured("granikv", kind="synthetic"), dense]
    assert notes(16, cells, "apart") == [f"GraniKV to GraniKV forced dense{APART}"]


def test_loads_of_several_kinds_are_told_by_name() -> None:
    four: dict[str, Any] = {"kind": "multi_prefix", "lengths": K4, "k": 4}
    replayed: dict[str, Any] = {"workload": {"kind": "trace", "trace": "toolagent"}}
    loads = ({"kind": "negative_control", "l_p": 4096}, four, replayed | {"load": {}})
    cells = [
        measured(system, commit=system * (load is not four), **load)
        for load in loads
        for system in ("granikv", "sglang_default")
    ]
    said = "GraniKV to SGLang default at load = prompts of their own and the tool-agent trace"
    assert notes(25, cells, "apart") == [said + APART]


def test_a_law_joins_kernels_traces_and_rates_of_several_leases() -> None:
    traced = measured("sglang_default", 16384, commit="b", profile={"kind": "kineto"})
    rates = [measured(system, 16384) for system in ("granikv", "sglang_default")]
    said = "measured apart (another revision, perhaps another GPU)."
    assert notes(22, [traced, *rates], "apart") == [f"s_eff: of kernels, traces and rates {said}"]
    assert notes(22, [replace(traced, record=rates[0].record), *rates], "apart") == []
    slab, pages = kernel("HOT", "shared"), kernel("paged", "unshared")
    own = [replace(cell, record=measured("granikv", commit="c").record) for cell in (slab, pages)]
    assert notes(22, [traced, *own], "apart") == [
        f"S (s), S (+β, γ): of kernels, traces and rates {said}"
    ]


def test_a_cell_that_says_nothing_of_it_is_not_apart() -> None:
    cells = [serving(system, "sharegpt", (8192,), 256) for system in BASELINES]
    assert notes(3, cells, "apart") == notes(3, cells, "prefill by") == []
    assert notes(5, [kernel("HOT", "shared"), kernel("paged", "unshared")], "apart") == []


PREFILL = "prefill by FlashInfer on pages of 16 (SGLang default, SGLang-Cascade), FA3 on pages of 1"


@pytest.mark.parametrize(
    ("number", "parts"),
    [
        (3, {}),
        (9, {}),
        (4, {"kind": "multi_prefix", "lengths": K4, "k": 4}),
        (6, {"kind": "synthetic"}),
        (20, {"kind": "multi_prefix", "k": 4}),
        (21, {"kind": "multi_prefix", "lengths": K4, "k": 4}),
    ],
)
def test_systems_in_one_column_that_prefill_in_other_ways_are_told(
    number: int, parts: dict[str, Any]
) -> None:
    assert notes(number, three(**parts), "prefill by") == [f"{PREFILL} (GraniKV)."]


def test_the_baseline_of_a_ratio_stands_in_its_column() -> None:
    cells = three(kind="synthetic")
    (said,) = notes(19, cells, "prefill by")
    assert "FA3 on pages of 1 (GraniKV), FlashInfer on pages of 16 (SGLang default)" in said


def test_systems_that_prefill_alike_need_no_word() -> None:
    assert notes(3, [measured("granikv"), measured("sglang_fa3")], "prefill by") == []
    assert notes(12, [measured("granikv", 16384)], "prefill by") == []


def test_every_system_is_called_by_a_title() -> None:
    names = {path.stem for path in (paper.ROOT / "conf" / "system").glob("*.yaml")} - {"kernel"}
    labels = {system_label(name) for name in names}
    assert len(labels) == len(names)
    assert not any("_" in label or "," in label for label in labels)


def test_a_cpu_is_no_measure_of_prefill() -> None:
    cells = [replace(cpu_cell(system, 1.0), record=measured(system).record) for system in BASELINES]
    assert not any(
        "prefill by" in note for note in registry.builders()[3](Sources.of(cells, ())).notes
    )


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("throughput", {}),
        ("regimes", {}),
        ("causes", {}),
        ("sensitivity", {"kind": "synthetic"}),
    ],
)
def test_captions_say_it_too(name: str, parts: dict[str, Any]) -> None:
    caption = drawing(name, shipped=three(**parts)).caption
    assert "prefill by F" in caption
    assert "FA3 on pages of 1 (GraniKV)" in caption


@pytest.mark.parametrize("name", ["regimes", "causes"])
def test_figures_of_ratios_say_what_was_measured_apart(name: str) -> None:
    cells = [measured("granikv"), measured("sglang_default", commit="b")]
    assert f"GraniKV to SGLang default{APART}" in drawing(name, shipped=cells).caption
