"""The life of a cell against the fake server: what makes it valid, and every way it is not."""

from __future__ import annotations

import gzip
import math
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness import cache, parquet
from harness.cell import _warm_up_requests, measure
from harness.errors import HarnessError
from harness.plan import plan
from harness.store import Cell, load_cells
from workloads.build import build

RunCell = Callable[..., Cell]


def test_a_cell_is_valid_and_complete(run_cell: RunCell) -> None:
    cell = run_cell()
    assert cell.valid, cell.reasons
    log = cell.requests
    assert len(log) == 32
    assert log["ok"].all()
    assert (log["output_tokens"] == 16).all()
    assert (log["scheduled_s"] <= log["permitted_s"]).all()
    # A timer may wake early by its resolution.
    assert (log["permitted_s"] <= log["sent_s"] + 1e-6).all()
    assert (log["sent_s"] < log["first_token_s"]).all()
    assert (log["first_token_s"] < log["last_token_s"]).all()
    assert cell.metrics["output_tok_s"] > 0
    assert cell.metrics["requests"] == 32
    assert cell.hardware == "cpu"


def test_the_cache_state_is_proven_and_recorded(run_cell: RunCell) -> None:
    cell = run_cell()
    proof = cell.record["cache"]
    assert proof["probe_cached_tokens"] == 0
    assert proof["primed_cached_tokens"] == [0]
    assert cell.metrics["hit_rate"] == pytest.approx(proof["hit_rate_designed"], abs=0.02)


def test_a_repetition_starts_as_cold_as_the_first(run_cell: RunCell) -> None:
    """All of the first one's prompts are in the server's cache when the second begins."""
    first, second = run_cell(), run_cell("repetition=1")
    assert second.record["server"]["reused"]
    for cell in (first, second):
        assert cell.record["cache"]["state"] == "primed"
        assert cell.record["cache"]["warmed_requests"] in (8, 9)
    assert second.metrics["hit_rate"] == first.metrics["hit_rate"]
    assert list(second.requests["cached_tokens"]) == list(first.requests["cached_tokens"])


def test_the_longest_prompt_is_among_the_warm_up() -> None:
    options = {"kind": "synthetic", "requests": 20, "prefix_length": 4, "suffix_min": 1}
    workload = build({**options, "suffix_max": 40, "output_tokens": 4, "vocab_size": 512})
    longest = max(request.prompt_len for request in workload.requests)
    for count in (1, 3, 20):
        warmed = _warm_up_requests(workload, count, 2)
        assert {request.max_new_tokens for request in warmed} == {2}
        assert count <= len(warmed) <= count + 1
        assert max(request.prompt_len for request in warmed) == longest


def test_no_more_than_b_requests_are_in_flight(run_cell: RunCell) -> None:
    log = run_cell("load.permits=3", tpot_s=0.002).requests
    for _, request in log.iterrows():
        flying = (log["sent_s"] <= request["sent_s"]) & (log["last_token_s"] > request["sent_s"])
        assert flying.sum() <= 3


REPLY_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"status": 500, "every": 7}, "5 of 32 requests failed: 5 × status 500"),
    ({"tokens": 0, "every": 7}, "a reply without a token"),
    ({"early_end": True, "every": 7}, "the stream ended early"),
    ({"finish": "abort", "every": 7}, "ended by abort: because"),
    ({"error": "lost it", "every": 7}, "server error: lost it"),
    ({"tokens": 9, "every": 7}, "another number of tokens than asked, such as 9 for 16"),
    ({"extra_ids": [1], "every": 7}, "hold 32 token ids, the server counts 16"),
    ({"prompt_drift": 3, "every": 7}, "counted with another prompt length"),
    ({"chunk": 16, "every": 7}, "no measured time to first token"),
    ({"never_cached": True}, "hit rate 0.000, designed 0.9"),
]


@pytest.mark.parametrize(("faults", "reason"), REPLY_FAULTS, ids=lambda v: str(v)[:40])
def test_a_faulty_reply_makes_the_cell_invalid(
    run_cell: RunCell, faults: dict[str, Any], reason: str
) -> None:
    cell = run_cell(**faults)
    assert not cell.valid
    assert reason in "; ".join(cell.reasons)


