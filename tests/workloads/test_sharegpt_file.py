"""A user's own ShareGPT file: verified, filtered, used, and its text kept nowhere."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workloads.configs import small
from workloads import Workload, WorkloadError, build, conversations
from workloads.conversations import FileIdentity, Turn, sha256_of, user_turns, verify

WORDS = [f"wrd{number}" for number in range(400)]


def turn(role: str, first_word: int, n: int) -> dict[str, str]:
    return {"from": role, "value": " ".join(WORDS[first_word : first_word + n])}


# Human turns of 5, 20, 30, 399 and 16 words; the first and the third open a conversation.
CONVERSATIONS = [
    {"id": "a", "conversations": [turn("human", 0, 5), turn("gpt", 5, 50), turn("human", 100, 20)]},
    {"id": "b", "conversations": []},
    {"id": "c", "conversations": [turn("human", 200, 30), turn("human", 0, 399)]},
    {"id": "d", "conversations": [turn("gpt", 50, 40), turn("human", 300, 16)]},
    {"id": "e", "conversations": [turn("system", 0, 40), turn("user", 0, 40)]},
]


def tokenize(text: str) -> list[int]:
    return [WORDS.index(word) + 10 for word in text.split()]


def identity_of(path: Path) -> FileIdentity:
    return FileIdentity(path.stat().st_size, sha256_of(path))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small made-up file, with the check set to it."""
    path = tmp_path / "split.json"
    path.write_text(json.dumps(CONVERSATIONS, indent=2), encoding="utf-8")
    monkeypatch.setattr(conversations, "SHAREGPT_V3", identity_of(path))
    return path


def from_file(file: Path, **changes: Any) -> Workload:
    config = small("sharegpt", requests=3, shrink_turns_to=None, max_turn=200, **changes)
    return build({**config, "sharegpt_file": str(file)}, tokenize=tokenize)


def suffixes(workload: Workload) -> list[list[int]]:
    return [request.input_ids[request.prefix_len :].tolist() for request in workload.requests]


def test_the_paper_s_file() -> None:
    assert (
        FileIdentity(
            672_837_942, "35f0e213ce091ed9b9af2a1f0755e9d39f9ccec34ab281cd4ca60d70f6479ba4"
        )
        == conversations.SHAREGPT_V3
    )


def test_turns_are_filtered_and_their_own_ids_are_used(file: Path) -> None:
    built = from_file(file)
    expected = [[110 + i for i in range(20)], [210 + i for i in range(30)]]
    expected += [[310 + i for i in range(16)]]
    assert sorted(suffixes(built)) == expected
    assert built.requests[0].prefix_len == 32
    assert "user's ShareGPT-V3 file (all turns, verified by sha256)" in built.provenance
    assert built.parameters["sharegpt_sha256"] == sha256_of(file)


def test_first_turns(file: Path) -> None:
    config = small("sharegpt", requests=2, shrink_turns_to=None, min_turn=1, turns="first")
    two = build({**config, "sharegpt_file": str(file)}, tokenize=tokenize)
    assert sorted(len(suffix) for suffix in suffixes(two)) == [5, 30]


def test_seed_picks_the_order(file: Path) -> None:
    orders = {tuple(len(s) for s in suffixes(from_file(file, seed=seed))) for seed in range(12)}
    assert len(orders) > 2
    assert from_file(file, seed=1).sha256 == from_file(file, seed=1).sha256


def test_multi_prefix_and_negative_control_take_the_file_too(file: Path) -> None:
    changes = {"requests": 3, "shrink_turns_to": None, "max_turn": 200, "sharegpt_file": str(file)}
    several = build(small("multi_prefix", **changes), tokenize=tokenize)
    assert sorted(len(suffix) for suffix in suffixes(several)) == [16, 20, 30]
    control = build(small("negative_control", **changes), tokenize=tokenize)
    assert sorted(request.prompt_len for request in control.requests) == [48, 52, 62]
    assert not {tuple(s[-16:]) for s in suffixes(several)} & {
        tuple(s[-16:]) for s in suffixes(control)
    }


