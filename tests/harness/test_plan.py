"""Plans: what decides a cell's identity, what does not, and what cannot be measured."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import config, paper
from harness.errors import HarnessError
from harness.models import tiny_llama
from harness.plan import CellPlan, plan
from harness.report.command import command
from harness.servers import scrub
from harness.store import load_cells

Planned = Callable[..., CellPlan]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    def make(*overrides: str, output: Path | None = None) -> CellPlan:
        start = ["experiment=cpu_base", "hardware=cpu", f"output={output or tmp_path}"]
        return plan(config.compose_cell([*start, *overrides]))

    return make


MEASURED_DIFFERENTLY = [
    "system=sglang_cascade",
    "repetition=1",
    "workload.seed=43",
    "workload.prefix_length=256",
    "workload.output_tokens=17",
    "workload.requests=33",
    "load.seed=8",
    "load.rate=201",
    "load.permits=9",
    "load=burst",
    "kv_budget=8192",
    "prime=false",
    "model.vocab_size=400",
    "engine.arguments=[--schedule-policy,lpm]",
    "+engine.environment.TUNED=1",
    "+model.shape.layers=3",
    "engine.max_running_requests=15",
    "engine.stream_interval=8",
    "warmup.requests=9",
    "hardware.server.env.OMP_NUM_THREADS=2",
    "validation.hit_rate_tolerance=0.5",
]


@pytest.mark.parametrize("override", MEASURED_DIFFERENTLY)
def test_what_is_measured_decides_the_identity(planned: Planned, override: str) -> None:
    """Seeds among it: a result must not be found under another seed's key."""
    assert planned(override).id != planned().id


@pytest.mark.parametrize(
    "override",
    [
        "engine.port=30123",
        "engine.python=/usr/bin/python3",
        "engine.start_timeout_s=5",
        "engine.linger_s=9",
        "client.request_timeout_s=5",
        "rerun=true",
        "system.title=another",
        "hardware.title=another",
        "model.title=another",
    ],
)
def test_where_and_how_long_do_not(planned: Planned, override: str) -> None:
    assert planned(override).id == planned().id


def test_the_results_directory_is_no_identity(planned: Planned, tmp_path: Path) -> None:
    elsewhere = planned("system=granikv", output=tmp_path / "elsewhere")
    here = planned("system=granikv")
    assert elsewhere.id == here.id
    assert elsewhere.server.hash == here.server.hash


@pytest.mark.parametrize(
    "override",
    ["storage.hot_fraction=0.1", "storage.admission=on_share", "hardware.dispatch.m_sat=9"],
)
def test_storage_choices_concern_storage_systems_only(planned: Planned, override: str) -> None:
    assert planned(override).id == planned().id
    assert planned(override).server.hash == planned().server.hash
    changed, base = planned("system=granikv", override), planned("system=granikv")
    assert changed.id != base.id
    assert changed.server.hash != base.server.hash


def test_the_workload_counts_by_its_tokens(planned: Planned) -> None:
    """A label of the workload changes nothing that is sent."""
    assert planned("workload.scale=7").id == planned().id


def test_cells_of_one_server_share_its_hash(planned: Planned) -> None:
    servers = {
        planned(*overrides).server.hash
        for overrides in ((), ("repetition=2",), ("workload=multi_prefix_k8_cpu",), ("load=burst",))
    }
    assert len(servers) == 1


def test_the_command_line(planned: Planned) -> None:
    ready = planned("system=granikv")
    command = ready.server.command(4321)
    text = " ".join(command)
    for expected in (
        "-m sglang.launch_server",
        "--incremental-streaming-output",
        "--skip-tokenizer-init",
        "--device cpu",
        "--max-total-tokens 16384",
        "--max-running-requests 24",
        "--granikv-backend auto",
        "--granikv-hot-fraction 0.4",
        "--host 127.0.0.1 --port 4321",
    ):
        assert expected in text
    profile = Path(command[command.index("--granikv-hardware") + 1])
    assert "m_sat: 8" in profile.read_text()
    assert ready.server.environment["SGLANG_USE_CPU_ENGINE"] == "1"


def test_ranks_on_the_cpu_have_cores_of_their_own(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {6, 4})
    name = "SGLANG_CPU_OMP_THREADS_BIND"
    assert name not in planned().server.environment
    assert planned("model.tp=2").server.environment[name] == "4|6"
    assert planned("model.tp=3").server.environment[name] == "4|6|4"
    own = planned("model.tp=2", f"+engine.environment.{name}='0|1'").server.environment
    assert own[name] == "0|1"


def test_an_override_of_the_profile_reaches_the_server(planned: Planned) -> None:
    ready = planned("system=granikv", "hardware.dispatch.m_sat=99")
    arguments = ready.server.arguments
    profile = Path(arguments[arguments.index("--granikv-hardware") + 1])
    assert "m_sat: 99" in profile.read_text()


