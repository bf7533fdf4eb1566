"""The Triton kernels alone, one layer of a decode step: `python -m granikv.bench.kernels`.

Each pass (prefix, suffix, merge, and the whole) is captured in a CUDA graph and its replays are
timed, beside what the arithmetic and the bytes must take at this device's measured ceilings. L2 is
`cold` where launches rotate over the caches of so many layers that they do not fit, as a model's
do, and `warm` where every launch reads the same. JSON on standard output; times in µs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from granikv.attention.kernels.config import (
    PrefixConfig,
    Shape,
    StepConfig,
    multiprocessors,
    suffix_config,
)
from granikv.attention.kernels.relocate import Relocator
from granikv.attention.reference import attend
from granikv.attention.triton_dense import DenseStep
from granikv.calibrate import PROBLEMS, Timing, measure_bandwidth, measure_peak, time_together
from granikv.plan import DecodePlan, PagedRange, Segment

_LAUNCHES = 12
"""Launches that one graph holds, at least."""
_CHECKED_ROWS = 4


class Read(NamedTuple):
    """A slab range that `rows` rows from `first` on read, from token position p0."""

    first: int
    rows: int
    p0: int
    length: int


class Case(NamedTuple):
    """One decode step: `rows` rows with `suffix` own tokens each behind what `reads` lists."""

    name: str
    rows: int
    suffix: int
    heads: tuple[int, int]
    d: int
    reads: tuple[Read, ...]

    @property
    def flop(self) -> int:
        """Multiply-adds of the shared part, twice: 4 H_q d for each (row, token)."""
        return 4 * self.heads[0] * self.d * sum(r.rows * r.length for r in self.reads)

    def kv_bytes(self, tokens: int) -> int:
        """K and V of that many slots, 16-bit."""
        return 2 * 2 * self.heads[1] * self.d * tokens

    @property
    def prefix_bytes(self) -> int:
        """Every slab range once."""
        return self.kv_bytes(sum(r.length for r in self.reads))

    @property
    def suffix_bytes(self) -> int:
        """Every row's own slots once."""
        return self.kv_bytes(self.rows * self.suffix)


def _uniform(rows: int, length: int, q_heads: int, kv_heads: int, d: int = 128) -> Case:
    name = f"B={rows} L_p={length} {q_heads}/{kv_heads} d={d}"
    return Case(name, rows, 256, (q_heads, kv_heads), d, (Read(0, rows, 0, length),))


def _classes(name: str, lengths: Sequence[int], head: int = 0) -> Case:
    """Equal classes of 256 rows in all, behind `head` tokens that all read."""
    rows = 256 // len(lengths)
    common = (Read(0, 256, 0, head),) if head else ()
    own = tuple(Read(i * rows, rows, head, length) for i, length in enumerate(lengths))
    return Case(name, 256, 256, (32, 8), 128, (*common, *own))


CASES = (
    _uniform(256, 8192, 32, 8),
    _uniform(256, 4096, 32, 8),
    _uniform(256, 1024, 32, 8),
    _uniform(128, 8192, 32, 8),
    _uniform(64, 16384, 32, 8),
    _uniform(64, 8192, 32, 8),
    _uniform(32, 8192, 32, 8),
    _uniform(8, 16384, 32, 8),
    _uniform(256, 16384, 20, 4),
    _uniform(256, 16384, 10, 2),
    _uniform(256, 8192, 32, 8, d=64),
    _classes("one class of 7,680", [7680]),
    _classes("four classes 2K/4K/8K/16K", [2048, 4096, 8192, 16384]),
    _classes("four classes of 8K", [8192] * 4),
    _classes("4K read by all, then four of 4K", [4096] * 4, head=4096),
)


class Storage(NamedTuple):
    """A case on a device: queries [rows, H_q, d], caches a layer [slots, H_kv, d], page table."""

    q: Tensor
    k: list[Tensor]
    v: list[Tensor]
    page_table: Tensor
    plan: DecodePlan


