"""SGLang's own torch forms of the CUDA kernels that refuse float32, for exact comparison on a GPU.

Both sides of a comparison get them: what differs is attention and storage alone.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

_OPERATORS = (
    ("sglang.srt.layers.layernorm", "RMSNorm"),
    ("sglang.srt.layers.activation", "SiluAndMul"),
    ("sglang.srt.layers.rotary_embedding.base", "RotaryEmbedding"),
)


def apply() -> None:
    """Use them in this process if GRANIKV_TEST_NATIVE_OPS asks for it."""
    if os.environ.get("GRANIKV_TEST_NATIVE_OPS") != "1":
        return
    for module, name in _OPERATORS:
        operator: Any = getattr(import_module(module), name)
        operator.forward_cuda = operator.forward_native
