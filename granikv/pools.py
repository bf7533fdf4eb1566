"""The two pools of the KV cache: contiguous HOT slabs and token-level COLD slots.

HOT holds shared prefixes, one contiguous range of slots each (paper §3.2). COLD is the engine's own
token-level allocator (§3.3) on the rest of the KV budget. HOT's free space is lent to COLD under
pressure and comes back when it is whole (B.12). All lengths and bases are in slots, one slot being
one token's K and V over all layers; no tensor is touched here.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Protocol

from granikv.ranges import Range, RangeSet


class PoolError(ValueError):
    """A pool was asked for something that would break its accounting; nothing was changed."""


class EngineAllocator(Protocol):
    """What COLD needs of the engine's token-level allocator. Ranges are page-aligned."""

    def free_size(self) -> int:
        """Free slots, those on loan from HOT included."""

    def give(self, ranges: Sequence[Range], /) -> None:
        """Make these slots, so far unknown to the allocator, free in it."""

    def holds_free(self, slots: Range, /) -> bool:
        """Whether every slot of the range is free in the allocator."""

    def withdraw(self, slots: Range, /) -> None:
        """Remove these free slots from the allocator; they are HOT's again."""


def hot_size(capacity: int, fraction: float, page_size: int = 1) -> int:
    """Slots of the HOT pool for the fraction f_p of a KV budget of `capacity` slots (§3.2, B.12).

    Whole pages, rounded down; 0 for a fraction smaller than one page. Raises PoolError unless
    0 <= fraction < 1.
    """
    if not 0 <= fraction < 1:
        raise PoolError(f"HOT fraction {fraction} leaves no room for COLD: give 0 <= f_p < 1")
    return round(capacity * fraction) // page_size * page_size