def test_failed_requests_count_in_no_metric(run_cell: RunCell) -> None:
    cell = run_cell(tokens=0, every=2)
    assert cell.metrics["requests"] == 16
    assert (cell.requests.loc[~cell.requests["ok"], "output_tokens"] == 0).all()
    assert cell.requests.loc[~cell.requests["ok"], "first_token_s"].isna().all()


def test_a_refused_flush_is_repeated(run_cell: RunCell) -> None:
    cell = run_cell(refuse_flushes=3)
    assert cell.valid
    assert cell.record["cache"]["flushes_refused"] >= 3


def test_a_server_that_never_flushes_is_given_up(
    run_cell: RunCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "FLUSH_TIMEOUT_S", 0.5)
    cell = run_cell(refuse_flushes=10**9)
    assert not cell.valid
    assert "refused to flush its cache" in cell.reasons[0]
    assert "times: status 400 Flush cache failed: 1 request runs." in cell.reasons[0]


def test_a_flush_that_lies_is_noticed(run_cell: RunCell) -> None:
    cell = run_cell(flush_lies=True)
    assert not cell.valid
    assert "the cache is not empty after a flush" in cell.reasons[0]
    assert cell.requests.empty


def test_a_cache_that_is_not_empty_before_priming_is_noticed(run_cell: RunCell) -> None:
    cell = run_cell(dirty=5)
    assert "5 tokens were still cached" in cell.reasons[0]


def test_compiling_inside_the_window_makes_the_cell_invalid(run_cell: RunCell) -> None:
    cell = run_cell(log="Capturing batches (bs=24 avail_mem=18.55 GB)", every=32)
    assert not cell.valid
    assert "compiled inside the measured window: CUDA graph capture" in cell.reasons[0]
    assert len(cell.requests) == 32


@pytest.mark.parametrize("times", [1, 2])
def test_a_server_that_has_compiled_is_loaded_again(run_cell: RunCell, times: int) -> None:
    line = "Capturing batches (bs=24 avail_mem=18.55 GB)"
    cell = run_cell(log=line, every=32, times=times)
    assert cell.valid, cell.reasons
    assert cell.record["server"]["compiled_before"] == [f"CUDA graph capture: {line}"] * times
    assert cell.record["cache"]["primed_cached_tokens"] == [0]
    assert "compiled_before" not in run_cell().record["server"]


def test_the_engines_own_rate_is_of_the_measured_window(run_cell: RunCell) -> None:
    """What the log said before the window, here in another cell's, does not count."""
    line = "[2026-01-01 00:00:01] Decode batch, #running-req: 8, gen throughput (token/s): {}"
    run_cell(log=f"{line.format(1)}\n{line.format(1)}", every=32)
    cell = run_cell(log=f"{line.format(7)}\n{line.format(2000)}", every=32)
    assert cell.valid, cell.reasons
    assert cell.metrics["engine_decode_tok_s"] == 2000
    assert cell.metrics["delivered_share"] == cell.metrics["output_tok_s_steady"] / 2000


def test_an_engine_that_logs_no_rate_has_none(run_cell: RunCell) -> None:
    cell = run_cell()
    assert math.isnan(cell.metrics["engine_decode_tok_s"])
    assert math.isnan(cell.metrics["delivered_share"])


def test_replies_in_groups_of_tokens_make_a_valid_cell(run_cell: RunCell) -> None:
    cell = run_cell("engine.stream_interval=6")
    assert cell.valid, cell.reasons
    assert {tuple(counts) for counts in cell.requests["chunk_tokens"]} == {(1, 6, 6, 3)}
    first, last = (cell.requests[f"{which}_token_s"] for which in ("first", "last"))
    assert cell.metrics["tpot_p50_ms"] == pytest.approx(1000 * ((last - first) / 15).median())


def test_a_silent_fallback_to_stock_fails_the_cell(run_cell: RunCell) -> None:
    cell = run_cell("system=granikv", stock=True)
    assert not cell.valid
    assert "fell back to stock SGLang" in cell.reasons[0]


@pytest.mark.parametrize("system", ["granikv", "granikv_dense", "cascade_on_granikv"])
def test_a_storage_system_must_show_that_it_worked(run_cell: RunCell, system: str) -> None:
    good = run_cell(f"system={system}")
    assert good.valid, good.reasons
    assert good.state is not None
    assert good.state["counters"]["steps"] > 0
    silent = run_cell(f"system={system}", silent=True)
    assert not silent.valid
    assert "no decode step went through GraniKV" in "; ".join(silent.reasons)


