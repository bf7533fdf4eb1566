"""Numbers that are wrong are refused before anything is started."""

from __future__ import annotations

import pytest

from harness import checks, config, jobs
from harness.errors import HarnessError


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("repetition=-1", "repetition must be a whole number of at least 0, not -1"),
        ("repetition=abc", "repetition must be a whole number of at least 0, not 'abc'"),
        ("warmup.requests=1.5", "warmup.requests must be a whole number of at least 0, not 1.5"),
        ("engine.stream_interval=0", "engine.stream_interval must be a whole number of at least 1"),
        ("engine.stream_interval=true", "engine.stream_interval must be a whole number of at"),
        ("telemetry.gpu_hz=-3", "telemetry.gpu_hz must be a number of at least 0, not -3"),
        ("client.workers=0", "client.workers must be a whole number of at least 1 or null, not 0"),
        ("client.drain_timeout_s=null", "client.drain_timeout_s must be a number of at least 0"),
        (
            "validation.hit_rate_tolerance=abc",
            "validation.hit_rate_tolerance must be a number of at least 0 or null, not 'abc'",
        ),
    ],
)
def test_a_wrong_number_is_one_line(override: str, words: str) -> None:
    with pytest.raises(HarnessError, match=f"^{words}"):
        jobs.plan(config.compose_cell([override]))


def test_a_kernel_s_repetition_too() -> None:
    with pytest.raises(HarnessError, match=r"^repetition must be"):
        jobs.plan(config.compose_cell(["experiment=table17_cpu", "repetition=x"]))


def test_a_check_is_not_passed_by_true() -> None:
    assert not checks.Number(0).fits(True)
    assert checks.Number(0).fits(0)


def test_the_shipped_configuration_is_right() -> None:
    checks.numbers(config.compose_cell([]))
    checks.numbers(config.compose_cell(["experiment=table03", "hardware=h200"]))
