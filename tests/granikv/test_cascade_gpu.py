"""The cascade through FlashInfer itself, at a server's shapes, in captured graphs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("flashinfer")

from granikv.attention.flashinfer_cascade import CascadeStep
from granikv.attention.kernels.config import Shape
from granikv.attention.reference import attend
from granikv.plan import DecodePlan, PagedRange, Segment
from tests.granikv.attention_cases import Case, build, random_layout, relative_error
from tests.granikv.cascade_cases import decode, page_case, step_for
from tests.granikv.test_attention_backends import LAYOUTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

# FlashInfer's parts are 16-bit: they are rounded once when a sequence was split, once when its
# splits are joined, and once more with the result. bfloat16 rounds by up to 2^-8 each time.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 8e-3}
CUDA = torch.device("cuda")
Rows = tuple[int, ...]


def assert_matches(case: Case, page_size: int = 1) -> None:
    step = step_for(case.to(CUDA), max(1, len(case.step.seq_lens)), page_size=page_size)
    assert relative_error(decode(step, case), case.expected()) <= TOLERANCE[case.q.dtype]


@pytest.mark.parametrize("slabs", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, slabs: bool) -> None:
    assert_matches(build(*LAYOUTS[layout], heads=(8, 2), d=128, dtype=torch.bfloat16, slabs=slabs))


@pytest.mark.parametrize("heads", [(32, 8), (20, 4), (7, 1), (8, 8), (16, 8), (64, 8)])
def test_random_steps(heads: tuple[int, int]) -> None:
    layout = random_layout(torch.Generator().manual_seed(heads[0]))
    assert_matches(build(*layout, heads=heads, d=128, dtype=torch.bfloat16, seed=heads[0]))


@pytest.mark.parametrize("prefix", [1, 15, 16, 17, 1000, 1024])
def test_whole_pages_of_ordinary_storage(prefix: int) -> None:
    lengths = [prefix + own for own in (1, 40, 16, 7)]
    heads = (32, 8)
    assert_matches(page_case(lengths, prefix, 16, heads=heads, d=128, dtype=torch.bfloat16), 16)


def test_half_precision() -> None:
    """Another compiled module, which FlashInfer may first have to build."""
    assert_matches(build(*LAYOUTS["nested"], heads=(32, 8), d=128, dtype=torch.float16))


class Prepared(NamedTuple):
    """A step whose data is on the device already."""

    plan: DecodePlan
    lens: list[int]
    table: Tensor
    device_lens: Tensor
    q: Tensor


class Server:
    """One layer's cache and page table, and one captured graph for each batch size."""

    SLOTS, CONTEXT = 60_000, 10_000

    def __init__(self, sizes: Sequence[int], heads: tuple[int, int] = (32, 8)) -> None:
        self.g = torch.Generator(device="cuda").manual_seed(0)
        self.order = torch.Generator().manual_seed(0)
        dtype = torch.bfloat16
        shape = Shape(heads[1], heads[0] // heads[1], 128, 128, dtype)
        self.cache = [
            torch.empty(self.SLOTS, heads[1], 128, dtype=dtype, device="cuda") for _ in "kv"
        ]
        for cache in self.cache:
            cache.normal_(generator=self.g)
        self.table = torch.zeros(max(sizes), self.CONTEXT, dtype=torch.int32, device="cuda")
        self.step = CascadeStep(shape, max(sizes), self.SLOTS, self.SLOTS, CUDA, depth=3)
        self.scale = 128**-0.5
        self.table_rows = torch.arange(max(sizes), device="cuda")
        self.q = torch.zeros(max(sizes), heads[0], 128, dtype=dtype, device="cuda")
        self.out = torch.zeros_like(self.q)
        self.graphs = {rows: self._captured(rows) for rows in sizes}

    def _captured(self, rows: int) -> torch.cuda.CUDAGraph:
        """Captured at sequence length 2 with nothing shared, as an engine does at start."""
        self.set(self.prepare({}, [2] * rows))
        self._attend(rows)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._attend(rows)
        return graph

    def _attend(self, rows: int) -> None:
        k, v = self.cache
        self.step.attend(self.q[:rows], k, v, self.out[:rows], self.scale)

    def prepare(self, shared: dict[Rows, tuple[int, int]], own: Sequence[int]) -> Prepared:
        """Shared ranges by reader (position, length), own tokens behind them."""
        rows = len(own)
        table = torch.full((rows, self.CONTEXT), -1, dtype=torch.int32)
        base, segments, ends = 3, [], [0] * rows
        ranges: list[list[PagedRange]] = [[] for _ in own]
        for readers, (p0, length) in shared.items():
            segments.append(Segment(base, p0, length, readers))
            slots = torch.arange(base, base + length, dtype=torch.int32)
            table[list(readers), p0 : p0 + length] = slots
            for row in readers:
                if p0 > ends[row]:
                    ranges[row].append(PagedRange(ends[row], p0))
                ends[row] = p0 + length
            base += length
        free = (base + torch.randperm(self.SLOTS - base, generator=self.order)).int()
        used = 0
        for row, (end, more) in enumerate(zip(ends, own, strict=True)):
            ranges[row].append(PagedRange(end, None))
            for start, stop in ranges[row]:
                count = more if stop is None else stop - start
                table[row, start : start + count] = free[used : used + count]
                used += count
        lens = [end + more for end, more in zip(ends, own, strict=True)]
        plan = DecodePlan(rows, tuple(segments), tuple(tuple(r) for r in ranges))
        q = torch.empty_like(self.q[:rows]).normal_(generator=self.g)
        return Prepared(plan, lens, table.cuda(), torch.tensor(lens, device="cuda"), q)

    def set(self, prepared: Prepared) -> None:
        """Make that the step; the host does not wait for the device."""
        rows = len(prepared.lens)
        for stale in (self.out, self.step.part_out, self.step.part_lse):
            stale.fill_(torch.nan)
        self.table[:rows] = prepared.table
        self.q[:rows] = prepared.q
        self.lens = prepared.lens
        self.step.plan(prepared.plan, prepared.lens)
        self.step.snapshot(self.table, self.table_rows[:rows], prepared.device_lens)

    def error(self, rows: int) -> float:
        worst = largest = 0.0
        for row in sorted({0, rows // 3, rows // 2, rows - 1}):
            slots = self.table[row, : self.lens[row]].long()
            k, v = (cache[slots] for cache in self.cache)
            expected = attend(self.q[row : row + 1].float(), k, v, self.scale).out[0]
            difference = (self.out[row].float() - expected).abs().max().item()
            worst = difference if not difference <= worst else worst
            largest = max(largest, expected.abs().max().item())
        assert not self.out[:rows].isnan().any()
        return worst / largest


def _random_step(rows: int, seed: int) -> tuple[dict[Rows, tuple[int, int]], list[int]]:
    """A common head, classes behind it, for some of them a document more."""
    draw = random.Random(seed)
    shared: dict[Rows, tuple[int, int]] = {}
    everyone = tuple(range(rows))
    head = draw.choice([0, 0, 1, 700, 8192 if seed % 2 else 4000])
    if head:
        shared[everyone] = (0, head)
    classes = draw.randint(1, min(4, rows))
    of_class = [draw.randrange(classes) for _ in everyone]
    for number in range(classes):
        members = tuple(row for row in everyone if of_class[row] == number)
        if members and members != everyone and draw.random() < 0.7:
            shared[members] = (head + draw.randint(0, 2), draw.choice([1, 63, 128, 1500]))
    return shared, [draw.choice([1, 2, 17, 256]) for _ in everyone]


def test_graphs_captured_once_serve_50_random_steps() -> None:
    """Failure kind 7: captured at length 2, replayed at up to 10K; nothing of a step is left."""
    sizes = (1, 2, 8)
    server = Server(sizes)
    for number in range(50):
        rows = sizes[number % 3]
        server.set(server.prepare(*_random_step(rows, number)))
        server.graphs[rows].replay()
        assert server.error(rows) <= TOLERANCE[torch.bfloat16], number


def test_a_graph_of_256_rows() -> None:
    server = Server([256])
    quarters = [tuple(range(i, 256, 4)) for i in range(4)]
    everyone = tuple(range(256))
    for shared, own in (
        ({everyone: (0, 8192)}, 100),
        ({rows: (0, 1024 << i) for i, rows in enumerate(quarters)}, 60),
        ({everyone: (0, 4096), **dict.fromkeys(quarters, (4096, 2048))}, 31),
        ({}, 2),
    ):
        server.set(server.prepare(shared, [own] * 256))
        server.graphs[256].replay()
        assert server.error(256) <= TOLERANCE[torch.bfloat16]


def test_plans_of_steps_in_flight_do_not_mix() -> None:
    """The host plans ahead of the device: no plan is overwritten before it was copied."""
    server = Server([8])
    own = [5, 90, 1, 17, 256, 3, 2, 40]
    lengths = (8192, 64, 4000, 1, 8192, 7000)
    steps = [server.prepare({tuple(range(8)): (0, length)}, own) for length in lengths]
    outputs: dict[bool, list[Tensor]] = {False: [], True: []}
    for ahead, results in outputs.items():
        for prepared in steps:
            server.set(prepared)
            if ahead:
                torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
            server.graphs[8].replay()
            results.append(server.out[:8].clone())
            if not ahead:
                torch.cuda.synchronize()
    for alone, together in zip(outputs[False], outputs[True], strict=True):
        assert torch.equal(alone, together)
