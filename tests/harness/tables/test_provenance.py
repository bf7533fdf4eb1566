"""What a table says of the cells behind its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.tables import registry
from harness.tables.sources import Sources
from tests.harness.analysis.made_up import MadeUpCell, cpu_cell
from tests.harness.campaign import K4, K8, kernel, serving


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


def test_a_load_of_less_than_a_second_is_said_to_be_short() -> None:
    """Eight requests of 128 tokens: a rate of so little is soon off by some percent."""
    cells = [serving("granikv", "synthetic", (1024,), b) for b in (8, 32)]
    lasting = [
        replace(cell, metrics=dict(cell.metrics) | {"duration_s": seconds})
        for cell, seconds in zip(cells, (0.7, 1.1), strict=True)
    ]
    said = "shipped (one H200): at B = 8 a whole load took less than a second."
    assert said in notes(6, lasting)
    assert not any("a second" in note for note in notes(6, [lasting[1]]))


LIMIT = (
    "so that rates above some 10,000 tok/s, and ratios of them, are those of SGLang's HTTP front "
    "end (results/h200/engine_rate)"
)


def streamed(
    lengths: Sequence[int], interval: int, tok_s: float = 12_000.0, b: int = 256, **parts: Any
) -> MadeUpCell:
    """A cell whose events held `interval` tokens each."""
    kind = "sharegpt" if len(lengths) == 1 else "multi_prefix"
    engine = {"stream_interval": interval}
    cell = serving("granikv", kind, lengths, b, k=len(lengths), engine=engine, **parts)
    return replace(cell, metrics=dict(cell.metrics) | {"output_tok_s": tok_s})


def how(number: int, *cells: MadeUpCell) -> list[str]:
    """What a table says of how tokens were streamed."""
    start = "shipped (one H200): tokens were streamed "
    return [note.removeprefix(start) for note in notes(number, [*cells]) if start in note]


def test_rows_of_several_stream_intervals_are_told_apart_by_length() -> None:
    one_by_one = [streamed((n,), 1) for n in (1024, 2048, 4096, 8192)]
    in_groups = [streamed((n,), 8, 20_000.0) for n in (512, 16384)]
    (said,) = how(9, *one_by_one, *in_groups)
    assert said == (f"in groups of 8 at L_p = 512 and 16K; one by one at L_p = 1K to 8K, {LIMIT}.")
    (said,) = how(3, *one_by_one, *in_groups)
    assert said.startswith("in groups of 8 at L_p = 16K; one by one at L_p = 4K and 8K, ")


def test_where_lengths_do_not_tell_rows_apart_b_or_k_or_several_do() -> None:
    (said,) = how(9, streamed((4096,), 8), streamed((4096,), 1, 500.0, b=8))
    assert said == "in groups of 8 at B = 256; one by one at B = 8."
    (said,) = how(21, streamed(K4, 8), streamed(K8, 1))
    assert said == f"in groups of 8 at k = 4; one by one at k = 8, {LIMIT}."
    corner = streamed((512,), 8)
    (said,) = how(9, corner, streamed((512,), 1, b=8), streamed((1024,), 1))
    assert said == (
        "in groups of 8 at L_p = 512, B = 256; one by one at L_p = 512, B = 8 and at L_p = 1K, "
        f"B = 256, {LIMIT}."
    )


def test_rows_that_nothing_here_tells_apart_are_not_claimed_to_be_alike() -> None:
    def at(fraction: float, interval: int) -> MadeUpCell:
        storage = {"hot_fraction": fraction, "admission": "eager", "eviction": "lru"}
        engine = {"stream_interval": interval}
        return serving("granikv", "synthetic", (8192,), 256, storage=storage, engine=engine)

    assert how(24, at(0.05, 8), at(0.4, 1)) == [
        "in groups of 8 in some rows; one by one in some rows."
    ]


def test_the_front_end_is_named_where_every_row_came_one_by_one_and_fast() -> None:
    assert how(3, streamed((16384,), 1)) == [f"one by one, {LIMIT}."]
    assert how(3, streamed((16384,), 1, 9_000.0)) == []


def test_fast_rows_in_groups_are_not_the_front_end_s() -> None:
    assert how(3, streamed((16384,), 8, 20_000.0)) == ["in groups of 8."]
    (mixed,) = how(3, streamed((16384,), 8, 20_000.0), streamed((8192,), 1, 9_000.0))
    assert "front end" not in mixed


def test_only_rates_that_are_shown_count() -> None:
    """A traced cell, one that is not valid and a kernel show none; a CPU's is no speed."""
    slow = streamed((16384,), 1, 9_000.0)
    invalid = replace(slow, id="late", metrics={"output_tok_s": 20_000.0}, valid=False)
    assert how(3, slow, invalid) == []
    assert how(13, streamed((8192,), 1, profile={"kind": "kineto"})) == []
    assert how(5, kernel("HOT", "shared")) == []
    cpu = registry.builders()[3](Sources.of([cpu_cell("granikv", 20_000.0)], ()))
    assert not any("streamed" in note for note in cpu.notes)
