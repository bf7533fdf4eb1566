"""What a table says of the cells behind its numbers."""

from __future__ import annotations

from dataclasses import replace

from harness.tables import registry
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell
from tests.harness.campaign import kernel, serving


def notes(number: int, cells: list[MadeUpCell]) -> list[str]:
    """The notes on shipped cells."""
    table = registry.builders()[number](Sources.of((), cells))
    return [note for note in table.notes if note.startswith("shipped (one H200)")]


def runs(system: str, count: int) -> list[MadeUpCell]:
    cells = [serving(system, "sharegpt", (16384,), 256, repetition=n) for n in range(count)]
    return [
        replace(c, metrics=dict(c.metrics) | {"output_tok_s": 1000.0 + n})
        for n, c in enumerate(cells)
    ]


def test_a_single_run_is_said_to_have_no_spread() -> None:
    (said,) = notes(3, runs("granikv", 1))
    assert "B = 256; KV budget full: one run each; nothing is known of the spread" in said
    assert "interval" not in said


def test_an_interval_of_few_runs_is_said_to_be_their_range() -> None:
    (said,) = notes(3, [*runs("granikv", 3), *runs("sglang_default", 2)])
    assert "95% bootstrap interval over runs (of 2 or 3 runs: about their range" in said
    assert "without brackets, one run (of a ratio: on one of its sides)" in said
    (many,) = notes(3, runs("granikv", 4))
    assert "about their range" not in many


def test_a_run_that_is_left_out_of_a_mean_is_named() -> None:
    good, late = runs("granikv", 2)
    late = replace(late, valid=False, reasons=("the client sent late",))
    _, said = notes(3, [good, late])
    assert said.endswith(f"left out as not valid: {late.id} (the client sent late).")


def test_an_invalid_cell_alone_is_told_by_its_dash() -> None:
    (only,) = runs("granikv", 1)
    table = notes(3, [replace(only, valid=False, reasons=("x",))])
    assert not any("left out" in note for note in table)


def test_many_left_out_are_counted() -> None:
    good, *bad = runs("granikv", 7)
    late = [replace(cell, valid=False, reasons=("late",)) for cell in bad]
    assert notes(3, [good, *late])[1].endswith("and 3 more.")


def test_a_kernel_has_no_kv_budget() -> None:
    (said,) = notes(5, [kernel("HOT", "shared"), kernel("paged", "unshared")])
    assert "B = 256: one run each" in said
    assert "KV budget" not in said


def test_a_table_of_quantities_says_it_too() -> None:
    """Table 23's counters are of one run: they have no interval."""
    (said,) = notes(23, [kernel("HOT", "shared", counted=True)])
    assert "one run each" in said


def test_what_caches_serve_is_not_read_as_memory_bandwidth() -> None:
    """On a GPU whose L2 holds the prefix, the model's GB/s is beyond what its memory can give."""
    builders = registry.builders()
    kernels, counters, traced = (
        " ".join(builders[n](Sources.of((), ())).notes) for n in (5, 23, 13)
    )
    assert "exceed the memory's bandwidth: caches" in kernels
    assert "Below zero, DRAM gave fewer bytes" in counters
    assert "prefix and suffix in one launch" in traced
