"""Triton's interpreter in a process that `test_interpreted.py` started with TRITON_INTERPRET=1.

Triton decides at import whether it interprets, so a process either does or does not.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED or not torch.cuda.is_available() else "cuda")

interpreted_only = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted.py runs these")
interpreted_or_gpu = pytest.mark.gpu if DEVICE.type == "cuda" else interpreted_only


def _allow_new_numpy(interpreter: Any) -> None:
    """Let the bounds of a kernel's loops be values that the kernel loaded.

    NumPy 2.4 no longer turns arrays of one into integers, as Triton 3.6 expects.
    """
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def _patch_modules_once(interpreter: Any) -> None:
    """Look for what to interpret once a module, not at each call of a function in a kernel.

    A launch looks each time and puts back what it found; what a call finds stays as it is.
    """
    found: set[str] = set()

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function.fn.__module__ not in found:
            interpreter._patch_lang(function.fn)
            found.add(function.fn.__module__)
        return function.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


if INTERPRETED:
    from triton.runtime import interpreter

    _allow_new_numpy(interpreter)
    _patch_modules_once(interpreter)
