"""Each thing that GraniKV does not serve is refused, by its own line; what it serves is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from granikv.engine import pins, refusals

SERVED: dict[str, Any] = {"device": "cpu", "dtype": "float32", "disaggregation_mode": "null"}


def engine(**flags: Any) -> str | None:
    return refusals.refusal_of_engine(SimpleNamespace(**{**SERVED, **flags}))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"speculative_algorithm": "EAGLE"}, "speculative decoding"),
        ({"enable_hierarchical_cache": True}, "HiCache"),
        ({"enable_lmcache": True}, "LMCache"),
        ({"disable_radix_cache": True}, "disabled radix cache"),
        ({"disaggregation_mode": "prefill"}, "disaggregated"),
        ({"enable_lora": True}, "LoRA"),
        ({"enable_dp_attention": True}, "DP attention"),
        ({"enable_session_radix_cache": True}, "session radix cache"),
        ({"enable_flexkv": True}, "FlexKV"),
        ({"enable_deterministic_inference": True}, "deterministic"),
        ({"radix_eviction_policy": "lfu"}, "--granikv-eviction"),
        ({"dp_size": 2}, "data parallelism"),
        ({"pp_size": 2}, "pipeline parallelism"),
        ({"attn_cp_size": 2}, "context parallelism"),
        ({"dllm_algorithm": "LowConfidence"}, "diffusion language models"),
        ({"kv_canary": "raise"}, "KV canary"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "KV cache type"),
        ({"device": "cuda"}, "float32 on a GPU"),
    ],
)
def test_a_feature_of_the_engine_is_refused(flags: dict[str, Any], said: str) -> None:
    message = engine(**flags)
    assert message is not None
    assert said in message
    assert "\n" not in message


def test_what_is_served_is_not_refused() -> None:
    assert engine() is None
    assert engine(kv_cache_dtype="auto", radix_eviction_policy="lru", dp_size=1) is None
    assert engine(attn_cp_size=1, dllm_algorithm=None, kv_canary="none") is None
    assert engine(device="cuda", dtype="bfloat16") is None
    assert engine(device="cuda", attention_backend="triton") is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tokenizer_worker_num": 2}, "--tokenizer-worker-num"),
        ({"smg_grpc_mode": True}, "--smg-grpc-mode"),
        ({"admin_api_key": None}, "no prefix could be declared"),
    ],
)
def test_pinned_admission_is_refused_where_nothing_can_be_declared(
    flags: dict[str, Any], said: str
) -> None:
    usual = {"tokenizer_worker_num": 1, "admin_api_key": "key"}
    assert refusals.refusal_of_admission("pinned", SimpleNamespace(**usual)) is None
    args = SimpleNamespace(**{**usual, **flags})
    assert refusals.refusal_of_admission("eager", args) is None
    message = refusals.refusal_of_admission("pinned", args)
    assert message is not None
    assert said in message


def model(**traits: Any) -> SimpleNamespace:
    text = SimpleNamespace(**traits.pop("text", {}))
    config = SimpleNamespace(architectures=traits.pop("architectures", ["LlamaForCausalLM"]))
    return SimpleNamespace(hf_config=config, hf_text_config=text, **traits)


@pytest.mark.parametrize(
    ("traits", "said"),
    [
        ({"attention_arch": "AttentionArch.MLA"}, "latent attention"),
        ({"sliding_window_size": 4096}, "sliding-window"),
        ({"is_hybrid_swa": True}, "hybrid"),
        ({"text": {"attn_logit_softcapping": 50.0}}, "soft-capped"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
    ],
)
def test_a_model_is_refused_by_its_configuration(traits: dict[str, Any], said: str) -> None:
    message = refusals.refusal_of_model(model(**traits))
    assert message is not None
    assert said in message


def test_a_window_that_is_switched_off_is_served() -> None:
    qwen = model(sliding_window_size=4096, text={"use_sliding_window": False})
    assert refusals.refusal_of_model(qwen) is None


class RadixAttention(torch.nn.Module):
    """A layer as the engine names it."""

    def __init__(self, **traits: Any) -> None:
        super().__init__()
        for name, value in {"logit_cap": 0.0, "sliding_window_size": -1, **traits}.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("traits", "said"),
    [
        ({"logit_cap": 30.0}, "soft-capped"),
        ({"sliding_window_size": 128}, "sliding-window"),
        ({"xai_temperature_len": 1024}, "temperature"),
        ({"is_cross_attention": True}, "cross-attention"),
    ],
)
def test_a_model_is_refused_by_what_its_layers_do(traits: dict[str, Any], said: str) -> None:
    """What the configuration leaves to the engine's defaults shows in the layers."""
    layers = torch.nn.ModuleList([RadixAttention(), RadixAttention(**traits)])
    message = refusals.refusal_of_layers(layers)
    assert message is not None
    assert said in message
    assert refusals.refusal_of_layers(layers[:1]) is None


def pool(buffer: torch.Tensor, dtype: torch.dtype | None = None) -> SimpleNamespace:
    kind = buffer.dtype if dtype is None else dtype
    return SimpleNamespace(k_buffer=[buffer], v_buffer=[buffer], dtype=kind, store_dtype=kind)


def test_a_pool_is_refused_by_its_layout_and_type() -> None:
    plain = torch.zeros(32, 2, 8, dtype=torch.bfloat16)
    assert refusals.refusal_of_pool(pool(plain)) is None
    assert refusals.refusal_of_pool(pool(torch.zeros(4, 2, 8, 8))) is not None
    assert refusals.refusal_of_pool(pool(torch.zeros(2, 32, 8).transpose(0, 1))) is not None
    assert refusals.refusal_of_pool(pool(plain.to(torch.uint8))) is not None
    assert refusals.refusal_of_pool(SimpleNamespace()) is not None


def test_another_sglang_is_refused() -> None:
    assert refusals.refusal_of_version("0.5.17") is None
    assert "0.5.18" in str(refusals.refusal_of_version("0.5.18"))


class Book(pins.PinBook):
    """Remembers what was declared."""

    def __init__(self, secret: str) -> None:
        super().__init__(SimpleNamespace(config=SimpleNamespace(control_token=secret)))
        self.declared: list[int] = []

    def declare(self, number: int, tokens: Any, extra_key: str | None) -> None:
        self.declared.append(number)

    def arm(self) -> None:
        """Nothing to lock."""


def request(parameters: Any, tokens: list[int]) -> SimpleNamespace:
    sampling = SimpleNamespace(custom_params=parameters)
    return SimpleNamespace(sampling_params=sampling, origin_input_ids=tokens, extra_key=None)


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        "text",
        7,
        {},
        {"granikv_pin": "é"},
        {"granikv_pin": {"number": 1, "signature": "é"}},
        {"granikv_pin": {"number": "1", "signature": ""}},
        {"granikv_pin": {"number": 1, "signature": None}},
        {"granikv_pin": {"signature": "0" * 64}},
    ],
)
def test_nobody_else_can_declare_a_pin_or_end_the_scheduler(parameters: Any) -> None:
    book = Book("secret")
    book.declare_from(request(parameters, [1, 2]))
    assert book.declared == []


def test_a_declaration_holds_for_its_own_prompt_only() -> None:
    signed = {"granikv_pin": {"number": 3, "signature": pins.signature("secret", 3, [1, 2])}}
    book = Book("secret")
    book.declare_from(request(signed, [0]))
    assert book.declared == []
    book.declare_from(request(signed, [1, 2]))
    assert book.declared == [3]
    other = Book("")
    other.declare_from(request(signed, [1, 2]))
    assert other.declared == []
