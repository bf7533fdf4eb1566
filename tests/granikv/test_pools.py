"""HOT and COLD pools: placement, release, donation, and the accounting check (paper §3.2, §3.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from granikv.pools import ColdPool, HotPool, PoolError, check, hot_size
from granikv.ranges import Range

PAGES = pytest.mark.parametrize("page", [1, 4, 16])


class SetAllocator:
    """An engine allocator as a set of free slots."""

    def __init__(self, base: int, capacity: int) -> None:
        self.free = set(range(base, base + capacity))

    def free_size(self) -> int:
        return len(self.free)

    def give(self, ranges: Sequence[Range], /) -> None:
        for slots in ranges:
            assert self.free.isdisjoint(range(slots.base, slots.end))
            self.free.update(range(slots.base, slots.end))

    def holds_free(self, slots: Range, /) -> bool:
        return self.free.issuperset(range(slots.base, slots.end))

    def withdraw(self, slots: Range, /) -> None:
        assert self.holds_free(slots)
        self.free.difference_update(range(slots.base, slots.end))


def pools(page: int, hot_pages: int, cold_pages: int) -> tuple[HotPool, ColdPool, SetAllocator]:
    """HOT from slot `page` on (slot 0's page is the engine's dummy), COLD right above it."""
    hot = HotPool(page, hot_pages * page, page)
    allocator = SetAllocator(hot.end, cold_pages * page)
    return hot, ColdPool(allocator, cold_pages * page, page), allocator


def alloc(hot: HotPool, length: int, prefer: int | None = None) -> int:
    base = hot.alloc(length, prefer)
    assert base is not None
    return base


# Placement and release


@PAGES
def test_slabs_follow_the_bump_pointer(page: int) -> None:
    hot = HotPool(page, 10 * page, page)
    assert hot.bump == page
    assert [alloc(hot, 3 * page), alloc(hot, 2 * page)] == [page, 4 * page]
    assert hot.bump == 6 * page
    assert (hot.live_size, hot.free_ranges()) == (5 * page, [Range(6 * page, 5 * page)])


@PAGES
def test_first_fit_takes_the_lowest_freed_range_that_is_long_enough(page: int) -> None:
    hot = HotPool(0, 20 * page, page)
    slabs = [(alloc(hot, pages * page), pages * page) for pages in (2, 1, 4, 1, 3, 1)]
    for base, length in slabs[::2]:
        hot.release(base, length)
    assert alloc(hot, 3 * page) == slabs[2][0]
    assert alloc(hot, 3 * page) == slabs[4][0]
    assert alloc(hot, 2 * page) == slabs[0][0]
    assert alloc(hot, 2 * page) == hot.bump - 2 * page == 12 * page
    hot.check()


@PAGES
def test_released_neighbours_merge_and_lower_the_bump_pointer(page: int) -> None:
    hot = HotPool(0, 8 * page, page)
    first, second, third = (alloc(hot, 2 * page) for _ in range(3))
    hot.release(first, 2 * page)
    hot.release(third, 2 * page)
    assert hot.bump == third
    assert hot.free_ranges() == [Range(0, 2 * page), Range(4 * page, 4 * page)]
    hot.release(second, 2 * page)
    assert hot.bump == hot.start
    assert hot.free_ranges() == [Range(0, 8 * page)]


@PAGES
def test_a_slab_is_released_in_pieces(page: int) -> None:
    hot = HotPool(0, 8 * page, page)
    base = alloc(hot, 6 * page)
    hot.release(base + 2 * page, 2 * page)
    hot.check()
    assert hot.live_ranges() == [Range(0, 2 * page), Range(4 * page, 2 * page)]
    hot.release(base + 4 * page, 2 * page)
    hot.release(base, 2 * page)
    assert hot.free_ranges() == [Range(0, 8 * page)]


@PAGES
def test_prefer_extends_a_slab_in_place(page: int) -> None:
    hot = HotPool(0, 12 * page, page)
    hole = alloc(hot, 2 * page)
    parent = alloc(hot, 2 * page)
    hot.release(hole, 2 * page)
    assert alloc(hot, 2 * page, prefer=parent + 2 * page) == parent + 2 * page
    assert hot.live_ranges() == [Range(parent, 4 * page)]


@PAGES
def test_prefer_that_is_taken_or_too_short_falls_back_to_first_fit(page: int) -> None:
    hot = HotPool(0, 8 * page, page)
    hole, parent, other = (alloc(hot, 2 * page) for _ in range(3))
    hot.release(hole, 2 * page)
    assert alloc(hot, page, prefer=parent + 2 * page) == hole
    assert alloc(hot, page, prefer=hot.end) == hole + page
    assert hot.alloc(3 * page, prefer=other + 2 * page) is None
    hot.check()


def test_an_empty_pool_serves_nothing() -> None:
    hot = HotPool(16, 0, 16)
    assert hot.alloc(16) is None
    assert hot.donate(16) == []
    assert hot.free_ranges() == []
    hot.check()


# Failure kind 11: freed twice


@PAGES
def test_a_second_release_is_refused_and_changes_nothing(page: int) -> None:
    hot = HotPool(0, 6 * page, page)
    base = alloc(hot, 2 * page)
    alloc(hot, 2 * page)
    hot.release(base, 2 * page)
    before = (hot.free_ranges(), hot.live_ranges())
    for length in (page, 2 * page, 4 * page):
        with pytest.raises(PoolError, match="not all live"):
            hot.release(base, length)
    assert (hot.free_ranges(), hot.live_ranges()) == before
    hot.check()


@PAGES
def test_slots_never_allocated_or_donated_cannot_be_released(page: int) -> None:
    hot = HotPool(0, 6 * page, page)
    alloc(hot, page)
    (loan,) = hot.donate(page)
    with pytest.raises(PoolError, match="not all live"):
        hot.release(loan.base, loan.length)
    with pytest.raises(PoolError, match="not all live"):
        hot.release(2 * page, page)


@PAGES
def test_a_release_outside_the_pool_is_refused(page: int) -> None:
    hot = HotPool(2 * page, 4 * page, page)
    alloc(hot, 4 * page)
    for base, length in ((0, page), (page, 2 * page), (5 * page, 2 * page), (6 * page, page)):
        with pytest.raises(PoolError, match="outside the HOT pool"):
            hot.release(base, length)
    assert hot.live_size == hot.size
    assert hot.bump == hot.end


# Failure kind 13: page - 1 and page + 1


@pytest.mark.parametrize("page", [4, 16])
@pytest.mark.parametrize("off", [-1, 1])
def test_lengths_and_bases_off_by_one_are_refused(page: int, off: int) -> None:
    hot = HotPool(page, 8 * page, page)
    base = alloc(hot, 4 * page)
    calls: tuple[Callable[[], object], ...] = (
        lambda: hot.alloc(page + off),
        lambda: hot.alloc(page, prefer=5 * page + off),
        lambda: hot.release(base, page + off),
        lambda: hot.release(base + page + off, page),
    )
    for call in calls:
        with pytest.raises(PoolError, match="whole pages"):
            call()
    assert hot.live_ranges() == [Range(base, 4 * page)]


@PAGES
@pytest.mark.parametrize("length", [0, -16])
def test_empty_and_negative_lengths_are_refused(page: int, length: int) -> None:
    hot = HotPool(0, 8 * page, page)
    alloc(hot, 4 * page)
    with pytest.raises(PoolError, match="whole pages"):
        hot.alloc(length)
    with pytest.raises(PoolError, match="whole pages"):
        hot.release(0, length)
    with pytest.raises(PoolError, match="0 or more"):
        hot.donate(-1)


@pytest.mark.parametrize(("asked", "pages"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (99, 4)])
def test_a_donation_is_rounded_up_to_pages(asked: int, pages: int) -> None:
    hot, cold, _ = pools(page=16, hot_pages=4, cold_pages=1)
    assert cold.borrow(hot, asked) == 16 * pages
    check(hot, cold, [], 0)


@pytest.mark.parametrize(("start", "size", "page"), [(1, 32, 16), (16, 33, 16), (16, 31, 16)])
def test_a_hot_pool_of_broken_pages_is_refused(start: int, size: int, page: int) -> None:
    with pytest.raises(PoolError, match="whole pages of 16"):
        HotPool(start, size, page)


def test_impossible_pools_are_refused() -> None:
    with pytest.raises(PoolError, match="whole pages"):
        HotPool(0, -1)
    with pytest.raises(PoolError, match="whole pages"):
        HotPool(-1, 4)
    with pytest.raises(PoolError, match="page size 0"):
        HotPool(0, 4, 0)
    for capacity, page in ((-1, 1), (17, 16), (16, 0)):
        with pytest.raises(PoolError, match="COLD capacity"):
            ColdPool(SetAllocator(0, 0), capacity, page)
    with pytest.raises(PoolError, match="pages of 4 slots and COLD of 1"):
        ColdPool(SetAllocator(8, 8), 8, 1).borrow(HotPool(0, 8, 4), 4)


# Failure kind 18: HOT too small, fragmented, donated and wanted back


@PAGES
def test_a_prefix_longer_than_hot_gets_no_slab(page: int) -> None:
    hot = HotPool(0, 4 * page, page)
    assert hot.alloc(5 * page) is None
    assert hot.free_size == hot.size
    assert alloc(hot, 4 * page) == 0
    assert hot.alloc(page) is None


@PAGES
def test_fragmented_hot_refuses_what_its_free_total_would_hold(page: int) -> None:
    hot = HotPool(0, 8 * page, page)
    slabs = [alloc(hot, page) for _ in range(8)]
    for base in slabs[::2]:
        hot.release(base, page)
    assert hot.free_size == 4 * page
    assert hot.alloc(2 * page) is None
    hot.release(slabs[3], page)
    assert alloc(hot, 3 * page) == slabs[2]


@PAGES
def test_donation_comes_from_the_top_and_keeps_the_low_end_whole(page: int) -> None:
    hot, cold, allocator = pools(page, hot_pages=8, cold_pages=2)
    assert cold.borrow(hot, page) == page
    assert cold.borrow(hot, 2 * page) == 2 * page
    top = hot.end
    assert hot.donated_ranges() == [Range(top - 3 * page, 2 * page), Range(top - page, page)]
    assert (cold.size, cold.free_size, cold.donated_size) == (5 * page, 5 * page, 3 * page)
    assert allocator.holds_free(Range(top - 3 * page, 3 * page))
    assert alloc(hot, 5 * page) == hot.start
    check(hot, cold, [Range(hot.start, 5 * page)], 0)


@PAGES
def test_a_donation_gathers_pieces_and_gives_less_when_less_is_free(page: int) -> None:
    hot, cold, _ = pools(page, hot_pages=6, cold_pages=1)
    slabs = [alloc(hot, page) for _ in range(6)]
    for base in (slabs[0], slabs[2], slabs[5]):
        hot.release(base, page)
    assert hot.donate(2 * page) == [Range(slabs[5], page), Range(slabs[2], page)]
    assert hot.donate(4 * page) == [Range(slabs[0], page)]
    assert cold.borrow(hot, page) == 0
    assert (hot.free_size, hot.donated_size) == (0, 3 * page)
    hot.check()


@PAGES
def test_a_loan_comes_back_only_when_all_of_it_is_free(page: int) -> None:
    hot, cold, allocator = pools(page, hot_pages=8, cold_pages=0)
    cold.borrow(hot, 2 * page)
    cold.borrow(hot, 4 * page)
    in_use = {hot.end - 3 * page}
    allocator.free -= in_use
    assert hot.alloc(4 * page) is None
    assert cold.return_whole(hot) == 2 * page
    assert hot.donated_ranges() == [Range(hot.end - 6 * page, 4 * page)]
    check(hot, cold, [], len(in_use))
    allocator.free |= in_use
    assert cold.return_whole(hot) == 4 * page
    assert hot.free_ranges() == [Range(hot.start, 8 * page)]
    assert (cold.size, allocator.free) == (0, set())
    assert alloc(hot, 8 * page) == hot.start


@PAGES
def test_donated_slots_are_not_given_to_a_slab(page: int) -> None:
    hot, cold, _ = pools(page, hot_pages=4, cold_pages=0)
    slab = alloc(hot, 2 * page)
    cold.borrow(hot, 2 * page)
    assert hot.alloc(page) is None
    assert hot.alloc(page, prefer=slab + 2 * page) is None
    assert cold.return_whole(hot) == 2 * page
    assert alloc(hot, page, prefer=slab + 2 * page) == slab + 2 * page


# The accounting check, and failure kind 12: counted twice, available above total


@PAGES
def test_check_accepts_slabs_split_and_in_any_order(page: int) -> None:
    hot, cold, allocator = pools(page, hot_pages=8, cold_pages=3)
    base = alloc(hot, 5 * page)
    cold.borrow(hot, page)
    allocator.free -= set(range(hot.end, hot.end + page))
    check(hot, cold, [Range(base + 2 * page, 3 * page), Range(base, 2 * page)], page)


@PAGES
def test_check_finds_cold_slots_counted_twice_or_lost(page: int) -> None:
    hot, cold, allocator = pools(page, hot_pages=2, cold_pages=4)
    for wrong in (page, -page):
        with pytest.raises(PoolError, match="COLD accounting"):
            check(hot, cold, [], wrong)
    allocator.free |= set(range(1000, 1000 + page))
    assert cold.live_size == -page
    with pytest.raises(PoolError, match="COLD accounting"):
        check(hot, cold, [], 0)
    with pytest.raises(PoolError, match="COLD accounting"):
        check(hot, cold, [], cold.live_size)


@PAGES
def test_check_finds_slabs_that_differ_from_hots_live_ranges(page: int) -> None:
    hot, cold, _ = pools(page, hot_pages=8, cold_pages=1)
    base = alloc(hot, 4 * page)
    slab = Range(base, 4 * page)
    check(hot, cold, [slab], 0)
    near, far = Range(base + 4 * page, page), Range(base + 6 * page, page)
    for differing in ([], [Range(base, 3 * page)], [slab, near], [slab, far]):
        with pytest.raises(PoolError, match="not HOT's live ranges"):
            check(hot, cold, differing, 0)
    bad = (
        [slab, slab],
        [slab, Range(base, 0)],
        [Range(0, page), slab],
        [slab, Range(hot.end, page)],
    )
    for slabs in bad:
        with pytest.raises(PoolError, match="empty, overlaps another or is outside"):
            check(hot, cold, slabs, 0)


def test_check_finds_a_loan_made_past_cold() -> None:
    hot, cold, _ = pools(page=1, hot_pages=4, cold_pages=1)
    hot.donate(2)
    with pytest.raises(PoolError, match="has lent 2 slots and COLD has borrowed 0"):
        check(hot, cold, [], 0)


def test_check_finds_a_broken_hot_pool() -> None:
    def broken() -> HotPool:
        hot = HotPool(0, 64, 16)
        hot.alloc(32)
        return hot

    lost = broken()
    lost._free.remove(Range(32, 16))
    with pytest.raises(PoolError, match="accounting"):
        lost.check()
    twice = broken()
    twice._live.add(Range(32, 16))
    with pytest.raises(PoolError, match="accounting"):
        twice.check()
    moved = broken()
    moved._free.remove(Range(48, 16))
    moved._free.add(Range(64, 16))
    with pytest.raises(PoolError, match="broken at slot 48"):
        moved.check()
    cut = broken()
    cut._live.remove(Range(24, 8))
    cut._free.add(Range(24, 8))
    with pytest.raises(PoolError, match=r"slot 0: the next range is \[0, 24\)"):
        cut.check()
    apart = broken()
    apart._live._bases[:], apart._live._ends[:] = [0, 16], [16, 32]
    with pytest.raises(PoolError, match="touch but are apart"):
        apart.check()
    short = broken()
    short._donated_size = 16
    with pytest.raises(PoolError, match="stated as"):
        short.check()


def test_errors_are_one_line() -> None:
    with pytest.raises(PoolError) as caught:
        HotPool(0, 64, 16).release(0, 16)
    assert str(caught.value) == (
        "slots [0, 16) are not all live in HOT (released twice, donated or never allocated): "
        "release each slab once"
    )


# Sizes from f_p


@pytest.mark.parametrize(
    ("fraction", "page", "slots"),
    [
        (0.05, 1, 7420),
        (0.2, 1, 29680),
        (0.3, 1, 44520),
        (0.2, 16, 29680),
        (0.05, 16, 7408),
        (0, 16, 0),
    ],
)
def test_hot_size_is_the_fraction_in_whole_pages(fraction: float, page: int, slots: int) -> None:
    # 148,400 slots are the paper's budget: B.12 gives 7,420 at f_p = 0.05.
    assert hot_size(148_400, fraction, page) == slots


def test_hot_size_is_not_one_short_by_binary_fractions() -> None:
    assert hot_size(100, 0.29) == 29


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_hot_size_refuses_a_fraction_that_leaves_no_cold(fraction: float) -> None:
    with pytest.raises(PoolError, match="0 <= f_p < 1"):
        hot_size(1000, fraction)
