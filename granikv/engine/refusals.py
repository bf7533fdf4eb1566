"""What GraniKV does not serve: each refused at start-up in one clear line, none silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

SGLANG_VERSION = "0.5.17"
KV_TYPES = ("auto", "bf16", "bfloat16", "float16", "fp16", "half")


class Refusal(NamedTuple):
    """A choice of the user's, or a trait of the model's, that cannot be served."""

    applies: Callable[[Any], bool]
    message: str


def _set(name: str) -> Callable[[Any], bool]:
    return lambda subject: bool(getattr(subject, name, None))


def _above_one(name: str) -> Callable[[Any], bool]:
    return lambda subject: int(getattr(subject, name, 1) or 1) > 1


def _other_than(name: str, usual: str) -> Callable[[Any], bool]:
    return lambda subject: getattr(subject, name, usual) not in (None, usual)


def _other_kv_type(args: Any) -> bool:
    return getattr(args, "kv_cache_dtype", "auto") not in KV_TYPES


def _other_eviction(args: Any) -> bool:
    return getattr(args, "radix_eviction_policy", "lru") not in (None, "lru")


def _float32_on_gpu(args: Any) -> bool:
    on_gpu = str(getattr(args, "device", None) or "cuda") == "cuda"
    is_float32 = getattr(args, "dtype", "auto") in ("float", "float32")
    return on_gpu and is_float32 and getattr(args, "attention_backend", None) != "triton"


ENGINE_REFUSALS = (
    Refusal(
        _set("speculative_algorithm"), "speculative decoding; leave --speculative-algorithm out"
    ),
    Refusal(_set("enable_hierarchical_cache"), "HiCache; leave --enable-hierarchical-cache out"),
    Refusal(_set("enable_lmcache"), "LMCache; leave --enable-lmcache out"),
    Refusal(_set("disable_radix_cache"), "a disabled radix cache; leave --disable-radix-cache out"),
    Refusal(
        _other_than("disaggregation_mode", "null"),
        "disaggregated prefill and decode; leave --disaggregation-mode out",
    ),
    Refusal(_set("enable_lora"), "LoRA; leave --enable-lora out"),
    Refusal(_set("lora_paths"), "LoRA; leave --lora-paths out"),
    Refusal(_set("enable_dp_attention"), "DP attention; leave --enable-dp-attention out"),
    Refusal(_set("enable_two_batch_overlap"), "two-batch overlap; leave the flag out"),
    Refusal(_set("enable_pdmux"), "prefill-decode multiplexing; leave --enable-pdmux out"),
    Refusal(_set("enable_streaming_session"), "streaming sessions; leave the flag out"),
    Refusal(_set("enable_session_radix_cache"), "the session radix cache; leave the flag out"),
    Refusal(_set("enable_flexkv"), "FlexKV; leave --enable-flexkv out"),
    Refusal(_set("enable_hisparse"), "HiSparse; leave --enable-hisparse out"),
    Refusal(_set("enable_deterministic_inference"), "deterministic inference; leave the flag out"),
    Refusal(_set("rl_on_policy_target"), "on-policy RL; leave --rl-on-policy-target out"),
    Refusal(_other_eviction, "--radix-eviction-policy; use --granikv-eviction"),
    Refusal(_above_one("dp_size"), "data parallelism in one server; start one server a GPU"),
    Refusal(_above_one("pp_size"), "pipeline parallelism; use --tp-size"),
    Refusal(_above_one("dcp_size"), "decode context parallelism; use --tp-size"),
    Refusal(_above_one("attn_cp_size"), "context parallelism; use --tp-size"),
    Refusal(_set("dllm_algorithm"), "diffusion language models; leave --dllm-algorithm out"),
    Refusal(
        _other_than("kv_canary", "none"),
        "the KV canary, which knows no slabs; leave --kv-canary out",
    ),
    Refusal(_other_kv_type, f"this KV cache type; --kv-cache-dtype may be {', '.join(KV_TYPES)}"),
    Refusal(
        _float32_on_gpu,
        "float32 on a GPU beside this backend; use --dtype bfloat16, or --attention-backend triton",
    ),
)

_PINNED = "--granikv-admission pinned "
DECLARING_REFUSALS = (
    Refusal(
        _above_one("tokenizer_worker_num"),
        _PINNED + "with several tokenizer workers; leave --tokenizer-worker-num out",
    ),
    # The engine has set it for --grpc-mode too, an older name.
    Refusal(_set("smg_grpc_mode"), _PINNED + "over gRPC; leave --smg-grpc-mode, --grpc-mode out"),
    Refusal(
        lambda args: not getattr(args, "admin_api_key", None),
        _PINNED + "without --admin-api-key: no prefix could be declared, so none would get a slab",
    ),
)
"""Of the admission that makes slabs of declared prefixes alone."""


def _mla(model: Any) -> bool:
    return "MLA" in str(getattr(model, "attention_arch", ""))


def _hybrid(model: Any) -> bool:
    architectures = getattr(model.hf_config, "architectures", None) or [""]
    return bool(getattr(model, "is_hybrid_swa", False)) or "Mamba" in architectures[0]


def _softcap(model: Any) -> bool:
    return bool(getattr(model.hf_text_config, "attn_logit_softcapping", None))


def _sliding_window(model: Any) -> bool:
    window = getattr(model, "sliding_window_size", None) or 0
    used = getattr(model.hf_text_config, "use_sliding_window", True)
    return bool(window > 0 and used)


MODEL_REFUSALS = (
    Refusal(_mla, "models with multi-head latent attention"),
    Refusal(_sliding_window, "models with sliding-window attention"),
    Refusal(_hybrid, "hybrid models"),
    Refusal(_softcap, "models with soft-capped attention logits"),
    Refusal(_set("is_encoder_decoder"), "encoder-decoder models"),
)


def _unlike_plain_attention(layer: Any) -> str:
    """What a RadixAttention layer wants beyond plain causal attention, or the empty string."""
    if getattr(layer, "logit_cap", 0.0):
        return "soft-capped attention logits"
    if (getattr(layer, "sliding_window_size", None) or -1) > 0:
        return "sliding-window attention"
    if (getattr(layer, "xai_temperature_len", None) or -1) > 0:
        return "attention with a temperature that depends on length"
    if getattr(layer, "is_cross_attention", False):
        return "cross-attention"
    return ""


def refusal_of_layers(model: Any) -> str | None:
    """Why the attention layers of this loaded model cannot be served, or None."""
    for name, layer in model.named_modules():
        if type(layer).__name__ == "RadixAttention":
            wanted = _unlike_plain_attention(layer)
            if wanted:
                return f"GraniKV does not support models with {wanted} ({name})"
    return None


def refusal_of_pool(pool: Any) -> str | None:
    """Why this KV pool cannot be read, or None: it must be [slots, H_kv, d] in a float type."""
    buffers = [*getattr(pool, "k_buffer", []), *getattr(pool, "v_buffer", [])]
    if not buffers or any(b.dim() != 3 or b.stride(0) < b.stride(1) for b in buffers):
        return "GraniKV needs a KV pool of one [slots, heads, width] tensor a layer"
    wrong = {str(b.dtype) for b in buffers} - {"torch.bfloat16", "torch.float16", "torch.float32"}
    if wrong or getattr(pool, "store_dtype", buffers[0].dtype) != getattr(pool, "dtype", None):
        return "GraniKV does not support this KV cache type; use --kv-cache-dtype bfloat16"
    return None


def refusal_of_engine(server_args: Any) -> str | None:
    """Why these engine arguments cannot be served, or None."""
    return _first(ENGINE_REFUSALS, server_args)


def refusal_of_admission(admission: str, server_args: Any) -> str | None:
    """Why prefixes cannot be admitted so by this engine, or None.

    Declaring one goes over HTTP and needs the admin key, which SGLang checks in front of one
    tokenizer worker only.
    """
    if admission != "pinned":
        return None
    return _first(DECLARING_REFUSALS, server_args)


def refusal_of_model(model_config: Any) -> str | None:
    """Why this model cannot be served, or None."""
    return _first(MODEL_REFUSALS, model_config)


def refusal_of_version(version: str) -> str | None:
    """Why this SGLang cannot be extended, or None."""
    if version == SGLANG_VERSION:
        return None
    return f"GraniKV is made for SGLang {SGLANG_VERSION}; this is {version}"


def _first(refusals: tuple[Refusal, ...], subject: Any) -> str | None:
    for refusal in refusals:
        if refusal.applies(subject):
            return f"GraniKV does not support {refusal.message}"
    return None
