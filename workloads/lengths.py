"""The shipped distribution of ShareGPT user-turn lengths: counts only, no text."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.request import WorkloadError
from workloads.streams import Stream

PATH = Path(__file__).parent / "data" / "sharegpt_turn_lengths.json"

MINIMUM, MAXIMUM = 16, 512
"""Tokens in a user turn after the paper's filter (§4.4)."""

TURNS = ("all", "first")
"""Which turns of a conversation count as "user turns", which the paper does not say."""


@lru_cache
def shipped(turns: str) -> NDArray[np.int64]:
    """How many turns have 16, 17, … 512 tokens, shape [497]; read-only."""
    histogram = json.loads(PATH.read_text(encoding="utf-8"))
    counts = np.asarray(histogram["turns"][turns], dtype=np.int64)
    counts.flags.writeable = False
    return counts


def draw(stream: Stream, n: int, turns: str, minimum: int, maximum: int) -> NDArray[np.int64]:
    """n lengths in [minimum, maximum], shape [n], drawn with replacement from the shipped counts.

    Raises WorkloadError if the range reaches outside the distribution's.
    """
    if not MINIMUM <= minimum <= maximum <= MAXIMUM:
        raise WorkloadError(
            f"min_turn {minimum} and max_turn {maximum} must lie in order within "
            f"{MINIMUM} and {MAXIMUM}, the range of the shipped distribution"
        )
    upper = np.cumsum(shipped(turns)[minimum - MINIMUM : maximum - MINIMUM + 1])
    if upper[-1] == 0:
        raise WorkloadError(
            f"no turn in the shipped distribution has {minimum} to {maximum} tokens"
        )
    picks = stream.below(int(upper[-1]), n)
    return minimum + np.searchsorted(upper, picks, side="right").astype(np.int64)


def shrink(
    lengths: NDArray[np.int64], window: tuple[int, int], target: tuple[int, int]
) -> NDArray[np.int64]:
    """Lengths from one range onto a smaller one, ends to ends, by a power law.

    For the scaled-down runs: dividing by 32 would make nearly every turn the same length, while
    this keeps the log-normal shape and the order of lengths.
    """
    if window == target:
        return lengths
    exponent = np.log(target[1] / target[0]) / np.log(window[1] / window[0])
    shrunk: NDArray[np.float64] = target[0] * (lengths / window[0]) ** exponent
    return np.rint(shrunk).astype(np.int64)
