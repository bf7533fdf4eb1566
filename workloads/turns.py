"""User turns: real ones from a user's ShareGPT-V3 file, or generated ones of shipped lengths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workloads import contents, conversations, lengths
from workloads.conversations import Tokenize
from workloads.options import Common, Options
from workloads.request import Tokens, WorkloadError, read_only
from workloads.streams import Stream, StreamName


@dataclass(frozen=True)
class TurnOptions:
    """Which user turns to take.

    turns: "all" of a conversation or its "first". minimum, maximum: the filter, in tokens.
    shrink_to: the range that drawn lengths are mapped onto, for scaled-down runs, or None.
    sharegpt_file, tokenizer: the user's own file and the model directory that tokenises it.
    """

    turns: str
    minimum: int
    maximum: int
    shrink_to: tuple[int, int] | None
    sharegpt_file: Path | None
    tokenizer: Path | None

    @classmethod
    def read(cls, options: Options) -> TurnOptions:
        """Read from the configuration; the defaults are §4.4's filter over all turns."""
        shrink = options.integers("shrink_turns_to")
        if shrink is not None and (len(shrink) != 2 or shrink[0] > shrink[1]):
            raise WorkloadError(f"shrink_turns_to must be [smallest, largest], not {list(shrink)}")
        read = cls(
            turns=options.choice("turns", "all", lengths.TURNS),
            minimum=options.integer("min_turn", lengths.MINIMUM),
            maximum=options.integer("max_turn", lengths.MAXIMUM),
            shrink_to=None if shrink is None else (shrink[0], shrink[1]),
            sharegpt_file=options.path("sharegpt_file"),
            tokenizer=options.path("tokenizer"),
        )
        if read.minimum > read.maximum:
            raise WorkloadError(f"min_turn {read.minimum} is above max_turn {read.maximum}")
        if read.shrink_to is not None and read.minimum == read.maximum:
            raise WorkloadError("shrink_turns_to needs min_turn below max_turn")
        if read.shrink_to is not None and read.sharegpt_file is not None:
            raise WorkloadError("shrink_turns_to is for drawn lengths: leave out sharegpt_file")
        return read


@dataclass(frozen=True)
class UserTurns:
    """The turns' token ids, one int32 [length] a request, and one line on where they came from."""

    tokens: list[Tokens]
    provenance: str

    @property
    def lengths(self) -> list[int]:
        """Tokens in each turn."""
        return [int(turn.size) for turn in self.tokens]


def user_turns(
    options: Options, common: Common, read: TurnOptions, tokenize: Tokenize | None
) -> UserTurns:
    """One turn a request, from the user's file if there is one, else of the shipped lengths.

    Records in `options` what identifies the source. Raises WorkloadError if the file or the
    tokenizer is not right, or holds too few turns.
    """
    if read.sharegpt_file is None:
        return _drawn(common, read)
    verified = conversations.SHAREGPT_V3
    conversations.verify(read.sharegpt_file, verified)
    options.resolved["sharegpt_sha256"] = verified.sha256
    if tokenize is None:
        if read.tokenizer is None:
            raise WorkloadError("sharegpt_file needs tokenizer: a directory with tokenizer.json")
        tokenize, options.resolved["tokenizer_sha256"] = conversations.load_tokenizer(
            read.tokenizer
        )
    return _from_file(read.sharegpt_file, common, read, tokenize)


def _drawn(common: Common, read: TurnOptions) -> UserTurns:
    stream = Stream(common.seed, StreamName.LENGTHS)
    drawn = lengths.draw(stream, common.requests, read.turns, read.minimum, read.maximum)
    source = f"turn lengths drawn from the shipped ShareGPT distribution ({read.turns} turns)"
    if read.shrink_to is not None:
        drawn = lengths.shrink(drawn, (read.minimum, read.maximum), read.shrink_to)
        source += f" and shrunk to {read.shrink_to[0]}–{read.shrink_to[1]} tokens"
    tokens = contents.suffixes(drawn.tolist(), common.vocab_size, common.seed)
    return UserTurns(tokens, f"{source}; all token ids generated")


def _from_file(path: Path, common: Common, read: TurnOptions, tokenize: Tokenize) -> UserTurns:
    texts = [
        turn.text for turn in conversations.user_turns(path) if turn.first or read.turns == "all"
    ]
    order = Stream(common.seed, StreamName.LENGTHS).permutation(len(texts))
    tokens: list[Tokens] = []
    for place in order.tolist():
        if len(tokens) == common.requests:
            break
        ids = _tokenized(texts[place], tokenize)
        if read.minimum <= ids.size <= read.maximum:
            _check_vocabulary(ids, common.vocab_size)
            tokens.append(ids)
    if len(tokens) < common.requests:
        raise WorkloadError(
            f"sharegpt_file has {len(tokens)} turns of {read.minimum} to {read.maximum} tokens, "
            f"but {common.requests} are asked for"
        )
    return UserTurns(
        tokens,
        f"user turns of the user's ShareGPT-V3 file ({read.turns} turns, verified by sha256); "
        "prefix token ids generated",
    )


def _tokenized(text: str, tokenize: Tokenize) -> Tokens:
    try:
        return read_only(np.asarray(tokenize(text), dtype=np.int64))
    except Exception as error:  # whatever a tokenizer raises may quote the text
        raise WorkloadError(
            f"the tokenizer failed on a turn of sharegpt_file ({type(error).__name__})"
        ) from None


def _check_vocabulary(ids: Tokens, vocab_size: int) -> None:
    largest = int(ids.max())
    if largest >= vocab_size:
        raise WorkloadError(
            f"the tokenizer gives token id {largest}, but vocab_size is {vocab_size}: "
            "it is not this model's tokenizer"
        )