@pytest.mark.parametrize("system", ["granikv_dense", "cascade_on_granikv", "sglang_cascade"])
def test_a_forced_backend_that_left_steps_to_pages_fails_the_cell(
    run_cell: RunCell, system: str
) -> None:
    cell = run_cell(f"system={system}", overflow=True, every=8)
    (reason,) = cell.reasons
    backend = "dense" if system == "granikv_dense" else "cascade"
    assert f"did not fit the {backend} backend's buffers and were served paged" in reason
    assert "'steps_overflowed' rose by" in reason


def test_steps_that_dispatch_left_to_pages_are_recorded(run_cell: RunCell) -> None:
    cell = run_cell("system=granikv", overflow=True, every=8)
    assert cell.valid, cell.reasons
    assert cell.state is not None
    before = cell.record["server"]["counters_before"]["steps_overflowed"]
    assert cell.state["counters"]["steps_overflowed"] > before


def test_a_live_tree_is_kept_for_the_drawing(run_cell: RunCell) -> None:
    cell = run_cell("system=granikv", tpot_s=0.01)
    assert cell.layout is not None
    assert cell.layout["tree"][0]["readers"] > 0
    assert cell.layout["config"]["hardware"] == "cpu.yaml"


def test_no_path_of_this_machine_is_stored(run_cell: RunCell, shared_root: Path) -> None:
    cell = run_cell("system=granikv")
    text = (cell.directory / "cell.json").read_text()
    faults = str(shared_root / "faults.json")  # only the tests' own variable may name one
    assert str(shared_root) not in text.replace(faults, "")
    assert "/somewhere" not in text


def kept_log(cell: Cell) -> str:
    path = cell.directory.parent / cell.record["server"]["log"]
    return gzip.decompress(path.read_bytes()).decode()


def test_the_servers_log_is_kept_scrubbed_once_for_all_its_cells(run_cell: RunCell) -> None:
    nasty = "Receive: obj=GenerateReqInput(text='my diary') for /home/alice on GPU-12345678-1-1-1-1"
    first = run_cell(log=f"{nasty}\nDecode batch, #running-req: 3", every=32)
    again = run_cell("repetition=1")
    assert first.record["server"]["log"] == again.record["server"]["log"]
    text = kept_log(again)
    assert "Decode batch, #running-req: 3" in text
    for secret in ("diary", "alice"):
        assert secret not in text


def test_the_log_of_a_server_that_does_not_start_is_kept(run_cell: RunCell) -> None:
    why = "ValueError: no such thing as /home/alice/model"
    cell = run_cell("kv_budget=1234", refuse_start=why)
    assert not cell.valid
    assert cell.unserved
    assert "no such thing as <path>" in cell.reasons[0]
    assert "ValueError: no such thing as <path>" in kept_log(cell)
    assert "alice" not in (cell.directory / "traceback.txt").read_text()


def test_the_servers_heap_is_frozen_where_that_is_asked_for(run_cell: RunCell) -> None:
    frozen = run_cell("warmup.freeze_gc=true")
    assert frozen.valid, frozen.reasons
    assert frozen.config["warmup"]["freeze_gc"] is True
    refused = run_cell("warmup.freeze_gc=true", "repetition=1", freeze_status=404)
    assert refused.reasons == ("the server did not freeze its heap: status 404",)
    unasked = run_cell("repetition=2", freeze_status=404)
    assert unasked.valid, unasked.reasons
    assert "freeze_gc" not in unasked.config["warmup"]


def test_no_key_is_stored(run_cell: RunCell) -> None:
    cell = run_cell("+engine.environment.X_API_KEY=S3cr3t", "engine.arguments=[--api-key,S3cr3t]")
    assert cell.valid, cell.reasons
    assert "S3cr3t" not in (cell.directory / "cell.json").read_text()


def test_a_valid_cell_is_not_measured_again(
    cell_config: Callable[..., dict[str, Any]], set_faults: Callable[..., None]
) -> None:
    ready = plan(cell_config("repetition=3"))
    first = measure(ready)
    set_faults(status=500)
    again = measure(ready)
    assert again.valid
    assert again.record["started"] == first.record["started"]


