"""Declared prefixes: slabs that eviction may not touch until they are unpinned.

A pin is declared to the server's HTTP process with the admin key (`granikv.engine.pin_routes`) and
travels to every rank inside a request whose prompt is the prefix, so that all ranks see it in the
same order. On a rank it is a lock on the prefix's deepest node, counted apart from live readers.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from granikv.prefix_index import path_of

CUSTOM_PARAMETER = "granikv_pin"
"""The sampling parameter that carries a declaration: {number, signature}."""


def signature(secret: str, number: int, tokens: Sequence[int]) -> str:
    """What proves that this server's HTTP process declared these tokens under this number."""
    message = f"{number}:{','.join(map(str, tokens))}"
    return hmac.new(secret.encode(), message.encode(), "sha256").hexdigest()


@dataclass(slots=True)
class Pin:
    """One declared prefix. ``node`` is set while it is in the tree and locked."""

    number: int
    key: RadixKey
    node: Any = None
    error: str = ""


class PinBook:
    """The declared prefixes of one rank, within a budget of slots."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._pins: dict[int, Pin] = {}
        self.objection: Callable[[int], str] = lambda pinned: ""
        """Why this many pinned slots would be too many for the engine, or the empty string."""

    def declare_from(self, req: Any) -> None:
        """Pin the prompt of ``req`` if this server's own HTTP process asked for it.

        Anybody can send the parameter; only that process can sign it, and only for this prompt,
        so that a prompt that the engine cut or replaced is not pinned.
        """
        parameters = req.sampling_params.custom_params
        asked = parameters.get(CUSTOM_PARAMETER) if isinstance(parameters, dict) else None
        if not isinstance(asked, dict) or not isinstance(asked.get("number"), int):
            return
        number, given = asked["number"], str(asked.get("signature")).encode()
        secret = self._tree.config.control_token
        if secret and hmac.compare_digest(
            signature(secret, number, req.origin_input_ids).encode(), given
        ):
            self.declare(number, req.origin_input_ids, req.extra_key)
            self.arm()

    def declare(self, number: int, tokens: Any, extra_key: str | None) -> None:
        """Remember a prefix; it is pinned as soon as the tree holds all of it."""
        if number in self._pins:
            return
        key = RadixKey(tokens, extra_key).page_aligned(self._tree.page_size)
        pin = Pin(number, key)
        budget = self._tree.pin_capacity()
        held = sum(len(p.key) for p in self._pins.values() if not p.error)
        if len(key) == 0:
            pin.error = f"shorter than one page of {self._tree.page_size} tokens"
        elif held + len(key) > budget:
            pin.error = (
                f"{len(key)} tokens are over the pin budget: {held} of {budget} are taken; "
                "unpin one or raise --granikv-pin-budget"
            )
        else:
            pin.error = self.objection(held + len(key))
        self._pins[number] = pin

    def release(self, number: int) -> bool:
        """Unpin; whether there was such a pin."""
        pin = self._pins.pop(number, None)
        if pin is None:
            return False
        if pin.node is not None:
            for node in path_of(pin.node):
                node.pins -= 1
            self._tree.dec_lock_ref(pin.node)
        self.objection(sum(len(p.key) for p in self._pins.values() if not p.error))
        return True

    def arm(self) -> None:
        """Lock each declared prefix that the tree holds by now."""
        for pin in self._pins.values():
            if pin.node is None and not pin.error:
                self._arm(pin)

    def disarm(self) -> None:
        """The tree was flushed: its nodes are gone, the declarations stay."""
        for pin in self._pins.values():
            pin.node = None

    def as_dicts(self) -> list[dict[str, Any]]:
        """For `/server_info`: number, tokens, whether it is in place, what is wrong."""
        return [
            {
                "number": pin.number,
                "tokens": len(pin.key),
                "pinned": pin.node is not None,
                "error": pin.error,
            }
            for pin in self._pins.values()
        ]

    def _arm(self, pin: Pin) -> None:
        tree = self._tree
        found = tree.match_prefix(MatchPrefixParams(key=pin.key))
        if len(found.device_indices) < len(pin.key):
            return
        node = found.last_device_node
        pin.node = node
        tree.inc_lock_ref(node)
        for above in path_of(node):
            above.pins += 1
        tree.mark(pin.key, len(pin.key))