def test_text_is_kept_and_logged_nowhere(
    file: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    built = from_file(file)
    printed = "".join(capfd.readouterr())
    kept = pickle.dumps(built).decode("latin-1")
    for place in (repr(built), repr(built.requests), printed, caplog.text, kept):
        assert "wrd" not in place
    assert "input_ids" not in repr(built.requests)
    assert "wrd" not in repr(Turn("wrd1", first=True))


def test_an_error_quotes_no_text(file: Path) -> None:
    def failing(text: str) -> list[int]:
        raise ValueError(f"cannot take {text}")

    config = small("sharegpt", requests=3, shrink_turns_to=None, sharegpt_file=str(file))
    with pytest.raises(WorkloadError, match=r"failed on a turn .*\(ValueError\)") as refused:
        build(config, tokenize=failing)
    assert "wrd" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_wrong_size(file: Path) -> None:
    right = identity_of(file)
    file.write_text(file.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(WorkloadError, match=f"bytes, not the {right.size} of ShareGPT-V3"):
        from_file(file)


def test_wrong_hash_of_the_right_size(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace("wrd7", "wrd8", 1), encoding="utf-8")
    with pytest.raises(WorkloadError, match=r"has sha256 .*, not ShareGPT-V3's"):
        from_file(file)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="is not a file"):
        verify(tmp_path / "none.json", conversations.SHAREGPT_V3)


def test_too_few_turns(file: Path) -> None:
    config = small("sharegpt", requests=4, shrink_turns_to=None, max_turn=200)
    with pytest.raises(WorkloadError, match="has 3 turns of 16 to 200 tokens, but 4 are asked"):
        build({**config, "sharegpt_file": str(file)}, tokenize=tokenize)


def test_another_model_s_tokenizer(file: Path) -> None:
    with pytest.raises(WorkloadError, match=r"token id \d+, but vocab_size is 128"):
        from_file(file, vocab_size=128)


def test_file_without_tokenizer(file: Path) -> None:
    config = small("sharegpt", shrink_turns_to=None, sharegpt_file=str(file))
    with pytest.raises(WorkloadError, match="sharegpt_file needs tokenizer: a directory"):
        build(config)


def test_file_with_shrunk_lengths(file: Path) -> None:
    with pytest.raises(WorkloadError, match="leave out sharegpt_file"):
        build(small("sharegpt", sharegpt_file=str(file)), tokenize=tokenize)


def test_tokenizer_directory(file: Path, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: 10 + number for number, word in enumerate(WORDS)}
    model = tokenizers.models.WordLevel({**vocabulary, "?": 0}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 1)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = small("sharegpt", requests=3, shrink_turns_to=None, max_turn=200)
    built = build({**config, "sharegpt_file": str(file), "tokenizer": str(tmp_path)})
    assert built.sha256 == from_file(file).sha256
    assert built.parameters["tokenizer_sha256"] == sha256_of(tmp_path / "tokenizer.json")
    assert str(tmp_path) not in json.dumps(built.parameters)


def test_tokenizer_missing_or_broken(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("sharegpt", shrink_turns_to=None, sharegpt_file=str(file))
    with pytest.raises(WorkloadError, match=r"has no tokenizer\.json"):
        build({**config, "tokenizer": str(tmp_path)})
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(WorkloadError, match="is not a tokenizer"):
        build({**config, "tokenizer": str(tmp_path)})
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(WorkloadError, match="run pip install tokenizers"):
        build({**config, "tokenizer": str(tmp_path)})


def everything(path: Path, *, truncated: bool = False) -> list[tuple[str, bool]]:
    return [(found.text, found.first) for found in user_turns(path, truncated=truncated)]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
def test_reading_in_chunks(file: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    odd = [{"conversations": [{"from": "human", "value": 'é ] } "x", 語 [ { '}]}]
    file.write_text(json.dumps(CONVERSATIONS + odd, ensure_ascii=False), encoding="utf-8")
    monkeypatch.setattr(conversations, "_CHUNK_BYTES", chunk)
    found = everything(file)
    assert [first for _, first in found] == [True, False, True, False, False, True]
    assert [len(text.split()) for text, _ in found][:5] == [5, 20, 30, 399, 16]
    assert found[5][0] == 'é ] } "x", 語 [ { '


def test_a_broken_off_file(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    with pytest.raises(WorkloadError, match="is not one complete JSON array"):
        everything(file)
    assert len(everything(file, truncated=True)) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a JSON array"),
        (b"{}", "is not a JSON array"),
        (b"[\xff\xfe]", "is not UTF-8"),
        (b"[1, 2]", "in ShareGPT's form"),
        (b'[{"id": "a"}]', "in ShareGPT's form"),
        (b'[{"conversations": [{"value": "secret"}]}]', "in ShareGPT's form"),
        (b'[{"conversations": []}] more', "is not one complete JSON array"),
    ],
)
def test_not_conversations(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=message) as refused:
        everything(path)
    assert "secret" not in str(refused.value)


def test_ids_are_the_tokenizer_s_own(file: Path) -> None:
    built = from_file(file)
    for request in built.requests:
        assert request.input_ids.dtype == np.int32
        assert request.input_ids[-1] == request.input_ids[-2] + 1