class HotPool:
    """Contiguous slabs over the slots [start, start + size) (paper §3.2).

    The bump pointer is the end of the highest live slab. Placement is first fit in address order:
    the freed ranges below the bump pointer, then the space above it. Each slot is free, live or
    donated; free and live ranges are kept merged, donated ones as they were given.
    Raises PoolError when start or size is negative or not a whole number of pages.
    """

    def __init__(self, start: int, size: int, page_size: int = 1) -> None:
        if page_size < 1:
            raise PoolError(f"page size {page_size} is not positive: give 1, 4 or 16")
        if start < 0 or size < 0 or start % page_size or size % page_size:
            raise PoolError(
                f"HOT pool {Range(start, size)} is not made of whole pages of {page_size} slots: "
                "round its start and size to multiples of the page size"
            )
        self.start = start
        self.size = size
        self.page_size = page_size
        self._free = RangeSet()
        self._live = RangeSet()
        self._donated: list[Range] = []
        self._donated_size = 0
        if size:
            self._free.add(Range(start, size))

    @property
    def end(self) -> int:
        """The slot after the pool's last one."""
        return self.start + self.size

    @property
    def bump(self) -> int:
        """The end of the highest live slab; `start` when nothing is live."""
        return self._live.end(default=self.start)

    @property
    def free_size(self) -> int:
        """Slots that are neither live nor donated."""
        return self._free.total

    @property
    def live_size(self) -> int:
        """Slots in slabs."""
        return self._live.total

    @property
    def donated_size(self) -> int:
        """Slots on loan to COLD, free or live there."""
        return self._donated_size

    def alloc(self, length: int, prefer: int | None = None) -> int | None:
        """Base of a contiguous slab of `length` slots, or None when no free range is long enough.

        `prefer` (the end of the parent's slab) is taken when the slab fits there, so that the two
        are one contiguous range. Raises PoolError when length or prefer is not page-aligned.
        """
        self._require_aligned(Range(self.start if prefer is None else prefer, length))
        base = self._place(length, prefer)
        if base is None:
            return None
        slab = Range(base, length)
        self._free.remove(slab)
        self._live.add(slab)
        return base

    def release(self, base: int, length: int) -> None:
        """Free the slots [base, base + length): a whole slab, or a piece of one that was split.

        Raises PoolError when the range is not page-aligned, out of the pool, or not wholly live
        (released twice, donated or never allocated).
        """
        slots = Range(base, length)
        self._require_aligned(slots)
        if base < self.start or slots.end > self.end:
            raise PoolError(
                f"slots {slots} are outside the HOT pool {self._span}: release them to COLD"
            )
        if not self._live.holds(slots):
            raise PoolError(
                f"slots {slots} are not all live in HOT (released twice, donated or never "
                "allocated): release each slab once"
            )
        self._live.remove(slots)
        self._free.add(slots)

    def donate(self, length: int) -> list[Range]:
        """Give at least `length` free slots, in whole pages, to COLD; fewer when less is free.

        Taken from the highest address downward, so that the low end stays whole for slabs.
        Several ranges when the free space is in pieces, highest first. Raises PoolError for a
        negative length.
        """
        if length < 0:
            raise PoolError(f"cannot donate {length} slots: give a length of 0 or more")
        wanted = -(-length // self.page_size) * self.page_size
        given: list[Range] = []
        while wanted and self._free.total:
            top = self._free.last()
            taken = min(wanted, top.length)
            given.append(Range(top.end - taken, taken))
            self._free.remove(given[-1])
            wanted -= taken
        for slots in given:
            insort(self._donated, slots)
            self._donated_size += slots.length
        return given

    def take_back(self, whole: Callable[[Range], bool]) -> list[Range]:
        """Return to HOT each donated range for which `whole` says that COLD holds all of it free.

        The caller then withdraws the returned ranges from COLD. A range comes back as it was
        given or not at all.
        """
        taken: list[Range] = []
        kept: list[Range] = []
        for slots in self._donated:
            (taken if whole(slots) else kept).append(slots)
        self._donated = kept
        for slots in taken:
            self._donated_size -= slots.length
            self._free.add(slots)
        return taken

    def free_ranges(self) -> list[Range]:
        """Free space by address, neighbours merged."""
        return self._free.ranges()

    def live_ranges(self) -> list[Range]:
        """Live space by address; slabs that touch are one range."""
        return self._live.ranges()

    def donated_ranges(self) -> list[Range]:
        """Ranges on loan to COLD by address, each as it was given."""
        return list(self._donated)

    def check(self) -> None:
        """Raise PoolError unless free, live and donated ranges tile the pool page by page."""
        self._check_sizes()
        at = self.start
        for slots in sorted([*self._free.ranges(), *self._live.ranges(), *self._donated]):
            if slots.base != at or slots.length < 1 or slots.end % self.page_size:
                raise PoolError(
                    f"HOT accounting is broken at slot {at}: the next range is {slots}, "
                    f"page size {self.page_size}"
                )
            at = slots.end
        if at != self.end:
            raise PoolError(f"HOT accounting is broken: slots {Range(at, self.end - at)} are lost")
        for name, ranges in (("free", self._free.ranges()), ("live", self._live.ranges())):
            for left, right in pairwise(ranges):
                if left.end == right.base:
                    raise PoolError(f"HOT's {name} ranges {left} and {right} touch but are apart")

    def _check_sizes(self) -> None:
        counted = (
            sum(slots.length for slots in self._free.ranges()),
            sum(slots.length for slots in self._live.ranges()),
            sum(slots.length for slots in self._donated),
        )
        stated = (self.free_size, self.live_size, self.donated_size)
        if counted != stated or sum(counted) != self.size:
            raise PoolError(
                f"HOT accounting is broken: (free, live, donated) is counted as {counted} and "
                f"stated as {stated}, of {self.size} slots"
            )

    @property
    def _span(self) -> Range:
        return Range(self.start, self.size)

    def _place(self, length: int, prefer: int | None) -> int | None:
        if prefer is not None and self._free.holds(Range(prefer, length)):
            return prefer
        return self._free.first_fit(length)

    def _require_aligned(self, slots: Range) -> None:
        if slots.length < 1 or slots.length % self.page_size or slots.base % self.page_size:
            raise PoolError(
                f"HOT slots {slots} are not one or more whole pages of {self.page_size} slots: "
                "cut the range at page boundaries"
            )


class ColdPool:
    """The view of the engine's token-level allocator (§3.3), at its page size (1, 4, 16: B.6).

    `capacity` is COLD's own number of slots, without those on loan from HOT.
    Raises PoolError when it is negative or not a whole number of pages.
    """

    def __init__(self, allocator: EngineAllocator, capacity: int, page_size: int = 1) -> None:
        if page_size < 1 or capacity < 0 or capacity % page_size:
            raise PoolError(
                f"COLD capacity {capacity} is not made of whole pages of {page_size} slots: "
                "round it to a multiple of the page size"
            )
        self.capacity = capacity
        self.page_size = page_size
        self._allocator = allocator
        self._donated_size = 0

    @property
    def size(self) -> int:
        """Slots that COLD can use now: its capacity and what is on loan from HOT."""
        return self.capacity + self._donated_size

    @property
    def free_size(self) -> int:
        """Free slots, those on loan included."""
        return self._allocator.free_size()

    @property
    def live_size(self) -> int:
        """Slots in use, those on loan included."""
        return self.size - self.free_size

    @property
    def donated_size(self) -> int:
        """Slots on loan from HOT, free or live here."""
        return self._donated_size

    def borrow(self, hot: HotPool, length: int) -> int:
        """Take at least `length` slots, in whole pages, of HOT's free space; the slots taken.

        Fewer, down to 0, when HOT has less free. Raises PoolError when the page sizes differ.
        """
        if hot.page_size != self.page_size:
            raise PoolError(
                f"HOT has pages of {hot.page_size} slots and COLD of {self.page_size}: "
                "build both pools with the engine's page size"
            )
        ranges = hot.donate(length)
        if ranges:
            self._allocator.give(ranges)
        given = sum(slots.length for slots in ranges)
        self._donated_size += given
        return given

    def return_whole(self, hot: HotPool) -> int:
        """Give back to HOT each loan that is wholly free here; the slots given back."""
        ranges = hot.take_back(self._allocator.holds_free)
        for slots in ranges:
            self._allocator.withdraw(slots)
        returned = sum(slots.length for slots in ranges)
        self._donated_size -= returned
        return returned


def check(hot: HotPool, cold: ColdPool, hot_live: Iterable[Range], cold_live: int) -> None:
    """The accounting check: each slot of the KV budget is in exactly one place.

    HOT free + HOT live + donated = HOT size; COLD free + COLD live = COLD capacity + donated; the
    tree's slabs, `hot_live` in any order, are disjoint and exactly HOT's live ranges. `cold_live`
    is what tree and requests hold in COLD, in slots of whole pages, loans included. Raises
    PoolError with the first difference found.
    """
    hot.check()
    if hot.donated_size != cold.donated_size:
        raise PoolError(
            f"HOT has lent {hot.donated_size} slots and COLD has borrowed {cold.donated_size}: "
            "lend and return through ColdPool only"
        )
    if cold_live < 0 or cold.free_size + cold_live != cold.size:
        raise PoolError(
            f"COLD accounting is broken: {cold.free_size} free + {cold_live} live is not "
            f"{cold.capacity} own + {cold.donated_size} donated slots"
        )
    _check_slabs(hot, hot_live)


def _check_slabs(hot: HotPool, slabs: Iterable[Range]) -> None:
    covered = RangeSet()
    at = hot.start
    for slab in sorted(slabs):
        if slab.length < 1 or slab.base < at or slab.end > hot.end:
            raise PoolError(
                f"slab {slab} of the tree is empty, overlaps another or is outside HOT {hot._span}"
            )
        covered.add(slab)
        at = slab.end
    known, held = set(hot.live_ranges()), set(covered.ranges())
    if known != held:
        only_pool = min(known - held, default=None)
        only_tree = min(held - known, default=None)
        raise PoolError(
            "the tree's slabs are not HOT's live ranges: the first that differ are "
            f"{only_tree} in the tree and {only_pool} in HOT"
        )