def test_a_disk_that_fills_harms_no_other_cell(
    cell_config: Callable[..., dict[str, Any]],
    set_faults: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_faults()
    before, full, after = (plan(cell_config(f"repetition={r}")) for r in (10, 11, 12))
    assert measure(before).valid

    def no_space(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(parquet, "encode", no_space)
        with pytest.raises(HarnessError, match=r"cell \w+ not stored: No space left on device"):
            measure(full)
    assert measure(after).valid
    cells = {cell.id: cell for cell in load_cells(full.root)}
    assert full.id not in cells
    assert len(cells[before.id].requests) == 32
    assert measure(full).valid


def test_a_taken_port_harms_no_other_cell(run_cell: RunCell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        blocked = run_cell("kv_budget=999", f"engine.port={port}")
    assert not blocked.valid
    assert blocked.reasons == (
        f"port {port} is taken: choose another with engine.port=N, or engine.port=null",
    )
    assert blocked.record["server"]["log"] is None
    assert run_cell("repetition=14").valid


def test_an_unforeseen_error_keeps_its_traceback(
    cell_config: Callable[..., dict[str, Any]],
    set_faults: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bug(*arguments: Any) -> None:
        raise ZeroDivisionError("by zero")

    set_faults()
    monkeypatch.setattr(cache, "prime", bug)
    cell = measure(plan(cell_config("repetition=13")))
    assert cell.reasons == ("ZeroDivisionError: by zero",)
    trace = (cell.directory / "traceback.txt").read_text()
    assert "Traceback (most recent call last)" in trace
    assert "in _prepare_cache" in trace
    assert 'File "<path>/cell.py"' in trace


def test_another_seed_is_another_cell_with_other_requests(
    cell_config: Callable[..., dict[str, Any]], run_cell: RunCell
) -> None:
    cell = run_cell()
    stored = cell.record["workload"]
    assert len(stored["sha256"]) == len(stored["arrivals_sha256"]) == 64
    assert plan(cell_config()).id == cell.id
    for override in ("workload.seed=43", "load.seed=43", "workload.requests=33"):
        other = plan(cell_config(override))
        assert other.id != cell.id
        assert (other.workload.sha256, other.arrivals.sha256) != (
            stored["sha256"],
            stored["arrivals_sha256"],
        )


def test_two_programs_do_not_measure_the_same_cell(
    cell_config: Callable[..., dict[str, Any]], set_faults: Callable[..., None]
) -> None:
    set_faults()
    ready = plan(cell_config("repetition=5"))
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: measure(ready), range(2))
    assert first.valid
    assert first.record["requests_sha256"] == second.record["requests_sha256"]


def test_an_invalid_cell_is_measured_again_and_the_attempt_kept(
    cell_config: Callable[..., dict[str, Any]],
    set_faults: Callable[..., None],
    shared_root: Path,
) -> None:
    ready = plan(cell_config("repetition=4"))
    set_faults(status=500)
    assert not measure(ready).valid
    set_faults()
    assert measure(ready).valid
    assert (shared_root / "rejected" / f"{ready.id}-0" / "cell.json").is_file()
    assert [cell.valid for cell in load_cells(shared_root) if cell.id == ready.id] == [True]


def test_without_priming_the_hit_rate_is_recorded_not_judged(run_cell: RunCell) -> None:
    cell = run_cell("prime=false")
    assert cell.valid, cell.reasons
    assert cell.record["cache"]["hit_rate_designed"] is None
    assert cell.record["cache"]["state"] == "empty"
    assert 0 < cell.metrics["hit_rate"] < 1


def test_random_prompts_hit_nothing(run_cell: RunCell) -> None:
    cell = run_cell("workload=negative_control_cpu")
    assert cell.valid, cell.reasons
    assert cell.metrics["hit_rate"] == 0.0


def test_a_late_client_is_judged_when_asked(run_cell: RunCell) -> None:
    cell = run_cell("validation.send_lag_ttft_share=0", "validation.send_lag_floor_ms=0")
    assert "the client sent late" in "; ".join(cell.reasons)
    cell = run_cell("validation.loop_lag_tpot_share=1e-9")
    assert "the client read late" in "; ".join(cell.reasons)