def build(case: Case, layers: int, device: torch.device, dtype: torch.dtype) -> Storage:
    """Random K and V; slabs from slot 1 on, the rest scattered in page-1 slots."""
    ends = [0] * case.rows
    for read in case.reads:
        for row in range(read.first, read.first + read.rows):
            ends[row] = read.p0 + read.length
    hot = sum(read.length for read in case.reads)
    cold = 1 + hot + torch.randperm(case.rows * case.suffix, device=device, dtype=torch.int32)
    width = max(ends) + case.suffix
    table = torch.zeros(case.rows, width, dtype=torch.int32, device=device)
    base, segments = 1, []
    for read in case.reads:
        rows = slice(read.first, read.first + read.rows)
        slots = torch.arange(base, base + read.length, dtype=torch.int32, device=device)
        table[rows, read.p0 : read.p0 + read.length] = slots
        readers = tuple(range(read.first, read.first + read.rows))
        segments.append(Segment(base, read.p0, read.length, readers))
        base += read.length
    for row, own in enumerate(cold.view(case.rows, case.suffix)):
        table[row, ends[row] : ends[row] + case.suffix] = own
    shape = (1 + hot + case.rows * case.suffix, case.heads[1], case.d)
    caches = [torch.randn(shape, device=device, dtype=dtype) for _ in range(2 * layers)]
    q = torch.randn(case.rows, case.heads[0], case.d, device=device, dtype=dtype)
    paged = {end: (PagedRange(end, None),) for end in ends}
    plan = DecodePlan(case.rows, tuple(segments), tuple(paged[end] for end in ends))
    return Storage(q, caches[::2], caches[1::2], table, plan)


class Ceilings(NamedTuple):
    """This device's copy bandwidth and matrix-product peak, measured in this run."""

    bandwidth_gbps: float
    peak_tflops: float


class Work(NamedTuple):
    """What a pass must do at least: floating-point operations, and bytes of K and V."""

    flop: int
    bytes: int

    def floors(self, ceilings: Ceilings) -> dict[str, float]:
        """µs that each takes at the ceiling; no implementation is much faster than the larger."""
        return {
            "floor_flop_us": round(self.flop / ceilings.peak_tflops / 1e6, 2),
            "floor_bytes_us": round(self.bytes / ceilings.bandwidth_gbps / 1e3, 2),
        }


def work_of(case: Case) -> dict[str, Work]:
    """By pass; merging is counted as free, the suffix's arithmetic too."""
    return {
        "prefix": Work(case.flop, case.prefix_bytes),
        "suffix": Work(0, case.suffix_bytes),
        "merge": Work(0, 0),
        "whole": Work(case.flop, case.prefix_bytes + case.suffix_bytes),
    }


