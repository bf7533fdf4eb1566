"""Rebuilding the shipped length distribution."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from workloads import lengths
from workloads.rebuild_lengths import histogram, main

ROWS = [(0, 16), (2, 16), (0, 512), (1, 513), (0, 15), (10, 40)]
CSV = "conversation_id,turn_index,llama3_user_tokens\n" + "".join(
    f"c,{turn},{tokens}\n" for turn, tokens in ROWS
)


def check(output: Path) -> None:
    built = json.loads(output.read_text(encoding="utf-8"))
    counts = {name: dict(enumerate(values, 16)) for name, values in built["turns"].items()}
    assert {length: n for length, n in counts["all"].items() if n} == {16: 2, 40: 1, 512: 1}
    assert {length: n for length, n in counts["first"].items() if n} == {16: 1, 512: 1}
    assert (built["min_tokens"], built["max_tokens"]) == (16, 512)
    assert list(output.parent.glob("*.part")) == []


@pytest.mark.parametrize("name", ["counts.csv", "counts.csv.gz"])
def test_from_counts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(CSV.encode()) if name.endswith("gz") else CSV.encode())
    output = tmp_path / "out.json"
    main(["--counts", str(path), "--output", str(output)])
    check(output)


def test_from_conversations(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 3}, unk_token="a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    turns = [
        {"conversations": [{"from": "gpt", "value": "a"}] * turn
         + [{"from": "human", "value": "a " * tokens}]}
        for turn, tokens in ROWS
    ]  # fmt: skip
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(turns)[:-1] + ', {"conversations": [{"from', encoding="utf-8")
    output = tmp_path / "out.json"
    arguments = ["--conversations", str(path), "--tokenizer", str(tmp_path)]
    main([*arguments, "--output", str(output)])
    check(output)


def test_the_shipped_file_is_in_the_form_written_here() -> None:
    shipped = json.loads(lengths.PATH.read_text(encoding="utf-8"))
    again = histogram(
        (False, length)
        for length, n in enumerate(shipped["turns"]["all"], shipped["min_tokens"])
        for _ in range(n)
    )
    assert again["turns"]["all"] == shipped["turns"]["all"]
    assert set(shipped) == set(again)
    assert [len(counts) for counts in shipped["turns"].values()] == [497, 497]
    assert lengths.PATH.stat().st_size < 10_000


@pytest.mark.parametrize("content", ["turn_index\n0\n", "turn_index,llama3_user_tokens\n0,many\n"])
def test_bad_counts_write_nothing(tmp_path: Path, content: str) -> None:
    path, output = tmp_path / "counts.csv", tmp_path / "out.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit, match="needs the columns turn_index and llama3_user_tokens"):
        main(["--counts", str(path), "--output", str(output)])
    assert not output.exists()


def test_missing_inputs(tmp_path: Path) -> None:
    output = str(tmp_path / "out.json")
    with pytest.raises(SystemExit, match="is not a file"):
        main(["--counts", str(tmp_path / "none.csv"), "--output", output])
    with pytest.raises(SystemExit, match="is not a file"):
        main(["--conversations", str(tmp_path / "none"), "--tokenizer", "x", "--output", output])
    with pytest.raises(SystemExit, match="2"):
        main(["--conversations", "x", "--output", output])
