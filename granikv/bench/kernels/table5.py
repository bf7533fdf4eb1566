"""Table 5 as 2 x 2: contiguous or paged storage, shared or unshared read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from granikv.attention.kernels.config import (
    PrefixConfig,
    Shape,
    StepConfig,
    multiprocessors,
    suffix_config,
)
from granikv.attention.reference import attend
from granikv.attention.triton_dense import DenseStep
from granikv.bench.kernels import timing
from granikv.bench.kernels.cases import CASES, Case, Ceilings, Work
from granikv.bench.kernels.storage import build
from granikv.calibrate import time_together
from granikv.plan import DecodePlan

LAUNCHES = tuple(itertools.product(("HOT", "paged"), ("shared", "unshared")))
"""(layout, read)."""


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
    seconds: float,
    ceilings: Ceilings,
    case: Case = CASES[0],
    layers: int = 6,
    launches: Iterable[tuple[str, str]] = LAUNCHES,
    **options: Any,
) -> list[dict[str, Any]]:
    """The 2 x 2 that tells contiguity from sharing, under the names that the harness uses."""
    records = []
    for layout, read in launches:
        cell = TwoByTwo(layout, read, case, layers, **options)
        replay, count = timing.captured(cell.launch, layers)
        (taken,) = time_together(cell.storage.q.device.type, [replay], seconds)
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
                "kernel_wall_s": taken.median / count,
                "kernel_flop": case.flop,
                "prefix_config": cell.step.prefix._asdict(),
                **timing.microseconds(taken, count),
                **Work(case.flop, case.prefix_bytes * reads).floors(ceilings),
            }
        )
    return records
