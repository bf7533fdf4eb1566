"""The children of a decode step, each made ready to be timed on any composition.

The stock kernels are called as SGLang's own backends call them under CUDA graphs: FlashInfer with a
plan of the step at hand and page size 1, FA3 with the scheduler's metadata and a page table as wide
as the context. The sharing children have buffers for the largest batch, as an engine does. Layers
lie in memory one behind another and take turns, so that a launch finds nothing of its own in L2.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from granikv.attention import Segment as TensorSegment
from granikv.attention import StepInputs, backend
from granikv.attention.kernels.config import Shape, multiprocessors
from granikv.attention.triton_dense import DenseStep
from granikv.bench.kernels import Case, Read, captured
from granikv.calibrate import Timing, time_together
from granikv.cost import Geometry, Reads, Tile
from granikv.dispatch import CASCADE, DENSE
from granikv.plan import DecodePlan, PagedRange, Segment

Launch = Callable[[int], object]
"""One layer's attention, given the layer's number."""
Timer = Callable[[Sequence[Launch], int], list[Timing]]
"""Launches and the layers that they rotate over, to seconds a launch."""

_LAYERS = 128
"""Most layers that take turns."""
_WORKSPACE = 512 * 2**20
_CASCADE_BLOCK_M = 16
"""FlashInfer takes tiles of 16, 64 or 128 folded rows as they are needed; the finest is counted."""


def composition(rows: int, suffix: int, lengths: Sequence[int], geometry: Geometry) -> Case:
    """`rows` rows spread evenly over prefix classes, each with `suffix` tokens of its own."""
    cuts = [rows * i // len(lengths) for i in range(len(lengths) + 1)] if lengths else []
    reads = tuple(
        Read(first, stop - first, 0, length)
        for (first, stop), length in zip(itertools.pairwise(cuts), lengths, strict=True)
        if length
    )
    name = f"B={rows} L_p={'/'.join(map(str, lengths)) or 0} suffix={suffix}"
    heads = (geometry.kv_heads * geometry.group, geometry.kv_heads)
    return Case(name, rows, suffix, heads, geometry.d, reads)


def reads_of(case: Case) -> Reads:
    """What the cost model sees of it."""
    shared = [(read.length, read.rows) for read in case.reads]
    return Reads.of(case.rows, case.rows * case.suffix, shared)


class Scene(NamedTuple):
    """One composition in memory: queries, caches a layer, page table, lengths, the step's plan."""

    q: Tensor
    k: list[Tensor]
    v: list[Tensor]
    table: Tensor
    lens: list[int]
    seq_lens: Tensor
    plan: DecodePlan
    out: Tensor

    @property
    def tokens(self) -> int:
        """Tokens attended, all rows."""
        return sum(self.lens)


