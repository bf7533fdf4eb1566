"""SGLang-Cascade: two-level cascade attention on 16-token pages, no storage layer (§4.3)."""

from __future__ import annotations

from harness.systems.base import Hardware, ServerInfo, Traffic, must_rise
from harness.systems.plugin import PluginSystem, served_paged


class SglangCascade(PluginSystem):
    """One shared level for the whole batch: it fires only where one prefix opens every request."""

    name = "sglang_cascade"
    plugin_system = "sglang_cascade"

    def arguments(self, hardware: Hardware) -> list[str]:
        """`--sglang-cascade` on the engine's own pages."""
        return [*self.engine_arguments(hardware), "--sglang-cascade"]

    def silent(self, before: ServerInfo, after: ServerInfo, traffic: Traffic) -> list[str]:
        """The shared level was used, where the batch has one."""
        wrong = must_rise(before, after, "steps", "no decode step went through the plugin")
        if traffic.shared_by_all:
            wrong += must_rise(before, after, "steps_cascade", "cascade attention never served")
        return wrong

    def overflowed(self, before: ServerInfo, after: ServerInfo) -> list[str]:
        """Cascade attention is the only backend beside pages."""
        return served_paged(before, after, "cascade")
