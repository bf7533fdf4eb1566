"""The tiny model: real random weights, the same every time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from harness.errors import BuildError
from harness.models import resolve, tiny_llama
from harness.models.tiny_llama import TinyLlama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.write(tmp_path_factory.mktemp("models") / "tiny")


def test_every_tensor_has_the_shape_that_the_config_says(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    assert shapes["model.embed_tokens.weight"] == (512, 128)
    assert shapes["lm_head.weight"] == (512, 128)
    assert shapes["model.layers.1.self_attn.q_proj.weight"] == (128, 128)
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (64, 128)
    assert shapes["model.layers.0.self_attn.o_proj.weight"] == (128, 128)
    assert shapes["model.layers.0.mlp.down_proj.weight"] == (128, 256)
    assert len(shapes) == 3 + 2 * 9
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype("float32")}
    config = json.loads((model / "config.json").read_text())
    assert config["num_hidden_layers"] == 2
    assert config["num_attention_heads"] == 4
    assert config["num_key_value_heads"] == 2
    assert config["max_position_embeddings"] == 16384


def test_weights_are_random_and_differ_between_layers(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    first = tensors["model.layers.0.self_attn.q_proj.weight"]
    second = tensors["model.layers.1.self_attn.q_proj.weight"]
    assert not np.array_equal(first, second)
    assert first.std() == pytest.approx(3.0 / np.sqrt(128), rel=0.05)


def test_the_same_seed_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    def digest(path: Path) -> str:
        return hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()

    assert digest(tiny_llama.write(tmp_path / "again")) == digest(model)
    assert digest(tiny_llama.write(tmp_path / "other", TinyLlama(seed=1))) != digest(model)


def test_a_tensor_does_not_depend_on_the_others() -> None:
    small, tall = tiny_llama.weights(TinyLlama()), tiny_llama.weights(TinyLlama(layers=3))
    name = "lm_head.weight"
    assert np.array_equal(small[name], tall[name])


def test_the_tokenizer_reads_its_own_words(model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    assert tokenizer.encode("t3 t511 t0 unknown").ids == [3, 511, 0, 0]
    config = json.loads((model / "tokenizer_config.json").read_text())
    assert config["model_max_length"] == 16384


def test_a_model_that_is_there_is_kept(model: Path) -> None:
    before = (model / "model.safetensors").stat().st_mtime_ns
    assert tiny_llama.write(model) == model
    assert (model / "model.safetensors").stat().st_mtime_ns == before


def test_another_directorys_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BuildError, match="holds another model"):
        tiny_llama.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (TinyLlama(q_heads=3), "3 query heads do not divide by 2"),
        (TinyLlama(head_dim=33), "head_dim 33 must be even"),
        (TinyLlama(layers=0), "layers must be at least 1"),
        (TinyLlama(dtype="int4"), "dtype 'int4' is not one of"),
    ],
)
def test_an_impossible_shape_is_refused(tmp_path: Path, shape: TinyLlama, words: str) -> None:
    with pytest.raises(BuildError, match=words):
        tiny_llama.write(tmp_path / "model", shape)
    assert not (tmp_path / "model").exists()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gqa5"
    assert tiny_llama.main([str(out), "--q-heads", "10", "--kv-heads", "2", "--layers", "1"]) == 0
    assert load_file(out / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"].shape == (
        320,
        128,
    )
    assert tiny_llama.main([str(tmp_path / "bad"), "--q-heads", "3"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")


def test_published_shapes_are_whole() -> None:
    for path in resolve.SHAPES.glob("*.json"):
        shape = json.loads(path.read_text())
        assert shape["hidden_size"] % shape["num_attention_heads"] == 0
        assert shape["num_attention_heads"] % shape["num_key_value_heads"] == 0
        assert shape["torch_dtype"] == "bfloat16"


def test_a_damaged_shape_directory_is_repaired(tmp_path: Path) -> None:
    config = {"source": "shape", "tp": 1, "name": "llama31_8b", "path": None}
    made = resolve.prepare(config, tmp_path)
    (made.path / "config.json").write_text("{")
    again = resolve.prepare(config, tmp_path)
    assert again.fingerprint == made.fingerprint
    assert json.loads((again.path / "config.json").read_text())["hidden_size"] == 4096
