"""Generated tokens share exactly what they are meant to share."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from workloads import WorkloadError, contents
from workloads.request import Tokens


def shared(one: Tokens, other: Tokens) -> int:
    shortest = min(one.size, other.size)
    differ = np.nonzero(one[:shortest] != other[:shortest])[0]
    return int(differ[0]) if differ.size else shortest


@pytest.mark.parametrize("common_head", [0, 1, 5])
def test_prefixes_share_their_head_and_no_more(common_head: int) -> None:
    # 40 ids: without distinct first tokens, a dozen prefixes would collide.
    made = contents.prefixes([6, 16, 16, *range(7, 16)], 40, seed=3, common_head=common_head)
    assert [prefix.size for prefix in made] == [6, 16, 16, *range(7, 16)]
    for one, other in itertools.combinations(made, 2):
        assert shared(one, other) == common_head


def test_suffixes_share_nothing() -> None:
    made = contents.suffixes([1, 2, 3] * 10, 33, seed=3)
    assert [suffix.size for suffix in made] == [1, 2, 3] * 10
    assert len({int(suffix[0]) for suffix in made}) == 30


def test_ids_span_the_vocabulary_and_avoid_special_ones() -> None:
    ids = np.concatenate(contents.prefixes([2000, 2000], 64, seed=1))
    assert sorted(set(ids.tolist())) == list(range(contents.FIRST_TOKEN, 64))
    ids = np.concatenate(contents.suffixes([200] * 20, 64, seed=1))
    assert sorted(set(ids.tolist())) == list(range(contents.FIRST_TOKEN, 64))


def test_a_further_class_or_request_changes_no_other() -> None:
    few, more = (contents.prefixes([16] * k, 512, seed=1) for k in (4, 5))
    assert all(np.array_equal(one, other) for one, other in zip(few, more, strict=False))
    few, more = (contents.suffixes([9] * n, 512, seed=1) for n in (4, 5))
    assert all(np.array_equal(one, other) for one, other in zip(few, more, strict=False))


def test_prefixes_of_two_lengths_share_one_token_at_most() -> None:
    # A cache left over from one prefix length must not serve the next one's.
    (short,), (long,) = (contents.prefixes([length], 512, seed=1) for length in (64, 128))
    assert shared(short, long) <= 1


def test_vocabulary_too_small() -> None:
    assert len(contents.suffixes([1] * 7, 10, seed=1)) == 7
    with pytest.raises(WorkloadError, match="leaves 7 token ids, but 8 different first tokens"):
        contents.suffixes([1] * 8, 10, seed=1)
    with pytest.raises(WorkloadError, match="larger vocabulary"):
        contents.prefixes([4] * 8, 10, seed=1)
