"""The comparison with the reference has teeth: planted faults must exceed its tolerance."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from granikv.attention import Partial, Segment, StepInputs, lse_natural_to_base2
from granikv.attention.cascade import CascadeBackend
from granikv.attention.numerics import attend_batch
from tests.granikv.attention_cases import Case, Shared, assert_matches_reference, build

SHARED = ("cascade", "dense", "contiguous_unshared")
LAYOUT = ([140, 133, 150, 129], [Shared((0, 1, 2, 3), 0, 128)])


def _with_segment(case: Case, segment: Segment) -> Case:
    step = StepInputs(case.step.page_table, case.step.seq_lens, (segment,))
    return Case(case.q, case.k_cache, case.v_cache, step, case.scale)


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("name", SHARED)
def test_a_slab_off_by_one_slot(name: str, shift: int) -> None:
    case = build(*LAYOUT)
    # Live neighbours instead of poison, so that the fault shows in the values alone.
    case.k_cache.nan_to_num_(0.1)
    case.v_cache.nan_to_num_(0.1)
    (s,) = case.step.segments
    assert s.base is not None
    assert_matches_reference(case, name)
    with pytest.raises(AssertionError):
        assert_matches_reference(
            _with_segment(case, Segment(s.base + shift, s.p0, s.length, s.rows)), name
        )


@pytest.mark.parametrize("name", SHARED)
def test_a_segment_one_token_short_at_its_start(name: str) -> None:
    case = build(*LAYOUT)
    (s,) = case.step.segments
    assert s.base is not None
    short = Segment(s.base + 1, s.p0, s.length - 1, s.rows)
    with pytest.raises(AssertionError):
        assert_matches_reference(_with_segment(case, short), name)


@pytest.mark.parametrize("name", SHARED)
def test_poison_inside_a_slab_shows(name: str) -> None:
    case = build(*LAYOUT)
    assert case.step.segments[0].base is not None
    case.v_cache[case.step.segments[0].base + 5] = torch.nan
    assert case.decode(name).isnan().all()


def test_a_wrong_lse_base_in_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attend_batch

    def base2(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        out, lse = right(q, k, v, scale)
        return out, lse_natural_to_base2(lse)

    case = build(*LAYOUT)
    assert_matches_reference(case, "dense")
    monkeypatch.setattr("granikv.attention.dense.attend_batch", base2)
    with pytest.raises(AssertionError):
        assert_matches_reference(case, "dense")


def test_a_wrong_lse_base_in_cascade(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CascadeBackend.prefix

    def base2(self: CascadeBackend, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
        part = right(self, q, k, v, scale)
        return Partial(part.out, lse_natural_to_base2(part.lse))

    monkeypatch.setattr(CascadeBackend, "prefix", base2)
    with pytest.raises(AssertionError):
        assert_matches_reference(build(*LAYOUT), "cascade")