class Arena:
    """Memory for the compositions of one attention geometry.

    Args:
        slots: most slots of one composition.
        rows, context: largest batch, and width of the page table.
        l2_bytes: what the layers' slots together must exceed threefold.
    """

    def __init__(
        self,
        geometry: Geometry,
        dtype: torch.dtype,
        device: torch.device,
        *,
        slots: int,
        rows: int,
        context: int,
        l2_bytes: int = 0,
    ) -> None:
        self.geometry, self.dtype, self.device, self.rows = geometry, dtype, device, rows
        self.slots = slots
        self._cold = -(-3 * l2_bytes // geometry.token_bytes)
        size = (max(2 * slots, self._cold + slots), geometry.kv_heads, geometry.d)
        self._k, self._v = (torch.randn(size, device=device, dtype=dtype) for _ in range(2))
        self._table = torch.zeros(rows, context, dtype=torch.int32, device=device)

    @property
    def shape(self) -> Shape:
        """As the kernels take it."""
        g = self.geometry
        return Shape(g.kv_heads, g.group, g.d, g.d_v, self.dtype)

    def scene(self, case: Case) -> Scene:
        """Slabs from slot 1 on, the rows' own tokens scattered behind them.

        Stands until the next one is made: they share the page table.
        """
        ends = [0] * case.rows
        base, segments = 1, []
        for first, rows, p0, length in case.reads:
            at = slice(first, first + rows)
            self._table[at, p0 : p0 + length] = torch.arange(
                base, base + length, dtype=torch.int32, device=self.device
            )
            ends[at] = [p0 + length] * rows
            segments.append(Segment(base, p0, length, tuple(range(first, first + rows))))
            base += length
        own = case.rows * case.suffix
        cold = base + torch.randperm(own, device=self.device)
        columns = self._tensor(ends).long()[:, None] + torch.arange(case.suffix, device=self.device)
        cold = cold.to(torch.int32).view(case.rows, case.suffix)
        self._table[: case.rows].scatter_(1, columns, cold)
        lens = [end + case.suffix for end in ends]
        paged = {end: (PagedRange(end, None),) for end in ends}
        plan = DecodePlan(case.rows, tuple(segments), tuple([paged[end] for end in ends]))
        k, v = self._layers(base + own)
        g = self.geometry
        q = torch.randn(case.rows, g.kv_heads * g.group, g.d, device=self.device, dtype=self.dtype)
        table = self._table[: case.rows]
        return Scene(q, k, v, table, lens, self._tensor(lens), plan, torch.empty_like(q))

    def _layers(self, slots: int) -> tuple[list[Tensor], list[Tensor]]:
        wanted = min(_LAYERS, max(2, -(-self._cold // slots)))
        layers = min(wanted, self._k.shape[0] // slots)
        views = [slice(i * slots, (i + 1) * slots) for i in range(layers)]
        return [self._k[view] for view in views], [self._v[view] for view in views]

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)


class Child(ABC):
    """One way to serve a step."""

    @abstractmethod
    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        """A layer's launch for this composition; it stands until the next `prepare`."""


class SharingChild(Child):
    """A child that reads each segment of the plan once."""

    tile: Tile


class Dense(SharingChild):
    """The fused kernels over slabs."""

    def __init__(self, arena: Arena) -> None:
        # Room for every row to read everything for itself.
        tokens = arena.rows * arena.slots
        self._step = DenseStep(arena.shape, arena.rows, min(tokens, 2**23), arena.device, 2)
        prefix = self._step.prefix
        self.tile = Tile(prefix.block_m, prefix.block_n, prefix.programs)
        self._table_rows = torch.arange(arena.rows, dtype=torch.int32, device=arena.device)

    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        step, s = self._step, scene
        step.plan(plan)
        step.snapshot(s.table, self._table_rows[: plan.rows], s.seq_lens, s.tokens)
        scale = s.q.shape[2] ** -0.5
        return lambda layer: step.attend(s.q, s.k[layer], s.v[layer], s.out, scale)


class Cascade(SharingChild):
    """FlashInfer's cascade over slabs."""

    def __init__(self, arena: Arena) -> None:
        from granikv.attention.flashinfer_cascade import CascadeStep

        tokens = min(arena.rows * arena.slots, 2**23)
        self._step = CascadeStep(arena.shape, arena.rows, tokens, arena.slots, arena.device)
        self.tile = Tile(_CASCADE_BLOCK_M, 64, multiprocessors(arena.device))
        self._table_rows = torch.arange(arena.rows, dtype=torch.int32, device=arena.device)

    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        step, s = self._step, scene
        step.plan(plan, s.lens)
        step.snapshot(s.table, self._table_rows[: plan.rows], s.seq_lens)
        scale = s.q.shape[2] ** -0.5
        return lambda layer: step.attend(s.q, s.k[layer], s.v[layer], s.out, scale)


class FlashInfer(Child):
    """SGLang's `flashinfer` decode: page size 1 always, tensor cores from group 4 on."""

    def __init__(self, arena: Arena) -> None:
        import flashinfer

        self._library, self._geometry = flashinfer, arena.geometry
        self._workspace = torch.empty(_WORKSPACE, dtype=torch.uint8, device=arena.device)

    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        g, s = self._geometry, scene
        rows, device = len(s.lens), s.q.device
        ptr = torch.tensor([0, *itertools.accumulate(s.lens)], dtype=torch.int32)
        used = torch.arange(max(s.lens), device=device)[None] < s.seq_lens[:, None]
        slots = s.table[:, : max(s.lens)][used]
        last_page = torch.ones(rows, dtype=torch.int32, device=device)
        wrapper = self._library.BatchDecodeWithPagedKVCacheWrapper(
            self._workspace,
            "NHD",
            use_cuda_graph=True,
            use_tensor_cores=g.group >= 4,
            paged_kv_indptr_buffer=ptr.to(device),
            paged_kv_indices_buffer=slots,
            paged_kv_last_page_len_buffer=last_page,
            backend="fa2",
        )
        wrapper.plan(
            ptr,
            slots,
            last_page,
            g.kv_heads * g.group,
            g.kv_heads,
            g.d,
            1,
            q_data_type=s.q.dtype,
            kv_data_type=s.q.dtype,
        )
        return lambda layer: wrapper.run(
            s.q, (s.k[layer].unsqueeze(1), s.v[layer].unsqueeze(1)), out=s.out
        )


class FlashAttention3(Child):
    """SGLang's `fa3` decode."""

    def __init__(self, arena: Arena) -> None:
        from sgl_kernel import flash_attn

        self._library, self._geometry = flash_attn, arena.geometry

    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        g, s = self._geometry, scene
        rows = len(s.lens)
        starts = torch.arange(rows + 1, dtype=torch.int32, device=s.q.device)
        metadata = self._library.get_scheduler_metadata(
            batch_size=rows,
            max_seqlen_q=1,
            max_seqlen_k=max(s.lens),
            num_heads=g.kv_heads * g.group,
            num_heads_k=g.kv_heads,
            headdim=g.d,
            cache_seqlens=s.seq_lens,
            qkv_dtype=s.q.dtype,
            cu_seqlens_q=starts,
            page_size=1,
            causal=True,
            has_softcap=False,
            num_splits=0,
        )
        return lambda layer: self._library.flash_attn_with_kvcache(
            q=s.q,
            k_cache=s.k[layer].unsqueeze(1),
            v_cache=s.v[layer].unsqueeze(1),
            page_table=s.table,
            cache_seqlens=s.seq_lens,
            cu_seqlens_q=starts,
            max_seqlen_q=1,
            softmax_scale=g.d**-0.5,
            causal=True,
            scheduler_metadata=metadata,
            num_splits=0,
        )


class OwnPaged(Dense):
    """Our suffix kernel over everything: the stand-in where no stock kernel is installed."""

    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        return super().prepare(scene, plan.without(range(len(plan.segments))))


class Torch(SharingChild):
    """A backend in plain torch, as it serves on a CPU."""

    tile = Tile(1, 1, 1)

    def __init__(self, name: str) -> None:
        self._backend = backend(name)

    def prepare(self, scene: Scene, plan: DecodePlan) -> Launch:
        s = scene
        segments = tuple(
            TensorSegment(x.base, x.p0, x.length, torch.tensor(x.rows)) for x in plan.segments
        )
        step, scale = StepInputs(s.table, s.lens, segments), s.q.shape[2] ** -0.5
        return lambda layer: self._backend.decode(s.q, s.k[layer], s.v[layer], step, scale)


class Children(NamedTuple):
    """What serves on one device: stock backends by the engine's name, sharing children by ours.

    missing: what was tried and does not serve, with the reason.
    """

    stock: dict[str, Child]
    sharing: dict[str, SharingChild]
    missing: dict[str, str]


def torch_children(arena: Arena) -> Children:
    """The children of a CPU."""
    sharing: dict[str, SharingChild] = {name: Torch(name) for name in (CASCADE, DENSE)}
    return Children({"torch_native": Torch("paged")}, sharing, {})


def fused_children(arena: Arena) -> Children:
    """The children of a GPU: those that serve a small step here."""
    stock: dict[str, type[Child]] = {"flashinfer": FlashInfer}
    if arena.device.type != "cuda":
        stock = {}
    elif torch.cuda.get_device_capability(arena.device)[0] == 9:
        stock = {"fa3": FlashAttention3, **stock}
    missing: dict[str, str] = {}
    serving = _serving(stock, arena, missing) or _serving({"own": OwnPaged}, arena, missing)
    sharing: dict[str, type[SharingChild]] = {DENSE: Dense, CASCADE: Cascade}
    return Children(serving, _serving(sharing, arena, missing), missing)


def _serving(kinds: Mapping[str, Any], arena: Arena, missing: dict[str, str]) -> dict[str, Any]:
    """Those that can be built and serve a step; compiles their kernels."""
    found = {}
    scene = arena.scene(composition(2, 2, [16], arena.geometry))
    for name, kind in kinds.items():
        try:
            child = kind(arena)
            child.prepare(scene, scene.plan)(0)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            found[name] = child
    return found


def graph_timer(seconds: float) -> Timer:
    """Replays of CUDA graphs, in turn; about so long for all launches of a call."""

    def timed(launches: Sequence[Launch], layers: int) -> list[Timing]:
        graphs = [captured(_silent(launch), layers) for launch in launches]
        timings = time_together("cuda", [replay for replay, _ in graphs], seconds)
        return [
            Timing(timing.median / count, timing.spread / count)
            for timing, (_, count) in zip(timings, graphs, strict=True)
        ]

    return timed


def _silent(launch: Launch) -> Callable[[int], None]:
    """The launch, its result let go inside the capture."""

    def silent(layer: int) -> None:
        launch(layer)

    return silent


def eager_timer(seconds: float) -> Timer:
    """Calls on the host, in turn."""

    def timed(launches: Sequence[Launch], layers: int) -> list[Timing]:
        turns = [itertools.cycle(range(layers)) for _ in launches]
        calls = [
            lambda launch=launch, turn=turn: launch(next(turn))
            for launch, turn in zip(launches, turns, strict=True)
        ]
        return time_together("cpu", calls, seconds)

    return timed
