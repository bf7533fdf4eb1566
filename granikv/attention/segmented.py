"""What every backend that knows segments has in common: prefix passes, paged suffix, merge."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from granikv.attention.interface import DecodeBackend, Partial, StepInputs
from granikv.attention.layout import SegmentRead, segment_levels, uncovered_groups
from granikv.attention.merge import merge
from granikv.attention.numerics import empty_partial, place_rows
from granikv.attention.paged import gathered_partial


class SegmentedBackend(DecodeBackend):
    """Attention over each segment by `prefix`, over the rest by gathering, merged by Eq. 1."""

    reads_pages: ClassVar[bool] = False
    """Whether a segment may lie on ordinary pages (base None)."""

    @abstractmethod
    def prefix(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
        """Attention of q [m, H_q, d] over one segment, k [L, H_kv, d], v [L, H_kv, d_v], L >= 1."""

    def decode(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, step: StepInputs, scale: float
    ) -> Tensor:
        parts = [gathered_partial(q, k_cache, v_cache, uncovered_groups(step), scale)]
        for level in segment_levels(step):
            parts.append(self._level(q, k_cache, v_cache, level, scale))
        if len(parts) == 1:
            return parts[0].out.to(q.dtype)
        return merge(parts).out.to(q.dtype)

    def _level(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        level: tuple[SegmentRead, ...],
        scale: float,
    ) -> Partial:
        if level[0].rows is None:
            return self.prefix(q, *self._keys(k_cache, v_cache, level[0]), scale)
        result = empty_partial(q.shape[0], q.shape[1], v_cache.shape[2], q.device)
        for read in level:
            assert read.rows is not None, "a segment of all rows is alone in its level"
            keys, values = self._keys(k_cache, v_cache, read)
            place_rows(
                result, read.rows, self.prefix(q.index_select(0, read.rows), keys, values, scale)
            )
        return result

    def _keys(self, k_cache: Tensor, v_cache: Tensor, read: SegmentRead) -> tuple[Tensor, Tensor]:
        """K and V of a segment: views of its slab, or gathered once for all its rows."""
        base, length = read.segment.base, read.segment.length
        if read.slots is None:
            assert base is not None
            if base < 0 or base + length > k_cache.shape[0]:
                raise ValueError(
                    f"the slab at slots {base}..{base + length} ends past the cache of "
                    f"{k_cache.shape[0]} slots"
                )
            return k_cache.narrow(0, base, length), v_cache.narrow(0, base, length)
        if not self.reads_pages:
            raise ValueError(
                f"the {self.name} backend reads contiguous slabs only, but the segment at position "
                f"{read.segment.p0} lies on ordinary pages (base is None)"
            )
        return k_cache.index_select(0, read.slots), v_cache.index_select(0, read.slots)
