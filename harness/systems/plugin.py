"""Systems that run through the plugin: how each is asked for, and how it shows that it is on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.systems.base import (
    CPU,
    Hardware,
    ServerInfo,
    System,
    Traffic,
    must_not_rise,
    must_rise,
)

DECODE_BACKEND = "granikv"
AUTO = "auto"
"""Dispatched every step: no backend is forced."""


class PluginSystem(System):
    """Common to all: the plugin must be active on every rank and own the decode backend."""

    plugin_system: ClassVar[str]
    """What `/server_info` must call the system."""

    def misuse(self, info: ServerInfo, hardware: Hardware) -> list[str]:
        """Also: the plugin is active, is this system, and owns decode."""
        if not info.ranks:
            return ["GraniKV's plugin is not active: the server fell back to stock SGLang"]
        wrong = super().misuse(info, hardware)
        ranks = info.argument("tp_size") or 1
        if len(info.ranks) != ranks:
            wrong.append(f"{len(info.ranks)} of the server's {ranks} ranks tell their state")
        for rank, state in enumerate(info.ranks):
            wrong += [f"rank {rank}: {reason}" for reason in self._rank_misuse(state, hardware)]
        return wrong

    def _rank_misuse(self, state: Mapping[str, Any], hardware: Hardware) -> list[str]:
        wrong = []
        if state.get("system") != self.plugin_system:
            wrong.append(f"the system is {state.get('system')!r}, not {self.plugin_system!r}")
        decode = state.get("backends", {}).get("decode")
        if decode != DECODE_BACKEND:
            wrong.append(f"decode runs on {decode!r}, not on {DECODE_BACKEND!r}")
        return wrong


def served_paged(before: ServerInfo, after: ServerInfo, backend: str) -> list[str]:
    """A reason where steps did not fit the forced backend's buffers and went over pages."""
    meaning = f"steps did not fit the {backend} backend's buffers and were served paged"
    return must_not_rise(before, after, "steps_overflowed", meaning)


class StorageSystem(PluginSystem):
    """HOT/COLD storage with one way to choose the decode backend."""

    plugin_system = "granikv"
    uses_storage = True
    backend: ClassVar[str]
    """AUTO or the one backend that is forced."""
    needs_gpu: ClassVar[bool] = False

    def refusal(self, hardware: Hardware) -> str | None:
        """Some backends have GPU kernels only."""
        if self.needs_gpu and hardware.device == CPU:
            return f"{self.name} needs a GPU: its decode backend has no CPU implementation"
        return None

    def backend_on(self, hardware: Hardware) -> str:
        """What `--granikv-backend` gets there."""
        return self.backend

    def arguments(self, hardware: Hardware) -> list[str]:
        """`--granikv` with the storage choices and this system's backend."""
        arguments = ["--granikv", "--granikv-backend", self.backend_on(hardware)]
        arguments += ["--granikv-hardware", str(hardware.profile)]
        for key, value in self.storage.items():
            if value is not None:
                arguments += ["--granikv-" + key.replace("_", "-"), str(value)]
        return [*self.engine_arguments(hardware), *arguments]

    def _rank_misuse(self, state: Mapping[str, Any], hardware: Hardware) -> list[str]:
        wrong = super()._rank_misuse(state, hardware)
        forced, asked = _forced(state), self.backend_on(hardware)
        if forced != asked:
            wrong.append(f"the backend is {forced!r}, not {asked!r}")
        config = state.get("config", {})
        for key, value in self.storage.items():
            if value is not None and config.get(key) != value:
                wrong.append(f"{key} is {config.get(key)!r}, {value!r} was asked for")
        return wrong

    def silent(self, before: ServerInfo, after: ServerInfo, traffic: Traffic) -> list[str]:
        """Decode steps ran; a slab was made where one fits; a forced backend served."""
        wrong = must_rise(before, after, "steps", "no decode step went through GraniKV")
        if not self._slab_expected(after, traffic):
            return wrong
        wrong += must_rise(before, after, "relocations", "no prefix became a slab")
        if self.backend != AUTO:
            backend = _forced(after.granikv or {})
            wrong += must_rise(
                before, after, f"steps_{backend}", f"the {backend} backend never served"
            )
        return wrong

    def overflowed(self, before: ServerInfo, after: ServerInfo) -> list[str]:
        """A forced backend served every step; for `auto` pages are a choice like another."""
        if self.backend == AUTO:
            return []
        return served_paged(before, after, _forced(after.granikv or {}))

    def _slab_expected(self, info: ServerInfo, traffic: Traffic) -> bool:
        """Whether some shared prefix is long enough for a slab and fits HOT."""
        state = info.granikv or {}
        shortest = int(state.get("config", {}).get("min_tokens") or 1)
        room = int(state.get("pools", {}).get("hot_size") or 0)
        return any(shortest <= length <= room for length in traffic.prefix_lengths)


def _forced(state: Mapping[str, Any]) -> str:
    """The backend that a rank says is forced, AUTO where none is."""
    return str(state.get("backends", {}).get("forced") or AUTO)
