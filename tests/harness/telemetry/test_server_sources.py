"""What is read of a server: Prometheus text, and GraniKV's part of /server_info."""

from __future__ import annotations

import pytest

from harness.telemetry.prometheus import EngineMetrics, parse
from harness.telemetry.sample import Reading, SourceError
from harness.telemetry.state import StorageState, readings

SCRAPE = """\
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="a \\"b\\" {c}",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="1"} 11.0 1790347303000
sglang:token_usage{model_name="m"} 4.2e-01

sglang:cache_hit_rate{tp_rank="0"} NaN
sglang:prompt_tokens_total{kind="a"} 5.0
sglang:prompt_tokens_total{kind="b"} 7.0
sglang:time_to_first_token_seconds_bucket{le="+Inf"} 7.0
process_cpu_seconds_total 12.5
"""


def test_a_scrape_gives_the_wanted_numbers_by_rank() -> None:
    assert parse(SCRAPE) == [
        Reading(0, "queued_requests", 3.0),
        Reading(1, "queued_requests", 11.0),
        Reading(0, "kv_used_share", 0.42),
        Reading(0, "prompt_tokens", 12.0),
    ]


def test_a_page_that_is_no_scrape_is_an_error() -> None:
    with pytest.raises(SourceError, match="a line that is none: '<html>'"):
        parse("<html>\n")


def test_the_state_gives_pools_and_counters_of_each_rank() -> None:
    rank = {
        "pools": {"hot_live": 8, "hot_live_ranges": [[1, 8]], "cold_free": 5},
        "counters": {"steps_dense": 7},
        "tree": [],
    }
    found = list(readings({"internal_states": [{"granikv": [rank, {"counters": {"steps": 1}}]}]}))
    assert found == [
        Reading(0, "pool_hot_live", 8.0),
        Reading(0, "pool_cold_free", 5.0),
        Reading(0, "steps_dense", 7.0),
        Reading(1, "steps", 1.0),
    ]


def test_a_stock_server_has_none() -> None:
    assert list(readings({"internal_states": [{}]})) == []


def test_a_number_that_is_none_is_an_error() -> None:
    with pytest.raises(SourceError, match="a line that is none"):
        parse("sglang:num_queue_reqs many")


@pytest.mark.parametrize("source", [EngineMetrics, StorageState])
def test_a_server_that_is_gone_is_an_error(source: type[EngineMetrics | StorageState]) -> None:
    with pytest.raises(SourceError, match="no reply"):
        source("http://127.0.0.1:9", 1).read()
