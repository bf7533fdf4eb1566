"""The trees' benchmark, small: every tree serves all requests, and each operation is timed."""

from __future__ import annotations

import json

import pytest

from granikv.engine import tree_bench

SMALL = "--capacity 800 --prefix 64 --suffix 130 --live 2 --batch 2 --requests 8 --output 4"


def test_each_tree_serves_the_same_requests(capsys: pytest.CaptureFixture[str]) -> None:
    assert tree_bench.main([*SMALL.split(), "--layers", "2"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert set(results) == {"stock", "eager", "on_share"}
    common = {"match", "cache_unfinished", "cache_finished", "evict"}
    assert set(results["stock"]["times"]) == common
    for policy in ("eager", "on_share"):
        assert set(results[policy]["times"]) == common | {"relocate"}
        assert all(time["median_us"] > 0 for time in results[policy]["times"].values())
    assert results["eager"]["counters"]["admissions_hot"] > 0


def test_too_small_a_pool_is_one_line() -> None:
    with pytest.raises(SystemExit, match="raise --capacity"):
        tree_bench.main([*SMALL.split(), "--capacity", "400"])