class Bench:
    """One case on one device, ready to be captured."""

    def __init__(
        self,
        case: Case,
        layers: int,
        config: StepConfig | None = None,
        dtype: torch.dtype = torch.bfloat16,
        device: str = "cuda",
    ) -> None:
        self.case = case
        self.layers = layers
        self.device = torch.device(device)
        self.storage = build(case, layers, self.device, dtype)
        self.scale = case.d**-0.5
        group = case.heads[0] // case.heads[1]
        shape = Shape(case.heads[1], group, case.d, case.d, dtype)
        tokens = case.rows * case.suffix
        self.step = DenseStep(shape, case.rows, tokens, self.device, 2, config)
        self.out = torch.empty_like(self.storage.q)
        self.table_rows = torch.arange(case.rows, dtype=torch.int32, device=self.device)
        lens = [ranges[-1].start + case.suffix for ranges in self.storage.plan.paged]
        self.tokens = sum(lens)
        self.seq_lens = torch.tensor(lens, dtype=torch.int32, device=self.device)
        self.step.plan(self.storage.plan)
        self.snapshot()

    def snapshot(self) -> None:
        """The once-a-step launch."""
        self.step.snapshot(self.storage.page_table, self.table_rows, self.seq_lens, self.tokens)

    def prefix(self, layer: int) -> None:
        """The slabs."""
        s = self.storage
        self.step.attend_prefix(s.q, s.k[layer], s.v[layer], self.scale)

    def suffix(self, layer: int) -> None:
        """What no slab holds."""
        s = self.storage
        self.step.attend_suffix(s.q, s.k[layer], s.v[layer], self.scale)

    def merge(self, layer: int) -> None:
        """The parts of both into the output."""
        self.step.merge(self.out)

    def whole(self, layer: int) -> None:
        """Prefix and suffix, as the configuration says, and the merge."""
        s = self.storage
        self.step.attend(s.q, s.k[layer], s.v[layer], self.out, self.scale)

    def passes(self) -> dict[str, Callable[[int], None]]:
        """By the names of `work_of`."""
        return {
            "prefix": self.prefix,
            "suffix": self.suffix,
            "merge": self.merge,
            "whole": self.whole,
        }

    def error(self) -> float:
        """Largest difference of some rows of one layer from float32, over the largest value."""
        self.out.fill_(torch.nan)
        self.whole(0)
        s, worst, largest = self.storage, 0.0, 0.0
        lens = self.seq_lens.tolist()
        for row in range(0, self.case.rows, -(-self.case.rows // _CHECKED_ROWS)):
            slots = s.page_table[row, : lens[row]].long()
            q = s.q[row : row + 1].float()
            expected = attend(q, s.k[0][slots], s.v[0][slots], self.scale).out[0]
            difference = (self.out[row].float() - expected).abs().max().item()
            worst = difference if not difference <= worst else worst
            largest = max(largest, expected.abs().max().item())
        return worst / largest


def captured(launch: Callable[[int], None], layers: int) -> tuple[Callable[[], object], int]:
    """A graph of launches over all layers, as its replay, and how many it holds."""
    rounds = -(-_LAUNCHES // layers)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for layer in range(layers):
                launch(layer)
    return graph.replay, rounds * layers


def _microseconds(timing: Timing, launches: int) -> dict[str, float]:
    return {
        "us": round(timing.median * 1e6 / launches, 2),
        "iqr_us": round(timing.spread * 1e6 / launches, 2),
    }


def layers_for(case: Case, l2: str, l2_bytes: int) -> int:
    """Layers of which neither the slabs nor the rest fit three L2s over, or one for a warm L2."""
    if l2 == "warm":
        return 1
    smallest = min(b for b in (case.prefix_bytes, case.suffix_bytes) if b)
    return max(2, -(-3 * l2_bytes // smallest))


def measure(bench: Bench, names: Iterable[str], seconds: float) -> dict[str, dict[str, float]]:
    """Time passes in turn; by name, µs a launch."""
    passes = bench.passes()
    graphs = {name: captured(passes[name], bench.layers) for name in names}
    replays = [replay for replay, _ in graphs.values()]
    timings = time_together(bench.device.type, replays, seconds)
    return {
        name: _microseconds(timing, launches)
        for (name, (_, launches)), timing in zip(graphs.items(), timings, strict=True)
    }


def records_of(
    case: Case, l2: str, l2_bytes: int, seconds: float, ceilings: Ceilings, **options: Any
) -> list[dict[str, Any]]:
    """One record a pass; `options` are those of `Bench`."""
    bench = Bench(case, layers_for(case, l2, l2_bytes), **options)
    work = work_of(case)
    about = {
        "case": case.name,
        "rows": case.rows,
        "prefix_length": max(r.p0 + r.length for r in case.reads),
        "q_heads": case.heads[0],
        "kv_heads": case.heads[1],
        "head_dim": case.d,
        "suffix_tokens": case.suffix,
        "segments": len(case.reads),
        "l2": l2,
        "layers": bench.layers,
        "relative_error": bench.error(),
        "prefix_config": bench.step.prefix._asdict(),
        "suffix_config": bench.step.suffix._asdict(),
        "overlap": bench.step.overlap,
    }
    timed = measure(bench, work, seconds)
    return [{**about, "pass": name, **timed[name], **work[name].floors(ceilings)} for name in work]


def _percentiles(act: Callable[[], object], steps: int) -> dict[str, float]:
    """Host time of `act` in µs; the device is left to follow."""
    times = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        act()
        times.append((time.perf_counter_ns() - begin) / 1e3)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    times.sort()
    return {"p50_us": round(times[steps // 2], 1), "p99_us": round(times[steps * 99 // 100], 1)}


def host_records(case: Case, steps: int = 300, **options: Any) -> list[dict[str, Any]]:
    """What a step costs before its first layer: host time, and the snapshot's device time."""
    bench = Bench(case, 1, **options)
    plan = bench.storage.plan
    turns = itertools.cycle([DecodePlan(plan.rows, plan.segments, plan.paged) for _ in range(2)])
    replay, launches = captured(lambda _: bench.snapshot(), 1)
    (timing,) = time_together(bench.device.type, [replay], 0.2)
    host: dict[str, Callable[[], object]] = {
        "plan (host)": lambda: bench.step.plan(next(turns)),
        "plan, unchanged (host)": lambda: bench.step.plan(plan),
        "snapshot (host)": bench.snapshot,
    }
    about = {"case": case.name, "rows": case.rows, "segments": len(case.reads)}
    return [
        *({**about, "pass": name, **_percentiles(act, steps)} for name, act in host.items()),
        {**about, "pass": "snapshot", **_microseconds(timing, launches)},
    ]


class TwoByTwo:
    """The prefix kernel alone: contiguous or paged slots, one read for all rows or one a row.

    All four by the same kernel in its form with pointers, since bulk copies cannot gather; a gather
    needs more stages for as many tiles in flight.
    """

    def __init__(
        self,
        layout: str,
        read: str,
        case: Case,
        layers: int,
        device: str = "cuda",
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        self.case = case._replace(suffix=0)
        self.layers = layers
        self.storage = build(self.case, layers, torch.device(device), dtype)
        self.scale = case.d**-0.5
        group = case.heads[0] // case.heads[1]
        shape = Shape(case.heads[1], group, case.d, case.d, dtype)
        units = multiprocessors(self.storage.q.device)
        stages = 3 if layout == "HOT" else 5
        prefix, plan = PrefixConfig(128, 64, units, 8, stages, "pointers"), self.storage.plan
        (segment,) = plan.segments
        if read == "unshared":
            prefix = PrefixConfig(16, 64, 2 * units, 4, stages, "pointers")
            alone = tuple(segment._replace(rows=(row,)) for row in range(case.rows))
            plan = DecodePlan(plan.rows, alone, plan.paged)
        suffix = suffix_config(shape, case.rows, self.storage.q.device)
        config = StepConfig(prefix, suffix)
        self.step = DenseStep(shape, case.rows, 1, self.storage.q.device, 1, config)
        self.step.plan(plan)
        self.slots = torch.arange(1, 1 + segment.length, dtype=torch.int32, device=device)
        self.slot_table: Tensor | None = None
        if layout == "paged":
            self.slots = self.slots[torch.randperm(segment.length, device=device)]
            # The segment's base is slot 1, so that is where its slots begin in the table.
            self.slot_table = torch.cat((self.slots[:1], self.slots))

    def launch(self, layer: int) -> None:
        """The prefix pass of one layer."""
        s = self.storage
        self.step.attend_prefix(s.q, s.k[layer], s.v[layer], self.scale, self.slot_table)

    def error(self) -> float:
        """As `Bench.error`, for two rows."""
        s, out = self.storage, torch.full_like(self.storage.q, torch.nan)
        lens = torch.full((self.case.rows,), self.case.reads[0].length, device=s.q.device)
        rows = torch.arange(self.case.rows, device=s.q.device)
        self.step.snapshot(s.page_table, rows, lens, int(lens.sum()))
        self.launch(0)
        self.step.merge(out)
        k, v = (cache[self.slots.long()] for cache in (s.k[0], s.v[0]))
        expected = attend(s.q[:2], k, v, self.scale).out
        return (out[:2].float() - expected).abs().max().item() / expected.abs().max().item()


def table5_records(
    seconds: float, ceilings: Ceilings, case: Case = CASES[0], layers: int = 6, **options: Any
) -> list[dict[str, Any]]:
    """The 2 x 2 that tells contiguity from sharing, under the names that the harness uses."""
    records = []
    for layout, read in itertools.product(("HOT", "paged"), ("shared", "unshared")):
        cell = TwoByTwo(layout, read, case, layers, **options)
        replay, launches = captured(cell.launch, layers)
        (timing,) = time_together(cell.storage.q.device.type, [replay], seconds)
        reads = 1 if read == "shared" else case.rows
        records.append(
            {
                "case": "table 5",
                "pass": "prefix",
                "layout": layout,
                "read": read,
                "backend": "dense",
                "rows": case.rows,
                "prefix_length": case.reads[0].length,
                "q_heads": case.heads[0],
                "kv_heads": case.heads[1],
                "head_dim": case.d,
                "l2": "cold",
                "relative_error": cell.error(),
                "kernel_wall_s": timing.median / launches,
                "kernel_flop": case.flop,
                "prefix_config": cell.step.prefix._asdict(),
                **_microseconds(timing, launches),
                **Work(case.flop, case.prefix_bytes * reads).floors(ceilings),
            }
        )
    return records


def relocation_record(
    seconds: float, ceilings: Ceilings, tokens: int = 16_384, layers: int = 32, device: str = "cuda"
) -> dict[str, Any]:
    """A prefix of `tokens`, 8 heads of 128 a layer, from scattered slots to a slab."""
    shape = (2 * tokens, 8, 128)
    buffers = [torch.randn(shape, device=device).bfloat16() for _ in range(2 * layers)]
    source = tokens + torch.randperm(tokens, device=device)
    relocator = Relocator(buffers)
    replay, launches = captured(lambda _: relocator.copy(source, 0), 1)
    (timing,) = time_together(torch.device(device).type, [replay], seconds)
    moved = 2 * sum(b[:tokens].numel() * b.element_size() for b in buffers)
    right = all(torch.equal(b[:tokens], b[source]) for b in (buffers[0], buffers[-1]))
    return {
        "case": f"{tokens} tokens, {layers} layers, 8 heads of 128",
        "pass": "relocation",
        "equal": right,
        **_microseconds(timing, launches),
        **Work(0, moved).floors(ceilings),
    }


def _ceilings() -> Ceilings:
    problem = PROBLEMS["cuda"]._replace(seconds=3.0)
    return Ceilings(measure_bandwidth("cuda", problem), measure_peak("cuda", problem))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="granikv.bench.kernels", description=__doc__)
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--l2", default="cold,warm", help="cold, warm or both (cold,warm)")
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time of a case")
    parser.add_argument(
        "--only", default="passes,table5,relocation,host", help="what to measure, by comma"
    )
    return parser


def _selected(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    ceilings, l2_bytes = _ceilings(), torch.cuda.get_device_properties().L2_cache_size
    yield {"case": "ceilings", **ceilings._asdict()}
    only, cases = options.only.split(","), [c for c in CASES if options.cases in c.name]
    if "passes" in only:
        for case, l2 in itertools.product(cases, options.l2.split(",")):
            yield from records_of(case, l2, l2_bytes, options.seconds, ceilings)
            torch.cuda.empty_cache()
    if "table5" in only:
        yield from table5_records(options.seconds, ceilings)
    if "relocation" in only:
        yield relocation_record(options.seconds, ceilings)
    if "host" in only:
        for case in cases:
            yield from host_records(case)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object; its exit status."""
    options = _parser().parse_args(argv)
    if not torch.cuda.is_available():
        print(
            "kernels: no CUDA device is usable here; run this on the GPU's machine", file=sys.stderr
        )
        return 2
    machine = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
    json.dump({"bench": "kernels", **machine, "records": list(_selected(options))}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
