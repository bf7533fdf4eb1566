"""One case as a DenseStep, each of its passes ready to be captured."""

from __future__ import annotations

from collections.abc import Callable

import torch

from granikv.attention.kernels.config import Shape, StepConfig
from granikv.attention.reference import attend
from granikv.attention.triton_dense import DenseStep
from granikv.bench.kernels.cases import Case
from granikv.bench.kernels.storage import build

_CHECKED_ROWS = 4


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
