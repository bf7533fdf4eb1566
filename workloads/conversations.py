"""A user's own ShareGPT-V3 file: verified, read as a stream, its text never kept or logged."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.request import WorkloadError

Tokenize = Callable[[str], list[int]]

_CHUNK_BYTES = 1 << 22
_SEPARATORS = " \t\r\n,"


@dataclass(frozen=True)
class FileIdentity:
    """What a file must be: its size in bytes and its sha256."""

    size: int
    sha256: str


SHAREGPT_V3 = FileIdentity(
    672_837_942, "35f0e213ce091ed9b9af2a1f0755e9d39f9ccec34ab281cd4ca60d70f6479ba4"
)
"""ShareGPT_V3_unfiltered_cleaned_split.json, the paper's data set (§4.4)."""


@dataclass(frozen=True)
class Turn:
    """A user turn. text stays out of repr(), and so out of logs and tracebacks."""

    text: str = field(repr=False)
    first: bool


def verify(path: Path, identity: FileIdentity) -> None:
    """Raises WorkloadError unless the file is there and is byte for byte the one expected."""
    if not path.is_file():
        raise WorkloadError(f"sharegpt_file {path} is not a file")
    size = path.stat().st_size
    if size != identity.size:
        raise WorkloadError(
            f"sharegpt_file {path} has {size} bytes, not the {identity.size} of ShareGPT-V3: "
            "download it again, or leave sharegpt_file out to draw from the shipped lengths"
        )
    found = sha256_of(path)
    if found != identity.sha256:
        raise WorkloadError(
            f"sharegpt_file {path} has sha256 {found}, not ShareGPT-V3's {identity.sha256}: "
            "download it again, or leave sharegpt_file out to draw from the shipped lengths"
        )


def sha256_of(path: Path) -> str:
    """A file's sha256, read in chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def user_turns(path: Path, *, truncated: bool = False) -> Iterator[Turn]:
    """The turns with `from == "human"`, in file order; `first` marks a conversation's turn 0.

    truncated: take a file that breaks off inside a conversation, up to its last whole one.
    Raises WorkloadError, which quotes nothing of the file, if it is not in ShareGPT's form.
    """
    for conversation in _array_items(path, truncated):
        try:
            for index, turn in enumerate(conversation["conversations"]):
                if turn["from"] == "human":
                    yield Turn(str(turn["value"]), first=index == 0)
        except (KeyError, TypeError):
            raise WorkloadError(f"{path} does not hold conversations in ShareGPT's form") from None


def _array_items(path: Path, truncated: bool) -> Iterator[Any]:
    """The items of one large JSON array, one at a time: whole, it would take several GB."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    text = ""
    with path.open("rb") as file:
        if file.read(1) != b"[":
            raise WorkloadError(f"{path} is not a JSON array")
        while chunk := file.read(_CHUNK_BYTES):
            try:
                text += utf8.decode(chunk)
            except UnicodeDecodeError:
                raise WorkloadError(f"{path} is not UTF-8 text") from None
            rest = 0
            for item, end in _whole_items(text):
                yield item
                rest = end
            text = text[rest:]
    if not truncated and text.strip() != "]":
        raise WorkloadError(f"{path} is not one complete JSON array")


def _whole_items(text: str) -> Iterator[tuple[Any, int]]:
    """Each JSON value that ends within the text, with where it ends."""
    decoder = json.JSONDecoder()
    position = 0
    while True:
        while position < len(text) and text[position] in _SEPARATORS:
            position += 1
        try:
            item, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            return
        yield item, position


def load_tokenizer(directory: Path) -> tuple[Tokenize, str]:
    """The tokenizer of a model directory and the sha256 of its tokenizer.json.

    No BOS or other special token is added. Raises WorkloadError if the package or file is missing.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise WorkloadError(f"tokenizer directory {directory} has no tokenizer.json")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise WorkloadError(
            "sharegpt_file needs the package tokenizers: run pip install tokenizers"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception for a file it cannot read
        raise WorkloadError(f"{path} is not a tokenizer: {error}".splitlines()[0]) from None

    def tokenize(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return tokenize, sha256_of(path)
