"""Generated token ids: prefixes and suffixes that share exactly what they are meant to share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from workloads.request import Tokens, WorkloadError, read_only
from workloads.streams import Stream, StreamName

FIRST_TOKEN = 3
"""Ids below this are BOS, EOS and padding in small models, and are never drawn."""

_OPENINGS, _BODY, _HEAD = 0, 1, 2


def prefixes(
    lengths: Sequence[int], vocab_size: int, seed: int, common_head: int = 0
) -> list[Tokens]:
    """One prefix of each length; they share their first `common_head` tokens and no more.

    Ids are uniform in [3, vocab_size). A prefix's content depends on the seed, its class and its
    length only, so adding a class changes no other. Raises WorkloadError when the vocabulary has
    fewer ids than there are prefixes.
    """
    head = _uniform(Stream(seed, StreamName.PREFIXES, _HEAD), common_head, vocab_size)
    opening_stream = Stream(seed, StreamName.PREFIXES, _OPENINGS)
    openings = _openings(opening_stream, len(lengths), vocab_size)
    made = []
    for index, length in enumerate(lengths):
        stream = Stream(seed, StreamName.PREFIXES, _BODY, index, length)
        body = _uniform(stream, length - common_head - 1, vocab_size)
        made.append(read_only(np.concatenate([head, openings[index : index + 1], body])))
    return made


def suffixes(lengths: Sequence[int], vocab_size: int, seed: int) -> list[Tokens]:
    """One suffix of each length (≥ 1), no two with the same first token.

    Distinct first tokens keep the shared part exact: with a small vocabulary, random suffixes
    would otherwise share a token or two more. A suffix's content depends on the seed and its index
    only. Raises WorkloadError when the vocabulary has fewer ids than there are suffixes.
    """
    opening_stream = Stream(seed, StreamName.CONTENTS, _OPENINGS)
    openings = _openings(opening_stream, len(lengths), vocab_size)
    made = []
    for index, length in enumerate(lengths):
        stream = Stream(seed, StreamName.CONTENTS, _BODY, index)
        body = _uniform(stream, length - 1, vocab_size)
        made.append(read_only(np.concatenate([openings[index : index + 1], body])))
    return made


def blocks(
    siblings: Mapping[int, int], length: int, vocab_size: int, seed: int
) -> dict[int, NDArray[np.int64]]:
    """The tokens of each block of a trace, `length` each, by the block's id.

    siblings: of each id, its number among the blocks that follow the same block. Blocks of
    different numbers differ in their first token, so that two prompts share whole blocks and
    nothing more. Raises WorkloadError when the vocabulary has fewer ids than there are siblings.
    """
    stream = Stream(seed, StreamName.BLOCKS)
    openings = _openings(stream, 1 + max(siblings.values(), default=0), vocab_size)
    made = {}
    for block, number in siblings.items():
        body = _uniform(Stream(seed, StreamName.BLOCKS, block), length - 1, vocab_size)
        made[block] = np.concatenate([openings[number : number + 1], body])
    return made


def messages(
    lengths: Sequence[Sequence[int]], vocab_size: int, seed: int
) -> list[list[NDArray[np.int64]]]:
    """The messages of each dialogue, of these lengths (≥ 1); no two dialogues open alike."""
    stream = Stream(seed, StreamName.DIALOGUES)
    openings = _openings(stream, len(lengths), vocab_size)
    made = []
    for dialogue, each in enumerate(lengths):
        parts = [
            _uniform(Stream(seed, StreamName.DIALOGUES, dialogue, place), length, vocab_size)
            for place, length in enumerate(each)
        ]
        parts[0][0] = openings[dialogue]
        made.append(parts)
    return made


def _uniform(stream: Stream, n: int, vocab_size: int) -> NDArray[np.int64]:
    return FIRST_TOKEN + stream.below(vocab_size - FIRST_TOKEN, n)


def _openings(stream: Stream, n: int, vocab_size: int) -> NDArray[np.int64]:
    usable = vocab_size - FIRST_TOKEN
    if n > usable:
        raise WorkloadError(
            f"vocab_size {vocab_size} leaves {usable} token ids, but {n} different first tokens "
            "are needed: use a larger vocabulary or fewer requests"
        )
    return FIRST_TOKEN + stream.permutation(usable)[:n]
