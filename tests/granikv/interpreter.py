"""Triton 3.6's interpreter beside NumPy 2.4, which no longer turns arrays of one into integers."""

from __future__ import annotations

from typing import Any

from triton.runtime import interpreter


def allow_new_numpy() -> None:
    """Let the bounds of a kernel's loops be values that the kernel loaded."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched
