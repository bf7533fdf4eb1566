"""Writes a tiny Llama with real random weights, so that greedy outputs vary with the KV cache.

`python -m harness.models.tiny_llama OUT_DIR` makes the model that every CPU cell serves. Dummy
weights would not do: their greedy output collapses to a repeating pair of tokens whatever the cache
holds.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from harness.errors import BuildError

DTYPES = ("float32", "float16", "bfloat16")

# Gains over the variance-preserving 1/sqrt(fan_in). The attention path is amplified, so that the
# next token depends on far positions: an error in one cached slot then changes the greedy output.
QUERY_KEY_GAIN = 3.0
OUTPUT_GAIN = 4.5
OTHER_GAIN = 1.5


@dataclass(frozen=True)
class TinyLlama:
    """Shape of the model. Sizes are in elements, `max_positions` in tokens."""

    hidden: int = 128
    layers: int = 2
    q_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    intermediate: int = 256
    vocab: int = 512
    max_positions: int = 16384
    dtype: str = "float32"
    seed: int = 0

    def validate(self) -> None:
        """Raise BuildError for a shape that no Llama can have."""
        sizes = {k: v for k, v in asdict(self).items() if k not in ("dtype", "seed")}
        small = [name for name, value in sizes.items() if value < 1]
        if small:
            raise BuildError(f"tiny model: {', '.join(small)} must be at least 1")
        if self.q_heads % self.kv_heads:
            raise BuildError(
                f"tiny model: {self.q_heads} query heads do not divide by {self.kv_heads} KV heads"
            )
        if self.head_dim % 2:
            raise BuildError(f"tiny model: head_dim {self.head_dim} must be even (rotary pairs)")
        if self.dtype not in DTYPES:
            raise BuildError(f"tiny model: dtype {self.dtype!r} is not one of {', '.join(DTYPES)}")


def config_json(shape: TinyLlama) -> dict[str, Any]:
    """The Hugging Face `config.json` of this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.max_positions,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.q_heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": shape.dtype,
        "use_cache": True,
        "vocab_size": shape.vocab,
    }


def _matrices(shape: TinyLlama) -> Iterator[tuple[str, tuple[int, int], float]]:
    """Name, [out, in] and gain of every matrix, in a fixed order."""
    hidden, inner = shape.hidden, shape.intermediate
    q_width, kv_width = shape.q_heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "self_attn.q_proj.weight", (q_width, hidden), QUERY_KEY_GAIN
        yield prefix + "self_attn.k_proj.weight", (kv_width, hidden), QUERY_KEY_GAIN
        yield prefix + "self_attn.v_proj.weight", (kv_width, hidden), OTHER_GAIN
        yield prefix + "self_attn.o_proj.weight", (hidden, q_width), OUTPUT_GAIN
        yield prefix + "mlp.gate_proj.weight", (inner, hidden), OTHER_GAIN
        yield prefix + "mlp.up_proj.weight", (inner, hidden), OTHER_GAIN
        yield prefix + "mlp.down_proj.weight", (hidden, inner), OTHER_GAIN
    yield "lm_head.weight", (shape.vocab, hidden), OTHER_GAIN


def _generator(seed: int, name: str) -> np.random.Generator:
    """One generator a tensor, so that a tensor's values do not depend on the others' sizes."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))


def weights(shape: TinyLlama) -> dict[str, npt.NDArray[np.float32]]:
    """Every tensor of the model in float32, [out, in] as Hugging Face stores them."""
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for name, size, gain in _matrices(shape):
        values = _generator(shape.seed, name).standard_normal(size) * gain / np.sqrt(size[1])
        tensors[name] = values.astype(np.float32)
    embed = "model.embed_tokens.weight"
    values = _generator(shape.seed, embed).standard_normal((shape.vocab, shape.hidden))
    tensors[embed] = values.astype(np.float32)
    ones = np.ones(shape.hidden, dtype=np.float32)
    tensors["model.norm.weight"] = ones.copy()
    for layer in range(shape.layers):
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = ones.copy()
        tensors[f"model.layers.{layer}.post_attention_layernorm.weight"] = ones.copy()
    return tensors


def tokenizer_json(vocab: int) -> dict[str, Any]:
    """A word-level tokenizer whose words are t0 ... t<vocab-1>, split at white space."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {f"t{i}": i for i in range(vocab)},
            "unk_token": "t0",
        },
    }


def tokenizer_config_json(max_positions: int) -> dict[str, Any]:
    """The `tokenizer_config.json` beside it."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "t0",
        "bos_token": "t1",
        "eos_token": "t2",
        "model_max_length": max_positions,
    }


def _dump(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def write(out_dir: Path, shape: TinyLlama | None = None) -> Path:
    """Write the model to `out_dir` and return it; one that already holds this shape is kept.

    Files appear all at once (written beside, then renamed). Raises BuildError for a bad shape and
    when `out_dir` holds something else.
    """
    shape = shape or TinyLlama()
    shape.validate()
    stamp = {"generator": "harness.models.tiny_llama", **asdict(shape)}
    marker = out_dir / "tiny_llama.json"
    if marker.is_file() and json.loads(marker.read_text(encoding="utf-8")) == stamp:
        return out_dir
    if out_dir.exists() and any(out_dir.iterdir()):
        raise BuildError(f"{out_dir} holds another model: remove it or choose another directory")
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=out_dir.parent))
    save_file(weights(shape), beside / "model.safetensors", metadata={"format": "pt"})
    _dump(beside / "config.json", config_json(shape))
    _dump(beside / "tokenizer.json", tokenizer_json(shape.vocab))
    _dump(beside / "tokenizer_config.json", tokenizer_config_json(shape.max_positions))
    _dump(beside / "tiny_llama.json", stamp)
    beside.chmod(0o755)
    (beside / "model.safetensors").chmod(0o644)
    beside.replace(out_dir)
    return out_dir


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: every field of the shape is an option."""
    parser = argparse.ArgumentParser("python -m harness.models.tiny_llama", description=__doc__)
    parser.add_argument("out_dir", type=Path)
    for name, value in asdict(TinyLlama()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    options = vars(parser.parse_args(arguments))
    try:
        print(write(options.pop("out_dir"), TinyLlama(**options)))
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
