"""The contract of a decode-attention backend: what it is given and what it must return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar, cast

from torch import Tensor

T = TypeVar("T")


class Partial(NamedTuple):
    """Attention of each row over a part of its keys, ready to be merged (paper, §2.3, Eq. 1).

    out [n, H_q, d_v] float32 is normalised over that part alone; lse [n, H_q] float32 is the
    NATURAL logarithm (base e) of the sum of exp(score). A row that has no key in the part has
    out = 0 and lse = -inf.
    """

    out: Tensor
    lse: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """One shared range of tokens that several rows of the batch read.

    base    first slot of the slab that holds the range, or None when it lies on ordinary pages;
            then it is read through the page table of rows[0], positions p0 to p0 + length
    p0      position of the range's first token in each reader's sequence
    length  tokens; 0 is allowed and reads nothing
    rows    int64 [m], the batch rows that read it, each once, on the page table's device
    """

    base: int | None
    p0: int
    length: int
    rows: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class StepInputs:
    """Where one decode step finds its keys and values; the same for every layer of the step.

    page_table  [n, max_len] int32 or int64, the slot of each token position, by batch row.
                Entries from seq_lens[i] on are never looked at: they may hold anything.
    seq_lens    tokens row i attends to, the one being decoded included; 0 gives a zero output
    segments    shared ranges. A row may read several (nested prefixes); its own may not overlap
                and must end within its sequence, else the first decode raises ValueError.
    page_size   tokens a page of the allocator behind the table; the table itself is per token
    """

    page_table: Tensor
    seq_lens: list[int]
    segments: tuple[Segment, ...] = ()
    page_size: int = 1
    _memo: dict[str, object] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.page_table.dim() != 2 or self.page_table.shape[0] != len(self.seq_lens):
            raise ValueError(
                f"page_table {tuple(self.page_table.shape)} does not have one row for each of "
                f"the {len(self.seq_lens)} sequence lengths"
            )
        if self.seq_lens and max(self.seq_lens) > self.page_table.shape[1]:
            raise ValueError(
                f"a sequence of {max(self.seq_lens)} tokens exceeds the page table's "
                f"{self.page_table.shape[1]} columns"
            )

    def once(self, key: str, build: Callable[[StepInputs], T]) -> T:
        """build(self), computed at the first call under this key and kept for later layers."""
        if key not in self._memo:
            self._memo[key] = build(self)
        return cast("T", self._memo[key])


class DecodeBackend(ABC):
    """Attention of one query token a row over that row's whole sequence."""

    name: ClassVar[str]

    @abstractmethod
    def decode(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, step: StepInputs, scale: float
    ) -> Tensor:
        """Return softmax(scale * q K^T) V for each row, [n, H_q, d_v] in q's dtype.

        q        [n, H_q, d]; query head h reads KV head h // (H_q / H_kv)
        k_cache  [slots, H_kv, d]; v_cache [slots, H_kv, d_v]; neither is written

        Scores, softmax and merging are float32. Slots are 64-bit offsets. Raises ValueError when
        H_q is no multiple of H_kv, and where a backend cannot read a segment's storage.
        """
