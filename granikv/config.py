"""What a user can choose about the storage layer: one frozen object, one way into processes.

The engine starts its schedulers as new processes, so the choice travels as JSON in one environment
variable; nothing else of the plugin reads the environment.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from granikv.admission import ADMISSION_POLICIES
from granikv.dispatch import RULES
from granikv.eviction import EVICTION_POLICIES

ENVIRONMENT_VARIABLE = "GRANIKV_CONFIG"

GRANIKV = "granikv"
SGLANG_CASCADE = "sglang_cascade"
"""Two-level cascade on the engine's ordinary pages, no storage layer (§4.3)."""

AUTO = "auto"
"""Dispatch each step (§3.6)."""
BACKENDS = (AUTO, "dense", "cascade", "paged", "contiguous_unshared", "hydragen")


class ConfigError(ValueError):
    """A choice that cannot be: one line that says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class GraniKVConfig:
    """The choices of one server.

    Attributes:
        system: `granikv`, or `sglang_cascade` for the baseline without the storage layer.
        hot_fraction: f_p, the part of the KV budget that is HOT (§3.2, B.12).
        admission: which COLD nodes become slabs.
        min_tokens: L_min, the shortest slab in tokens.
        eviction: which unlocked slab or cached suffix goes first.
        backend: `auto` dispatches every step; a name forces that backend.
        rule: how `auto` dispatches: `saturation` (the paper's) or `cost`; `auto` takes the cost
            model where the hardware profile has one.
        hardware: a hardware profile's name or file; empty: found by the device.
        pin_budget: slots that declared prefixes may hold, as a fraction of HOT.
        control_token: the secret with which this server's own HTTP process declares pins.
        checks: audit every step and poison freed slots (for tests; slow).
    """

    system: str = GRANIKV
    hot_fraction: float = 0.2
    admission: str = "eager"
    min_tokens: int = 128
    eviction: str = "lru"
    backend: str = AUTO
    rule: str = AUTO
    hardware: str = ""
    pin_budget: float = 0.5
    control_token: str = ""
    checks: bool = False

    def __post_init__(self) -> None:
        _one_of("system", self.system, (GRANIKV, SGLANG_CASCADE))
        _one_of("--granikv-admission", self.admission, ADMISSION_POLICIES)
        _one_of("--granikv-eviction", self.eviction, EVICTION_POLICIES)
        _one_of("--granikv-backend", self.backend, BACKENDS)
        _one_of("--granikv-rule", self.rule, RULES)
        if self.system == SGLANG_CASCADE and self.backend not in ("cascade", "paged"):
            raise ConfigError(
                f"--sglang-cascade has no slabs for {self.backend}; leave --granikv-backend out"
            )
        _within("--granikv-hot-fraction", self.hot_fraction, 0.0, 0.95)
        _within("--granikv-pin-budget", self.pin_budget, 0.0, 1.0)
        if self.min_tokens < 1:
            raise ConfigError(f"--granikv-min-tokens must be at least 1, not {self.min_tokens}")

    def public(self) -> dict[str, Any]:
        """The choices that may be shown: everything but the secret."""
        shown = dataclasses.asdict(self)
        del shown["control_token"]
        return shown

    def store(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Hand the choices to the processes that this one starts."""
        environment[ENVIRONMENT_VARIABLE] = json.dumps(dataclasses.asdict(self))


def stored_config(environment: Mapping[str, str] = os.environ) -> GraniKVConfig | None:
    """The choices that the parent process stored, or None where GraniKV is not switched on.

    Raises:
        ConfigError: the variable holds something else.
    """
    text = environment.get(ENVIRONMENT_VARIABLE)
    if not text:
        return None
    try:
        return GraniKVConfig(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{ENVIRONMENT_VARIABLE} is not a GraniKV configuration: {error}"
        ) from None


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} {value!r} is unknown; choose one of {', '.join(allowed)}")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} must lie between {low:g} and {high:g}, not {value:g}")
