"""Streams: seeded, named and stable (failure kind 25)."""

from __future__ import annotations

import itertools

import numpy as np

from workloads.streams import Stream, StreamName


def test_golden() -> None:
    # Pins numpy's PCG64 and SeedSequence, which every hash rests on.
    assert Stream(42, StreamName.LENGTHS).below(1000, 6).tolist() == [111, 750, 511, 269, 989, 475]
    assert Stream(42, StreamName.CONTENTS, 1, 7).below(128_000, 4).tolist() == [
        82980,
        72034,
        93520,
        117157,
    ]


def test_no_two_names_seeds_or_keys_share_a_stream() -> None:
    streams = [Stream(seed, name) for seed in (42, 43) for name in StreamName]
    streams += [Stream(42, StreamName.CONTENTS, 1, index) for index in range(50)]
    drawn = [tuple(stream.below(2**62, 4).tolist()) for stream in streams]
    assert len(set(drawn)) == len(streams)
    for one, other in itertools.combinations(drawn, 2):
        assert not set(one) & set(other)


def test_ranges() -> None:
    stream = Stream(1, StreamName.ARRIVALS)
    below = stream.below(7, 10_000)
    assert sorted(set(below.tolist())) == list(range(7))
    assert np.bincount(below).min() > 1250
    unit = stream.unit(10_000)
    assert 0 <= unit.min() < 0.01
    assert 0.99 < unit.max() < 1
    assert sorted(stream.permutation(500).tolist()) == list(range(500))
