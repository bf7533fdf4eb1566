"""The pool identity that GraniKV adds to SGLang's tree nodes (paper §3.4)."""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.radix_cache import TreeNode


def _length(node: Any) -> int:
    return len(node.key)


def extend_tree_nodes() -> None:
    """Give every node, made before or after, a COLD identity and the logical counters.

    Class defaults rather than a subclass: the engine's tree makes its nodes itself.
    """
    TreeNode.hot_base = None
    TreeNode.refusals = 0
    TreeNode.pins = 0
    TreeNode.last_use = 0
    TreeNode.hits = 0
    TreeNode.length = property(_length)
