"""The Triton kernels compiled, at a server's shapes, in captured graphs, over poisoned caches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from granikv.attention.kernels import worklist
from granikv.attention.kernels.config import (
    PrefixConfig,
    Shape,
    StepConfig,
    SuffixConfig,
    multiprocessors,
    prefix_config,
    suffix_config,
)
from granikv.attention.kernels.relocate import Relocator
from granikv.attention.reference import attend
from granikv.attention.triton_dense import DenseStep
from granikv.plan import DecodePlan, PagedRange, Segment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-3}
SLOTS = 60_000
CONTEXT = 20_000
Rows = tuple[int, ...]


class Engine:
    """One layer's cache and page table, a DenseStep, and one captured graph of `rows` rows."""

    def __init__(
        self,
        rows: int,
        heads: tuple[int, int],
        d: int,
        dtype: torch.dtype,
        config: StepConfig | None = None,
        seed: int = 0,
    ) -> None:
        self.g = torch.Generator(device="cuda").manual_seed(seed)
        self.rows = rows
        shape = Shape(heads[1], heads[0] // heads[1], d, d, dtype)
        self.cache = tuple(
            torch.full((SLOTS, heads[1], d), torch.nan, dtype=dtype, device="cuda") for _ in "kv"
        )
        self.table = torch.zeros(rows, CONTEXT, dtype=torch.int32, device="cuda")
        self.table_rows = torch.arange(rows, device="cuda")
        self.seq_lens = torch.ones(rows, dtype=torch.int64, device="cuda")
        self.q = torch.zeros(rows, heads[0], d, dtype=dtype, device="cuda")
        self.out = torch.zeros_like(self.q)
        self.scale = d**-0.5
        self.step = DenseStep(shape, rows, SLOTS, torch.device("cuda"), config=config)
        self.graph: torch.cuda.CUDAGraph | None = None

    def capture(self) -> None:
        """Capture at sequence length 2 with nothing shared, as an engine does at start."""
        self.set({}, [2] * self.rows)
        self.attend()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.attend()

    def attend(self) -> None:
        k, v = self.cache
        self.step.attend(self.q, k, v, self.out, self.scale)

    def set(self, shared: dict[Rows, tuple[int, int]], own: Sequence[int]) -> None:
        """A new step: shared ranges by reader (position, length), and own tokens behind them."""
        for cache in self.cache:
            cache.fill_(torch.nan)
        self.step.part_out.fill_(torch.nan)
        self.step.part_lse.fill_(torch.nan)
        self.out.fill_(torch.nan)
        self.q.normal_(generator=self.g)
        self.table.fill_(-1)
        # One slot between slabs, so that no tail reads its neighbour unnoticed.
        base, segments, ends = 3, [], [0] * self.rows
        ranges: list[list[PagedRange]] = [[] for _ in own]
        for rows, (p0, length) in shared.items():
            segments.append(Segment(base, p0, length, rows))
            slots = torch.arange(base, base + length, dtype=torch.int32, device="cuda")
            self._write(slots)
            self.table[list(rows), p0 : p0 + length] = slots
            for row in rows:
                if p0 > ends[row]:
                    ranges[row].append(PagedRange(ends[row], p0))
                ends[row] = p0 + length
            base += length + 1
        free = torch.randperm(SLOTS - base, device="cuda", generator=self.g) + base
        used = 0
        for row, (end, more) in enumerate(zip(ends, own, strict=True)):
            ranges[row].append(PagedRange(end, None))
            for start, stop in ranges[row]:
                count = more if stop is None else stop - start
                self.table[row, start : start + count] = free[used : used + count].int()
                used += count
        self._write(free[:used])
        lens = [end + more for end, more in zip(ends, own, strict=True)]
        self.seq_lens.copy_(torch.tensor(lens))
        self.step.plan(DecodePlan(len(lens), tuple(segments), tuple(tuple(r) for r in ranges)))
        self.step.snapshot(self.table, self.table_rows, self.seq_lens, sum(lens))

    def _write(self, slots: Tensor) -> None:
        for cache in self.cache:
            fresh = torch.randn(len(slots), *cache.shape[1:], device="cuda", generator=self.g)
            cache[slots] = fresh.to(cache.dtype)

    def error(self) -> float:
        """Over rows, the largest difference from float32 over the largest magnitude."""
        worst = largest = 0.0
        lens = self.seq_lens.tolist()
        for row in sorted({*range(0, self.rows, max(1, self.rows // 8)), self.rows - 1}):
            slots = self.table[row, : lens[row]].long()
            k, v = (cache[slots] for cache in self.cache)
            expected = attend(self.q[row : row + 1].float(), k, v, self.scale).out[0]
            assert not expected.isnan().any(), "the case itself lets a row read poison"
            difference = (self.out[row].float() - expected).abs().max().item()
            worst = difference if not difference <= worst else worst
            largest = max(largest, expected.abs().max().item())
        assert not self.out.isnan().any()
        return worst / largest


def _everyone(rows: int) -> Rows:
    return tuple(range(rows))


HEADS = [(32, 8), (20, 4), (10, 2), (5, 1), (7, 1), (28, 4), (8, 8), (16, 8), (8, 1), (64, 8)]
WIDE_GROUPS = [(32, 2), (12, 1)]
PARTS = SuffixConfig(64, 396, 4, 3)
RING = SuffixConfig(64, 264, 4, 3, "ring")
SPECIALISED = PrefixConfig(128, 64, 132, 8, 3, "specialised", 128, q_shared=False)
FUSED = StepConfig(SPECIALISED, SuffixConfig(64, 132, 4, 3, "ring"), "fused")
WIDE = StepConfig(
    SPECIALISED._replace(num_stages=2), SuffixConfig(128, 132, 4, 2, "ring"), "fused", early=True
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("heads", HEADS)
def test_heads_and_widths(heads: tuple[int, int], d: int, dtype: torch.dtype) -> None:
    engine = Engine(64, heads, d, dtype)
    engine.set({_everyone(64): (0, 4096), (1, 5, 6): (4100, 777)}, range(64))
    engine.attend()
    assert engine.error() <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("heads", HEADS + WIDE_GROUPS)
def test_heads_and_widths_fused(heads: tuple[int, int], d: int, dtype: torch.dtype) -> None:
    engine = Engine(64, heads, d, dtype, WIDE)
    engine.set({_everyone(64): (0, 4096), (1, 5, 6): (4100, 777)}, range(64))
    engine.attend()
    assert engine.error() <= TOLERANCE[dtype]


@pytest.mark.parametrize("heads", [(32, 8), (5, 1), (14, 2)])
def test_float32(heads: tuple[int, int]) -> None:
    engine = Engine(24, heads, 128, torch.float32)
    engine.set({_everyone(24): (0, 3000), (0, 7): (3001, 500)}, range(0, 240, 10))
    engine.attend()
    assert engine.error() <= TOLERANCE[torch.float32]


def _compositions(rows: int) -> list[tuple[dict[Rows, tuple[int, int]], Sequence[int]]]:
    everyone, half = _everyone(rows), tuple(range(0, rows, 2))
    quarters = [tuple(range(i, rows, 4)) for i in range(min(4, rows))]
    return [
        ({}, [40] * rows),
        ({everyone: (0, 8192)}, [31] * rows),
        ({everyone: (0, 8192)}, [0] * rows),
        ({half: (0, 1)}, [1 + row % 3 for row in range(rows)]),
        ({everyone: (5, 3000), half: (3006, 1001)}, [row % 90 for row in range(rows)]),
        ({rows_: (0, 1024 << i) for i, rows_ in enumerate(quarters)}, [99] * rows),
        ({(0,): (0, 9000)}, [row % 2 for row in range(rows)]),
        ({(row,): (0, 64) for row in range(rows)}, [7] * rows),
        ({}, [9000, *[1] * (rows - 1)]),
        ({}, [2] * rows),
    ]


@pytest.mark.parametrize("rows", [1, 2, 8, 16, 64, 256])
def test_one_graph_serves_every_composition(rows: int) -> None:
    """Failure kind 7: captured at length 2, replayed at others; nothing of a step is left over."""
    engine = Engine(rows, (32, 8), 128, torch.bfloat16)
    engine.capture()
    assert engine.graph is not None
    for number, (shared, own) in enumerate(_compositions(rows)):
        engine.set(shared, own)
        engine.graph.replay()
        assert engine.error() <= TOLERANCE[torch.bfloat16], number


FORMS = {
    "specialised 128": StepConfig(PrefixConfig(128, 128, 132, 8, 2, "specialised"), PARTS),
    "specialised 64": StepConfig(PrefixConfig(128, 64, 132, 8, 3, "specialised"), PARTS),
    "queries in registers": StepConfig(
        PrefixConfig(128, 128, 132, 8, 3, "specialised", q_shared=False), PARTS
    ),
    "descriptors": StepConfig(PrefixConfig(128, 128, 132, 8, 3, "descriptors"), PARTS),
    "pointers, few programs": StepConfig(PrefixConfig(128, 64, 7, 8, 3, "pointers"), PARTS),
    "ring": StepConfig(PrefixConfig(128, 64, 132, 8, 3, "descriptors"), RING),
    "ring of two wide tiles": StepConfig(SPECIALISED, SuffixConfig(128, 264, 4, 2, "ring")),
    "few programs of a ring": StepConfig(SPECIALISED, SuffixConfig(64, 5, 4, 3, "ring")),
    "launches that begin early": StepConfig(SPECIALISED, RING, "none", early=True),
    "portable, merge that begins early": StepConfig(
        PrefixConfig(128, 64, 132, 8, 3, "descriptors"), PARTS, "none", early=True
    ),
    "fused": FUSED,
    "fused, queries shared": StepConfig(
        PrefixConfig(128, 64, 132, 8, 2, "specialised"), FUSED.suffix, "fused"
    ),
    "fused, wide tiles, early": WIDE,
}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_serves_every_composition(form: str, dtype: torch.dtype, graph: bool) -> None:
    engine = Engine(40, (32, 8), 128, dtype, FORMS[form])
    if graph:
        engine.capture()
    for number, (shared, own) in enumerate(_compositions(40)):
        engine.set(shared, own)
        if engine.graph is not None:
            engine.graph.replay()
        else:
            engine.attend()
        assert engine.error() <= TOLERANCE[dtype], number


@pytest.mark.parametrize("loss", [-1.0, 10.0])
@pytest.mark.parametrize("form", ["specialised 128", "descriptors", "fused"])
def test_both_ways_of_cutting(form: str, loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worklist, "_EVEN_LOSS", loss)
    worklist._cut.cache_clear()
    try:
        engine = Engine(256, (32, 8), 128, torch.bfloat16, FORMS[form])
        for number, (shared, own) in enumerate(_compositions(256)[1:7]):
            engine.set(shared, own)
            engine.attend()
            assert engine.error() <= TOLERANCE[torch.bfloat16], number
    finally:
        worklist._cut.cache_clear()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "form", ["ring", "launches that begin early", "fused", "fused, wide tiles, early"]
)
def test_a_form_gives_the_same_bits_again(form: str, graph: bool) -> None:
    """A race would show as results that change from run to run, or as the poison of the parts."""
    engine = Engine(256, (32, 8), 128, torch.bfloat16, FORMS[form])
    if graph:
        engine.capture()
    attend = engine.graph.replay if engine.graph is not None else engine.attend
    engine.set({_everyone(256): (0, 8000), tuple(range(0, 256, 3)): (8000, 700)}, [130] * 256)
    attend()
    first = engine.out.clone()
    assert engine.error() <= TOLERANCE[torch.bfloat16]
    for _ in range(50):
        engine.step.part_out.fill_(torch.nan)
        engine.step.part_lse.fill_(torch.nan)
        engine.out.fill_(torch.nan)
        attend()
        assert torch.equal(engine.out, first)


@pytest.mark.parametrize("form", ["launches that begin early", "fused, wide tiles, early"])
def test_layers_one_behind_another_share_the_parts(form: str) -> None:
    """A launch that begins early must not disturb the layer before, whose parts it overwrites."""
    engine = Engine(64, (32, 8), 128, torch.bfloat16, FORMS[form])
    engine.set({_everyone(64): (0, 4000)}, range(1, 129, 2))
    queries = [torch.randn_like(engine.q) for _ in range(16)]
    alone = []
    for q in queries:
        engine.q.copy_(q)
        engine.attend()
        torch.cuda.synchronize()
        alone.append(engine.out.clone())
    outs = [torch.full_like(engine.q, torch.nan) for _ in queries]
    k, v = engine.cache
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for q, out in zip(queries, outs, strict=True):
            engine.step.attend(q, k, v, out, engine.scale)
    for _ in range(10):
        graph.replay()
        for out, expected in zip(outs, alone, strict=True):
            assert torch.equal(out, expected)
            out.fill_(torch.nan)


@pytest.mark.parametrize("form", ["ring", "fused", "fused, wide tiles, early"])
def test_nan_in_one_row_stays_there(form: str) -> None:
    engine = Engine(64, (32, 8), 128, torch.bfloat16, FORMS[form])
    engine.set({_everyone(64): (0, 500)}, [150] * 64)
    slot = int(engine.table[7, 520])
    engine.cache[1][slot] = torch.nan
    engine.attend()
    assert engine.out[7].isnan().all()
    others = [row for row in range(64) if row != 7]
    assert not engine.out[others].isnan().any()


def test_unequal_classes_of_64_rows_and_nested_ones() -> None:
    engine = Engine(256, (32, 8), 128, torch.bfloat16)
    quarters = [tuple(range(64 * i, 64 * i + 64)) for i in range(4)]
    unequal = {rows: (0, 2048 << i) for i, rows in enumerate(quarters)}
    nested = {_everyone(256): (0, 4096), **dict.fromkeys(quarters, (4096, 4096))}
    for shared in (unequal, nested):
        engine.set(shared, [row % 100 for row in range(256)])
        engine.attend()
        assert engine.error() <= TOLERANCE[torch.bfloat16]


def test_near_one_hot_and_large_gains() -> None:
    engine = Engine(32, (32, 8), 128, torch.bfloat16)
    engine.set({_everyone(32): (0, 4096)}, [104] * 32)
    for row in range(32):
        slot = int(engine.table[row, 131 * row])
        engine.q[row] = 40.0 * engine.cache[0][slot].repeat_interleave(4, dim=0)
    engine.attend()
    assert engine.error() <= TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("folded", [16, 32, 64, 128])
def test_a_row_hardly_depends_on_the_batch(folded: int) -> None:
    """Failure kind 21: alone and among others, each tile size, within 2^-7 of the largest value."""
    device, rows = torch.device("cuda"), folded // 4
    shape = Shape(8, 4, 128, 128, torch.bfloat16)
    portable = StepConfig(prefix_config(shape, rows, device), suffix_config(shape, rows, device))
    assert portable.prefix.block_m == folded
    engine = Engine(rows, (32, 8), 128, torch.bfloat16, portable)
    engine.set({_everyone(engine.rows): (0, 5000)}, [100] * engine.rows)
    engine.attend()
    together = engine.out.clone()
    one = StepConfig(prefix_config(shape, 1, device), suffix_config(shape, 1, device))
    alone = DenseStep(shape, 1, 6000, device, config=one)
    segment = Segment(3, 0, 5000, (0,))
    alone.plan(DecodePlan(1, (segment,), ((PagedRange(5000, None),),)))
    for row in range(0, engine.rows, 5):
        alone.snapshot(engine.table, engine.table_rows[row : row + 1], engine.seq_lens[:1], 5100)
        out = torch.empty_like(engine.out[:1])
        k, v = engine.cache
        alone.attend(engine.q[row : row + 1], k, v, out, engine.scale)
        band = 2.0**-7 * together.abs().max().item()
        assert (out[0].float() - together[row].float()).abs().max().item() <= band


def test_the_grid_fits_the_device() -> None:
    shape = Shape(8, 4, 128, 128, torch.bfloat16)
    config = prefix_config(shape, 256, torch.device("cuda"))
    assert config.programs % multiprocessors(torch.device("cuda")) == 0


def test_relocation_of_a_long_prefix() -> None:
    tokens, layers = 16_384, 6
    shape = (3 * tokens, 8, 128)
    buffers = [torch.randn(shape, device="cuda").bfloat16() for _ in range(2 * layers)]
    before = [buffer.clone() for buffer in buffers]
    source = tokens + 7 + torch.randperm(tokens, device="cuda")
    Relocator(buffers).copy(source, torch.arange(5, 5 + tokens, device="cuda"))
    for old, new in zip(before, buffers, strict=True):
        assert torch.equal(new[5 : 5 + tokens], old[source])
        assert torch.equal(new[:5], old[:5])
        assert torch.equal(new[5 + tokens :], old[5 + tokens :])
