"""Rebuild data/sharegpt_turn_lengths.json.

From a table of token counts, or from conversations in ShareGPT's form and a tokenizer:
    python -m workloads.rebuild_lengths --counts COUNTS.csv[.gz] --output OUT.json
    python -m workloads.rebuild_lengths --conversations FILE.json --tokenizer DIR --output OUT.json
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from workloads import conversations
from workloads.lengths import MAXIMUM, MINIMUM
from workloads.request import WorkloadError


def lengths_of_counts(path: Path) -> Iterator[tuple[bool, int]]:
    """(first turn, tokens) of each user turn of a CSV with turn_index and llama3_user_tokens."""
    if not path.is_file():
        raise WorkloadError(f"{path} is not a file")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for row in csv.DictReader(file):
            try:
                yield row["turn_index"] == "0", int(row["llama3_user_tokens"])
            except (KeyError, TypeError, ValueError):
                raise WorkloadError(
                    f"{path} needs the columns turn_index and llama3_user_tokens, in integers"
                ) from None


def lengths_of_conversations(path: Path, tokenizer: Path) -> Iterator[tuple[bool, int]]:
    """(first turn, tokens) of each user turn; a file that breaks off is read up to there."""
    if not path.is_file():
        raise WorkloadError(f"{path} is not a file")
    tokenize, _ = conversations.load_tokenizer(tokenizer)
    for turn in conversations.user_turns(path, truncated=True):
        yield turn.first, len(tokenize(turn.text))


def histogram(lengths: Iterable[tuple[bool, int]]) -> dict[str, Any]:
    """Counts of 16, 17, … 512 tokens over all turns and over first turns."""
    counts = {name: [0] * (MAXIMUM - MINIMUM + 1) for name in ("all", "first")}
    for first, length in lengths:
        if MINIMUM <= length <= MAXIMUM:
            counts["all"][length - MINIMUM] += 1
            counts["first"][length - MINIMUM] += first
    return {"min_tokens": MINIMUM, "max_tokens": MAXIMUM, "turns": counts}


def write(histogram: dict[str, Any], output: Path) -> None:
    """Write the histogram as JSON, whole or not at all."""
    beside = output.with_name(output.name + ".part")
    beside.write_text(json.dumps(histogram) + "\n", encoding="utf-8")
    beside.replace(output)


def main(arguments: list[str] | None = None) -> None:
    """The command line above; ends with one line and status 1 on a bad input."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--counts", type=Path, help="token counts, one user turn a row")
    source.add_argument("--conversations", type=Path, help="a file in ShareGPT's form")
    parser.add_argument("--tokenizer", type=Path, help="a directory with tokenizer.json")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    if given.conversations and not given.tokenizer:
        parser.error("--conversations needs --tokenizer")
    try:
        lengths = (
            lengths_of_counts(given.counts)
            if given.counts
            else lengths_of_conversations(given.conversations, given.tokenizer)
        )
        write(histogram(lengths), given.output)
    except WorkloadError as error:
        sys.exit(f"rebuild_lengths: {error}")


if __name__ == "__main__":
    main()
