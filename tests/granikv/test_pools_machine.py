"""HOT and COLD against a naive model, one owner per slot, over thousands of random operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from granikv.pools import ColdPool, HotPool, PoolError, check
from granikv.ranges import Range

HOT_PAGES = 24
COLD_PAGES = 8
EXAMPLES = 100
STEPS = 100

FREE = "free"
LIVE = "live"
COLD_FREE = "cold free"
COLD_LIVE = "cold live"
DUMMY = "dummy"

pick = st.integers(0, 1 << 16)


class PagedAllocator:
    """The engine's allocator in miniature: takes pages from the front, frees to the back."""

    def __init__(self, first_page: int, pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.free_pages = list(range(first_page, first_page + pages))

    def free_size(self) -> int:
        return len(self.free_pages) * self.page_size

    def give(self, ranges: Sequence[Range], /) -> None:
        for slots in ranges:
            self.free_pages.extend(self._pages(slots))

    def holds_free(self, slots: Range, /) -> bool:
        return set(self._pages(slots)) <= set(self.free_pages)

    def withdraw(self, slots: Range, /) -> None:
        for page in self._pages(slots):
            self.free_pages.remove(page)

    def _pages(self, slots: Range) -> range:
        return range(slots.base // self.page_size, slots.end // self.page_size)


class Pools(RuleBasedStateMachine):
    """`owner[slot]` says whose each slot is; `slabs` and `loans` are the ranges handed out."""

    page: ClassVar[int] = 1
    operations: ClassVar[int] = 0
    fired: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        page = self.page
        self.hot = HotPool(page, HOT_PAGES * page, page)
        self.allocator = PagedAllocator(1 + HOT_PAGES, COLD_PAGES, page)
        self.cold = ColdPool(self.allocator, COLD_PAGES * page, page)
        self.owner = (
            [DUMMY] * page + [FREE] * (HOT_PAGES * page) + [COLD_FREE] * (COLD_PAGES * page)
        )
        self.slabs: list[Range] = []
        self.loans: list[Range] = []
        self.cold_live: list[int] = []

    # HOT

    @rule(pages=st.integers(1, 12), near=st.none() | pick)
    def alloc(self, pages: int, near: int | None) -> None:
        self._ran("alloc")
        length = pages * self.page
        parent = self._slab(near)
        prefer = None if parent is None else parent.end
        expected = self._naive_fit(length, prefer)
        assert self.hot.alloc(length, prefer) == expected
        if expected is None:
            self.fired.add("no room" if self.owner.count(FREE) < length else "fragmented")
            return
        if expected == prefer:
            self.fired.add("extended in place")
        self._own(Range(expected, length), LIVE)
        self.slabs.append(Range(expected, length))

    @rule(which=pick)
    def release(self, which: int) -> None:
        slab = self._slab(which)
        if slab is None:
            return
        self._ran("release")
        self.hot.release(*slab)
        self.slabs.remove(slab)
        self._own(slab, FREE)

    @rule(which=pick, first=pick, last=pick)
    def release_piece(self, which: int, first: int, last: int) -> None:
        slab = self._slab(which)
        if slab is None:
            return
        self._ran("piece")
        low, high = sorted((first % self._pages(slab), last % self._pages(slab)))
        piece = Range(slab.base + low * self.page, (high - low + 1) * self.page)
        self.hot.release(*piece)
        self._own(piece, FREE)
        self.slabs.remove(slab)
        rests = (Range(slab.base, piece.base - slab.base), Range(piece.end, slab.end - piece.end))
        self.slabs.extend(rest for rest in rests if rest.length)

    @rule(page=st.integers(0, HOT_PAGES + COLD_PAGES), pages=st.integers(1, 6))
    def release_unless_live(self, page: int, pages: int) -> None:
        slots = Range(page * self.page, pages * self.page)
        if set(self.owner[slots.base : slots.end]) == {LIVE}:
            return
        self._ran("refused release")
        with pytest.raises(PoolError):
            self.hot.release(*slots)

    # Donation

    @rule(length=st.integers(0, 8 * 16))
    def borrow(self, length: int) -> None:
        self._ran("borrow")
        pages = -(-length // self.page)
        free = [page for page in range(1, 1 + HOT_PAGES) if self.owner[page * self.page] == FREE]
        given = free[max(0, len(free) - pages) :]
        assert self.cold.borrow(self.hot, length) == len(given) * self.page
        for loan in self._runs(given):
            self._own(loan, COLD_FREE)
            self.loans.append(loan)

    @rule()
    def return_whole(self) -> None:
        self._ran("return")
        whole = [
            loan for loan in self.loans if set(self.owner[loan.base : loan.end]) == {COLD_FREE}
        ]
        assert self.cold.return_whole(self.hot) == sum(loan.length for loan in whole)
        for loan in whole:
            self.fired.add("came back")
            self._own(loan, FREE)
            self.loans.remove(loan)
        if self.loans:
            self.fired.add("kept by COLD")

    # COLD, as the engine uses it

    @rule(pages=st.integers(1, 6))
    def cold_alloc(self, pages: int) -> None:
        taken = self.allocator.free_pages[:pages]
        if not taken:
            return
        self._ran("cold alloc")
        del self.allocator.free_pages[:pages]
        self.cold_live.extend(taken)
        for page in taken:
            assert self.owner[page * self.page] == COLD_FREE
            self._own(Range(page * self.page, self.page), COLD_LIVE)

    @rule(which=pick, pages=st.integers(1, 6))
    def cold_free(self, which: int, pages: int) -> None:
        if not self.cold_live:
            return
        self._ran("cold free")
        at = which % len(self.cold_live)
        freed = self.cold_live[at : at + pages]
        del self.cold_live[at : at + pages]
        self.allocator.free_pages.extend(freed)
        for page in freed:
            self._own(Range(page * self.page, self.page), COLD_FREE)

    # What must hold after every operation

    @invariant()
    def accounts(self) -> None:
        check(self.hot, self.cold, self.slabs, len(self.cold_live) * self.page)

    @invariant()
    def agrees_with_the_model(self) -> None:
        hot = self.owner[self.hot.start : self.hot.end]
        live = [owner == LIVE for owner in hot]
        assert self.hot.free_size == hot.count(FREE)
        assert self.hot.live_size == sum(live)
        assert self.hot.donated_size == sum(loan.length for loan in self.loans)
        assert self.hot.donated_ranges() == sorted(self.loans)
        assert self.hot.free_ranges() == self._runs_of([owner == FREE for owner in hot])
        assert self.hot.live_ranges() == self._runs_of(live)
        tops = [slot for slot, is_live in enumerate(live, self.hot.start) if is_live]
        assert self.hot.bump == (tops[-1] + 1 if tops else self.hot.start)
        assert self.cold.free_size == self.owner.count(COLD_FREE)
        assert self.cold.live_size == self.owner.count(COLD_LIVE)

    def _naive_fit(self, length: int, prefer: int | None) -> int | None:
        bases = [] if prefer is None else [prefer]
        bases += range(self.hot.start, self.hot.end, self.page)
        for base in bases:
            slots = self.owner[base : base + length]
            if len(slots) == length and set(slots) == {FREE}:
                return base
        return None

    def _slab(self, which: int | None) -> Range | None:
        if which is None or not self.slabs:
            return None
        return self.slabs[which % len(self.slabs)]

    def _pages(self, slots: Range) -> int:
        return slots.length // self.page

    def _own(self, slots: Range, owner: str) -> None:
        self.owner[slots.base : slots.end] = [owner] * slots.length

    def _runs_of(self, flags: list[bool]) -> list[Range]:
        runs: list[Range] = []
        for slot, flag in enumerate(flags, self.hot.start):
            if not flag:
                continue
            if runs and runs[-1].end == slot:
                runs[-1] = Range(runs[-1].base, runs[-1].length + 1)
            else:
                runs.append(Range(slot, 1))
        return runs

    def _runs(self, pages: list[int]) -> list[Range]:
        first = self.hot.start // self.page
        flags = [
            page in pages for page in range(first, first + HOT_PAGES) for _ in range(self.page)
        ]
        return self._runs_of(flags)

    def _ran(self, what: str) -> None:
        type(self).operations += 1
        self.fired.add(what)


class Pools4(Pools):
    page = 4
    operations = 0
    fired: ClassVar[set[str]] = set()


class Pools16(Pools):
    page = 16
    operations = 0
    fired: ClassVar[set[str]] = set()


@pytest.mark.parametrize("machine", [Pools, Pools4, Pools16])
def test_pools_agree_with_one_owner_per_slot(machine: type[Pools]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    # The three page sizes make 10,000 operations; every kind of event must have been met.
    assert machine.operations >= 3400
    assert machine.fired == {
        "alloc", "no room", "fragmented", "extended in place", "release", "piece",
        "refused release", "borrow", "return", "came back", "kept by COLD", "cold alloc",
        "cold free",
    }  # fmt: skip
