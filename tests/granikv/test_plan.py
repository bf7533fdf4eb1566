"""DecodePlan: what it says as tuples and as arrays, and what is left when segments are dropped."""

from granikv.plan import DecodePlan, PagedRange, Segment


def test_a_dropped_segment_is_read_by_its_rows() -> None:
    nested = (PagedRange(0, 8), PagedRange(72, None))
    ended = (PagedRange(8, None),)
    plan = DecodePlan(
        4,
        (Segment(50, 0, 8, (1, 2)), Segment(90, 8, 64, (0, 3)), Segment(400, 8, 0, (0,))),
        (nested, ended, ended, nested),
    )
    dropped = plan.without((1,))
    assert dropped.segments == (plan.segments[0], plan.segments[2])
    assert dropped.paged == ((PagedRange(0, None),), ended, ended, (PagedRange(0, None),))
    assert dropped.paged[0] is dropped.paged[3], "rows that shared their ranges still do"
    assert plan.without((0, 1, 2)) == DecodePlan(4, (), ((PagedRange(0, None),),) * 4)
    assert plan.without(()) == plan
    assert (plan.covered, dropped.covered) == (8 * 2 + 64 * 2, 16)


def test_a_plan_says_the_same_as_tuples_and_as_arrays() -> None:
    one, other = (PagedRange(0, 8), PagedRange(72, None)), (PagedRange(0, None),)
    segments = (Segment(None, 8, 64, (0, 3)), Segment(50, 72, 0, (1,)), Segment(90, 72, 5, ()))
    plan = DecodePlan(4, segments, (one, other, other, one))
    again = DecodePlan.of_arrays(plan.table, plan.layouts)
    assert again.segments == segments
    assert again == plan
    assert again != DecodePlan(4, segments[1:], plan.paged)
    assert again.paged[0] is again.paged[3], "rows that share their ranges hold one object"
    assert plan.table.kept().segments() == segments[:1]
