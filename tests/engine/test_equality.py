"""Greedy tokens of every system equal stock SGLang's, under everything that moves KV around.

Each run also has the engine's own busy and idle checks on, and the storage layer's audit of every
slot at every step, with freed slots poisoned by NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.engine.conftest import Driver, Run
from tests.engine.scenarios import SCENARIOS

BIG = {"max_total_tokens": 8192, "chunked_prefill_size": 2048}
CHUNKED = {"max_total_tokens": 2048, "chunked_prefill_size": 64}
SMALL = {"max_total_tokens": 1024, "chunked_prefill_size": 64}


class Case(NamedTuple):
    """One configuration; each choice meets each other kind of pressure somewhere."""

    granikv: dict[str, Any]
    engine: dict[str, Any]
    fired: tuple[str, ...]


def _case(engine: dict[str, Any], fired: tuple[str, ...], **granikv: Any) -> Case:
    return Case({"min_tokens": 32, "checks": True, **granikv}, engine, fired)


CASES = {
    "eager-p1-auto-small": _case(SMALL, ("dense", "cascade"), hot_fraction=0.5),
    "on_share-p16-paged-chunked-lpm": _case(
        {**CHUNKED, "page_size": 16, "schedule_policy": "lpm"},
        ("paged",),
        admission="on_share",
        backend="paged",
    ),
    "eager-p4-dense-small-no_overlap": _case(
        {**SMALL, "page_size": 4, "disable_overlap_schedule": True},
        ("dense",),
        backend="dense",
        eviction="hotness",
        hot_fraction=0.4,
    ),
    "on_share-p1-cascade-big-mixed": _case(
        {**BIG, "enable_mixed_chunk": True, "chunked_prefill_size": 128},
        ("cascade",),
        admission="on_share",
        backend="cascade",
    ),
    "eager-p16-auto-big-hotness": _case(
        {**BIG, "page_size": 16}, ("dense", "cascade"), eviction="hotness", hot_fraction=0.3
    ),
    "eager-p1-paged-small-no_overlap": _case(
        {**SMALL, "disable_overlap_schedule": True}, ("paged",), backend="paged", hot_fraction=0.5
    ),
    "eager-p16-cascade-hot_too_small": _case(
        {**SMALL, "page_size": 16}, ("cascade",), backend="cascade", hot_fraction=0.1
    ),
    "on_share-p16-dense-chunked": _case(
        {**CHUNKED, "page_size": 16}, ("dense",), admission="on_share", backend="dense"
    ),
    "on_share-p4-auto-small-lpm": _case(
        {**SMALL, "page_size": 4, "schedule_policy": "lpm"},
        ("dense", "cascade"),
        admission="on_share",
        hot_fraction=0.5,
    ),
}


def assert_equal(run: Run, stock: Run) -> None:
    """Every answer of every scenario, token by token."""
    assert run.returncode == 0, run.log
    for scenario in SCENARIOS:
        assert run.answers(scenario) == stock.answers(scenario), scenario


def assert_in_use(run: Run, fired: tuple[str, ...]) -> None:
    """The storage layer and the named backends did the work (failure kind 20)."""
    counters = run.counters()
    for backend in fired:
        assert counters[f"steps_{backend}"] > 0, backend
        assert counters[f"segment_rows_{backend}"] > 0, backend
    assert counters["relocations"] > 0
    assert counters["rows_rewritten"] > 0
    assert counters["slab_evictions"] + counters["cold_evictions"] > 0
    assert counters["audits"] > 100
    assert counters["steps_unplanned"] == 0
    assert counters["resets"] == 2


@pytest.mark.parametrize("name", CASES)
def test_granikv_equals_stock(name: str, drive: Driver, stock: Run) -> None:
    case = CASES[name]
    run = drive(name, case.granikv, case.engine)
    assert_equal(run, stock)
    assert_in_use(run, case.fired)
    if name == "eager-p1-auto-small":
        assert run.retractions > 0, "the pool was never so full that a request was retracted"
    if "hot_too_small" in name:
        assert run.counters()["admissions_refused"] > 0


def test_sglang_cascade_equals_stock(drive: Driver, stock: Run) -> None:
    """The baseline: one batch-wide level on ordinary pages, no storage layer (§4.3)."""
    granikv = {"system": "sglang_cascade", "backend": "cascade"}
    run = drive("sglang_cascade", granikv, {**CHUNKED, "page_size": 16})
    assert_equal(run, stock)
    counters = run.counters()
    assert counters["steps_cascade"] > 0
    assert counters["segment_rows_cascade"] >= 2 * counters["steps_cascade"]
    assert "relocations" not in counters


def test_what_never_fits_is_refused_and_the_rest_served(drive: Driver) -> None:
    """A prompt longer than the pool gets an error; the engine goes on and stays balanced."""
    # One reader only, so nothing is relocated and 700 tokens must find room beside HOT's half.
    granikv = {"min_tokens": 32, "checks": True, "hot_fraction": 0.5, "admission": "on_share"}
    run = drive("refused", granikv, SMALL, scenarios=["oversized"], refused=1200)
    assert run.returncode == 0, run.log
    assert "exceeds the maximum allowed length" in run.results["refused"]
    counters = run.counters()
    assert counters["donated_tokens"] >= 400 + 300 - SMALL["max_total_tokens"] // 2
    assert counters["relocations"] == 0


def test_a_soak_leaves_nothing_behind(drive: Driver) -> None:
    """Failure kind 17: a thousand requests, 256 in flight; no slot, row or request is kept."""
    granikv = {"min_tokens": 16, "admission": "on_share", "hot_fraction": 0.3}
    engine = {**BIG, "max_running_requests": 256}
    run = drive("soak", granikv, engine, scenarios=["soak"])
    assert run.returncode == 0, run.log
    assert [len(a) for a in run.answers("soak")] == [1 + i % 5 for i in range(1000)]
    state = run.results["soak"]["state"]
    assert state["live_requests"] == 0
    assert all(node["readers"] == 0 for node in state["tree"])
    cached = dict.fromkeys(("HOT", "COLD"), 0)
    for node in state["tree"]:
        cached[node["pool"]] += node["length"]
    assert state["tree_nodes"] == len(state["tree"])
    assert cached["HOT"] == state["pools"]["hot_live"]
    assert cached["COLD"] == state["pools"]["cold_live"]
    assert run.counters()["relocations"] > 0


@pytest.mark.parametrize(
    ("mutant", "backend"),
    [("row_not_repointed", "paged"), ("slab_off_by_one", "dense"), ("base_two_lse", "cascade")],
)
def test_a_fault_is_noticed(mutant: str, backend: str, drive: Driver, stock: Run) -> None:
    """Equality is not blind: with every other check off, each deliberate fault changes tokens."""
    granikv = {"min_tokens": 32, "backend": backend, "hot_fraction": 0.5}
    scenarios = ["one_prefix", "four_classes", "pressure"]
    run = drive(f"mutant-{mutant}", granikv, SMALL, scenarios=scenarios, mutant=mutant)
    assert run.returncode == 0, run.log
    assert any(run.answers(s) != stock.answers(s) for s in scenarios)


def _product() -> dict[str, Case]:
    cases = {}
    for admission in ("eager", "on_share"):
        for page in (1, 4, 16):
            for backend in ("auto", "dense", "cascade", "paged", "contiguous_unshared"):
                for pool, engine in (("big", BIG), ("chunked", CHUNKED), ("small", SMALL)):
                    fired = ("dense", "cascade") if backend == "auto" else (backend,)
                    cases[f"{admission}-p{page}-{backend}-{pool}"] = _case(
                        {**engine, "page_size": page},
                        fired,
                        admission=admission,
                        backend=backend,
                        hot_fraction=0.5,
                    )
    return cases


PRODUCT = _product()


@pytest.mark.full
@pytest.mark.parametrize("name", PRODUCT)
def test_full_product_equals_stock(name: str, drive: Driver, stock: Run) -> None:
    case = PRODUCT[name]
    run = drive(f"full-{name}", case.granikv, case.engine)
    assert_equal(run, stock)
    assert_in_use(run, case.fired)