def test_dummy_weights_of_a_published_shape(tmp_path: Path) -> None:
    overrides = ["hardware=h200", "model=qwen25_14b", f"output={tmp_path}"]
    command = " ".join(plan(config.compose_cell(overrides)).server.command(1))
    assert "--load-format dummy --tensor-parallel-size 2" in command
    assert (tmp_path / "models" / "qwen25_14b" / "config.json").is_file()


def test_the_papers_kv_budget(tmp_path: Path) -> None:
    base = ["hardware=h200", "model=llama31_8b", f"output={tmp_path}"]
    paper = plan(config.compose_cell([*base, "kv_budget=paper"]))
    assert "--max-total-tokens 148400" in " ".join(paper.server.arguments)
    full = plan(config.compose_cell([*base, "kv_budget=full"]))
    assert "--max-total-tokens" not in full.server.arguments


def test_real_weights_replace_the_shape(tmp_path: Path) -> None:
    weights = tiny_llama.write(tmp_path / "weights")
    base = ["hardware=cpu", "model=llama31_8b", f"output={tmp_path}"]
    real = plan(config.compose_cell([*base, f"model.path={weights}"]))
    assert "dummy" not in real.server.arguments
    assert str(weights) in real.server.arguments
    moved = tmp_path / "moved"
    weights.rename(moved)
    assert plan(config.compose_cell([*base, f"model.path={moved}"])).id == real.id
    (moved / "more.safetensors").write_bytes(b"x")
    assert plan(config.compose_cell([*base, f"model.path={moved}"])).id != real.id


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["system=sglang_fa3"], "sglang_fa3 needs a GPU"),
        (["kv_budget=plenty"], "kv_budget must be full, paper or a number of tokens"),
        (["kv_budget=paper"], "the paper gives no KV budget for tiny Llama"),
        (["model.source=elsewhere"], "model.source 'elsewhere' is unknown"),
        (["model=llama31_8b", "model.path=/nowhere"], "model.path=/nowhere holds no config.json"),
        (["model.name=gpt", "model.source=shape"], "no shape is shipped for model 'gpt'"),
        (["+model.shape.depth=3"], "model.shape takes only: hidden, layers"),
        (["+model.shape.q_heads=3"], "3 query heads do not divide by 2 KV heads"),
        (["load.permits=0"], "load.permits must be an integer of at least 1"),
        (["workload.prefix_length=0"], "prefix_length must be at least 1"),
        (["workload.prefix_length=20000"], "exceed the model's context of 16384"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    planned: Planned, overrides: list[str], words: str
) -> None:
    with pytest.raises(HarnessError) as caught:
        planned(*overrides)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shipped_cells_keep_their_ids(tmp_path: Path) -> None:
    """A new choice must not make a cell of before it another one."""
    shipped = load_cells(paper.ROOT / "results" / "h200")
    cell = next(cell for cell in shipped if cell.config["workload"]["kind"] == "sharegpt")
    asked = command(cell.config)
    assert asked is not None
    overrides = shlex.split(asked.removeprefix("python -m harness"))
    again = plan(config.compose_cell([*overrides, f"output={tmp_path}"]))
    assert again.id == cell.id
    assert scrub.arguments(again.server.arguments) == cell.record["server"]["arguments"]


@pytest.mark.parametrize("system", ["sglang_default", "granikv"])
def test_tokens_are_streamed_in_groups_where_asked(planned: Planned, system: str) -> None:
    usual, grouped = (
        planned(f"system={system}", *more) for more in ((), ("engine.stream_interval=8",))
    )
    assert "--stream-interval 8" in " ".join(grouped.server.arguments)
    assert grouped.config["engine"]["stream_interval"] == 8
    assert "--stream-interval" not in usual.server.arguments
    assert "stream_interval" not in usual.config["engine"]


def test_the_title_names_system_workload_and_length(planned: Planned) -> None:
    assert planned("system=granikv").title == "granikv sharegpt_cpu 512 rep 0"


def test_paths_of_the_user_are_not_stored(planned: Planned) -> None:
    stored: Any = planned("engine.python=/opt/secret/python").config
    assert "python" not in stored["engine"]
    assert "output" not in stored


def test_a_cost_model_is_stored_by_its_hash(planned: Planned) -> None:
    """Hundreds of steps would be copied into every cell otherwise; they still count."""
    with_costs = "+hardware.dispatch.cost={paged:{fa3:{launch_us:1}}}"
    other = "+hardware.dispatch.cost={paged:{fa3:{launch_us:2}}}"
    first, second = (planned("system=granikv", cost) for cost in (with_costs, other))
    assert isinstance(first.config["hardware"]["dispatch"]["cost"], str)
    assert first.id != second.id
