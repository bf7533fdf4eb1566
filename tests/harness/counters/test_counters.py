"""Hardware counters: names by chip, ncu's command line, and reports that must not read as zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.counters import chips, ncu
from harness.counters.trace import NoKernelError, ReportError
from tests.harness.counters.counted import GOOD, HEADER, OTHER, PIPE, QUERY, TENSOR, page


def names() -> dict[str, str]:
    return chips.resolve("gh100", chips.listed(QUERY) | {PIPE})


def test_a_report_gives_the_mean_of_its_launches_in_our_units() -> None:
    found = ncu.quantities(ncu.parse_csv(page(GOOD, OTHER)), names())
    assert found == pytest.approx(
        {
            "kernel_dram_bytes": 33.7e6,
            "kernel_l2_hit_pct": 89.0,
            "kernel_tensor_active_pct": 62.0,
            "kernel_waves_per_sm": 4.7,
            "kernel_counted_s": 65e-6,
        }
    )


@pytest.mark.parametrize("absent", ["n/a", "", "nan", "(!) n/a", "no data"])
@pytest.mark.parametrize("column", range(2, len(HEADER)))
def test_a_counter_that_is_not_there_is_an_error_and_no_zero(absent: str, column: int) -> None:
    """Failure kind 34: a metric that this chip lacks comes back as n/a."""
    bad = [*OTHER[:column], absent, *OTHER[column + 1 :]]
    with pytest.raises(ReportError, match=f"{HEADER[column]} is n/a"):
        ncu.quantities(ncu.parse_csv(page(GOOD, bad)), names())


def test_a_column_that_is_not_there_is_an_error() -> None:
    launch = ncu.Launch("k", {"dram__bytes_read.sum": 5})
    with pytest.raises(ReportError, match="is missing for the kernel k"):
        ncu.quantities([launch], names())


def test_words_are_no_numbers() -> None:
    bad = [*GOOD[:2], "many", *GOOD[3:]]
    with pytest.raises(ReportError, match="is no number: 'many'"):
        ncu.quantities(ncu.parse_csv(page(bad)), names())


@pytest.mark.parametrize("text", ["", "==ERROR== ERR_NVGPUCTRPERM", "a,b\n1,2\n3,4"])
def test_a_page_without_a_launch_is_an_error(text: str) -> None:
    with pytest.raises(ReportError, match="no kernel was profiled"):
        ncu.parse_csv(text)
    with pytest.raises(ReportError, match="holds no launch"):
        ncu.quantities([], names())


def test_hopper_is_never_judged_by_instructions() -> None:
    """Failure kind 34: wgmma is in no count of HMMA instructions, which would read near zero."""
    listed = chips.listed(QUERY)
    assert "sm__inst_executed_pipe_tensor_op_hmma" in listed
    with pytest.raises(ReportError, match="gh100 has no metric for kernel_tensor_active_pct"):
        chips.resolve("gh100", listed)
    assert names()["kernel_tensor_active_pct"] == TENSOR


@pytest.mark.parametrize("chip", chips.CHIPS)
def test_tensor_work_is_told_by_the_cycles_of_its_pipe(chip: str) -> None:
    for metric in chips.CHIPS[chip][chips.TENSOR]:
        assert metric.partition(".")[0].endswith("_cycles_active")


def test_an_a100_is_judged_as_the_paper_does() -> None:
    pipes = {"sm__pipe_tensor_op_hmma_cycles_active", PIPE}
    found = chips.resolve("ga100", chips.listed(QUERY) | pipes)
    assert found["kernel_tensor_active_pct"].startswith("sm__pipe_tensor_op_hmma_cycles_active")
    assert found["kernel_dram_bytes"] == "dram__bytes_read.sum"


def test_a_chip_that_nobody_named_is_an_error() -> None:
    assert chips.chip((9, 0)) == "gh100"
    with pytest.raises(ReportError, match=r"capability 10\.0"):
        chips.chip((10, 0))


def test_every_chip_names_every_quantity() -> None:
    quantities = {chips.DRAM, chips.L2, chips.TENSOR, chips.WAVES, chips.DURATION}
    for chip in chips.CHIPS.values():
        assert chip.keys() == quantities
    assert set(chips.CHIP_OF.values()) == chips.CHIPS.keys()


OPTIONS: dict[str, Any] = {"kernel": "_prefix_kernel", "skip": 5, "launches": 3}


@pytest.mark.parametrize("clocks", ["none", "base"])
@pytest.mark.parametrize("cache", ["none", "all"])
def test_clocks_and_caches_are_always_said(clocks: str, cache: str) -> None:
    """Failure kind 35: ncu's defaults lock clocks and flush caches without being asked."""
    options = ncu.Options(**OPTIONS, clocks=clocks, cache=cache)
    command = ncu.command(["python", "-m", "m"], Path("r.ncu-rep"), ["a.sum", "b.pct"], options)
    assert command[0] == "ncu"
    assert command[-3:] == ["python", "-m", "m"]
    assert f"--clock-control={clocks}" in command
    assert f"--cache-control={cache}" in command
    assert {"--target-processes=all", "--metrics=a.sum,b.pct", "--launch-skip=5"} <= set(command)


@pytest.mark.parametrize(("clocks", "cache"), [("boost", "all"), ("none", "flush")])
def test_other_conditions_are_refused(clocks: str, cache: str) -> None:
    with pytest.raises(ReportError, match="is none or base"):
        ncu.Options(**OPTIONS, clocks=clocks, cache=cache)


class FakeMetric:
    """As the package ncu-report has them."""

    def __init__(self, value: float | None) -> None:
        self._value = value

    def has_value(self) -> bool:
        return self._value is not None

    def value(self) -> float | None:
        return self._value


class FakeAction:
    def __init__(self, values: dict[str, float | None]) -> None:
        self._values = values

    def name(self) -> str:
        return "_prefix_kernel"

    def metric_names(self) -> tuple[str, ...]:
        return tuple(self._values)

    def metric_by_name(self, name: str) -> FakeMetric:
        return FakeMetric(self._values[name])


def test_reports_opened_by_the_package_read_alike() -> None:
    numbers = dict(zip(HEADER[2:], (33.6e6, 89.1, 62.5, 4.7, 64000.0), strict=True))
    context = [[FakeAction(dict(numbers))], [FakeAction(dict(numbers))]]
    launches = ncu.launches_of(context)
    assert len(launches) == 2
    assert ncu.quantities(launches, names())["kernel_l2_hit_pct"] == pytest.approx(89.1)


def test_a_metric_without_a_value_is_an_error_there_too() -> None:
    numbers: dict[str, float | None] = dict.fromkeys(HEADER[2:], 1.0)
    numbers["dram__bytes_read.sum"] = None
    with pytest.raises(ReportError, match=r"dram__bytes_read\.sum is n/a"):
        ncu.quantities(ncu.launches_of([[FakeAction(numbers)]]), names())


def test_no_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoKernelError, match="the driver forbids counting"):
        ncu.read(tmp_path / "absent.ncu-rep")
