"""Numbers of a configuration that are used only once a server is up: checked before it is started.

Those of a load, a workload and a system are checked by what they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.errors import HarnessError


class Number(NamedTuple):
    """What a number must be. optional: it may be null."""

    least: float
    whole: bool = False
    optional: bool = False

    def fits(self, value: object) -> bool:
        """Whether a value is such a number."""
        if value is None:
            return self.optional
        kinds = int if self.whole else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and value >= self.least

    def __str__(self) -> str:
        kind = "whole number" if self.whole else "number"
        return f"a {kind} of at least {self.least:g}" + (" or null" if self.optional else "")


NUMBERS: dict[str, Number] = {
    "repetition": Number(0, whole=True),
    "engine.start_timeout_s": Number(0),
    "engine.linger_s": Number(0),
    "engine.device_share": Number(0),
    "engine.stream_interval": Number(1, whole=True),
    "warmup.requests": Number(0, whole=True),
    "warmup.output_tokens": Number(1, whole=True),
    "client.request_timeout_s": Number(0),
    "client.drain_timeout_s": Number(0),
    "client.workers": Number(1, whole=True, optional=True),
    "slo.ttft_s": Number(0, optional=True),
    "slo.tpot_s": Number(0, optional=True),
    "slo.e2e_s": Number(0, optional=True),
    "validation.hit_rate_tolerance": Number(0, optional=True),
    "validation.send_lag_floor_ms": Number(0),
    "validation.send_lag_ttft_share": Number(0, optional=True),
    "validation.loop_lag_tpot_share": Number(0, optional=True),
    "telemetry.gpu_hz": Number(0),
    "telemetry.metrics_hz": Number(0),
    "telemetry.state_hz": Number(0),
    "profile.start_s": Number(0),
    "profile.steps": Number(1, whole=True),
}
"""By dotted name."""


def numbers(config: Mapping[str, Any]) -> None:
    """Raises HarnessError for the first of NUMBERS that is none."""
    for name, number in NUMBERS.items():
        value: Any = config
        for key in name.split("."):
            value = value[key]
        if not number.fits(value):
            raise HarnessError(f"{name} must be {number}, not {value!r}")
