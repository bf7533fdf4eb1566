"""Named random streams: lengths, contents, classes, arrivals and prefixes never share one.

One generator for two purposes ties them together: change the number of requests and the arrivals
move. Only PCG64's raw output and SeedSequence are used, because numpy keeps those two the same
from version to version and does not keep Generator's methods the same (NEP 19).
"""

from __future__ import annotations

from enum import IntEnum, unique

import numpy as np
from numpy.typing import NDArray


@unique
class StreamName(IntEnum):
    """What a stream is for. The numbers are part of every hash: never change them."""

    LENGTHS = 1
    CONTENTS = 2
    CLASSES = 3
    ARRIVALS = 4
    PREFIXES = 5
    THINK_TIMES = 6
    BLOCKS = 7
    DIALOGUES = 8


class Stream:
    """The stream of one name (and sub-key, such as a request's index) under one seed."""

    def __init__(self, seed: int, name: StreamName, *key: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(name), *key)))

    def _raw(self, n: int) -> NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(n), dtype=np.uint64)

    def below(self, bound: int, n: int) -> NDArray[np.int64]:
        """n integers in [0, bound), shape [n]; the modulo's bias is below bound / 2**64."""
        return (self._raw(n) % np.uint64(bound)).astype(np.int64)

    def unit(self, n: int) -> NDArray[np.float64]:
        """n floats in [0, 1) with 53 random bits, shape [n]."""
        return (self._raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def permutation(self, n: int) -> NDArray[np.int64]:
        """A random order of 0 … n − 1, shape [n]."""
        return np.argsort(self._raw(n), kind="stable").astype(np.int64)
