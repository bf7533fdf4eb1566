"""What the suffix pass of a step reads: its slots, cut into parts, on the device (§3.5)."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from granikv.attention.kernels.config import Shape, SuffixConfig
from granikv.attention.kernels.paged_suffix import PART_FIELDS, part_limit, snapshot
from granikv.attention.kernels.worklist import WorkListOverflow


class OwnRanges(Protocol):
    """Which positions of its sequence each row reads for itself, as `worklist` lays it out."""

    @property
    def covered(self) -> Tensor: ...
    @property
    def layout(self) -> Tensor: ...
    @property
    def gap_ptr(self) -> Tensor: ...
    @property
    def gaps(self) -> Tensor: ...


class SuffixTables:
    """Tables at fixed addresses, for batches of up to `rows` rows; written by one small launch.

    Attributes:
        slots: [tokens] int32, the step's slots that no segment covers, row after row.
        parts: [limit, 4] int32, how they are cut; ptr [rows + 1] int32, the parts of each row.
        limit: most parts of one step.
    """

    def __init__(
        self, shape: Shape, config: SuffixConfig, rows: int, tokens: int, device: torch.device
    ) -> None:
        """tokens: most tokens of one step that no segment covers."""
        self._shape = shape
        self._config = config
        self._rows = rows
        self.limit = part_limit(rows, shape, config)
        self.slots = torch.zeros(max(tokens, 1), dtype=torch.int32, device=device)
        self.parts = torch.zeros(
            (max(self.limit, 1), PART_FIELDS), dtype=torch.int32, device=device
        )
        self.ptr = torch.zeros(rows + 1, dtype=torch.int32, device=device)

    def require_room(self, rows: int, tokens: int) -> None:
        """Raises WorkListOverflow for a step of more rows, or more tokens outside segments."""
        if tokens > self.slots.numel() or rows > self._rows:
            raise WorkListOverflow(
                f"{rows} rows with {tokens} tokens outside segments exceed the room for "
                f"{self._rows} rows and {self.slots.numel()} tokens"
            )

    def snapshot(
        self, page_table: Tensor, table_rows: Tensor, seq_lens: Tensor, ranges: OwnRanges
    ) -> None:
        """Copy what the rows read for themselves out of the page table, and cut it into parts.

        page_table  [requests, context] int32 or int64; table_rows [n] its row of each batch row;
        seq_lens    [n] int32 or int64 on the device
        """
        snapshot(
            page_table,
            table_rows,
            seq_lens,
            ranges.covered,
            ranges.layout,
            ranges.gap_ptr,
            ranges.gaps,
            self.slots,
            self.parts,
            self.ptr,
            seq_lens.numel(),
            self._shape,
            self._config,
        )
