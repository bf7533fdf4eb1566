"""What tables, figures and claims ask of a cell, and where each cell stands in the paper's terms.

Everything here reads one cell through `CellLike`; it is the only place that knows the keys of a
cell's configuration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from harness import paper
from harness.errors import HarnessError
from harness.models.tiny_llama import TinyLlama

SYSTEMS = {
    "sglang_default": "SGLang default",
    "sglang_cascade": "SGLang-Cascade",
    "cascade_on_granikv": "SGL-C/GKV",
    "granikv": "GraniKV",
}
"""The paper's systems by name (`conf/system/`), in its order (§4.3, Table 13)."""

MODEL_CONFIGS = {
    "llama31_8b": paper.LLAMA_8B,
    "qwen25_14b": paper.QWEN_14B,
    "qwen25_32b": paper.QWEN_32B,
}
"""The paper's three winning configurations by the model's name (`conf/model/`)."""

STORAGE_SYSTEMS = frozenset(
    {
        "granikv",
        "granikv_dense",
        "granikv_cascade",
        "granikv_hydragen",
        "granikv_contiguous_unshared",
        "cascade_on_granikv",
    }
)
"""Systems with HOT/COLD storage: f_p and the COLD page size mean something to them alone."""

KERNEL = "kernel"
"""`workload.kind` of a microbenchmark cell, which serves nothing."""


class CellLike(Protocol):
    """A cell as `harness.store.load_cells` returns it.

    config: the resolved configuration (system, workload, load, model, hardware, repetition).
    metrics: numbers by name, units in the names (`output_tok_s`, `tpot_p50_ms`, `ttft_p50_s`, ...).
    valid, reasons: whether the cell passed validation and, if not, why.
    state: the GraniKV part of the server's `/server_info` after the load, or None without one.
    layout: the same while requests were in flight, after the measured load.
    record: all of cell.json.
    """

    @property
    def id(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def metrics(self) -> Mapping[str, Any]: ...
    @property
    def valid(self) -> bool: ...
    @property
    def reasons(self) -> Sequence[str]: ...
    @property
    def state(self) -> Mapping[str, Any] | None: ...
    @property
    def layout(self) -> Mapping[str, Any] | None: ...
    @property
    def record(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Standing:
    """Where a cell stands: hardware, model, system, workload and load.

    prefix_lengths: tokens, as measured; times `scale` they are the paper's L_p. b: the load's
    permits, or all requests of a burst, or the rows of a kernel. paper_b: the paper's B that a
    scaled-down cell says it stands for. functional: a CPU cell, which checks that things work and
    says nothing about speed. hot_fraction: f_p, and page_size: COLD's, in tokens, where the system
    has them. kv_budget: `paper`, `full` or a number of tokens. probe: the profiler that was
    attached (empty: none), whose cost keeps such a cell out of the tables of speed. layout, read,
    backend: of a kernel cell. admission: which prefixes become slabs, where the system has any.
    trace: of recorded traffic, its name. deviations: how many storage choices are not the paper's.
    stream_interval: output tokens that a streamed event holds.
    """

    hardware: str
    title: str
    functional: bool
    model: str
    system: str
    kind: str
    prefix_lengths: tuple[int, ...]
    scale: int
    b: int | None
    repetition: int
    paper_b: int | None = None
    rate: float = 0.0
    hot_fraction: float | None = None
    page_size: int | None = None
    kv_budget: str = "full"
    probe: str = ""
    layout: str = ""
    read: str = ""
    backend: str = ""
    admission: str | None = None
    trace: str = ""
    deviations: int = 0
    stream_interval: int = 1

    @property
    def k(self) -> int:
        """Number of distinct prefixes."""
        return len(self.prefix_lengths)

    @property
    def paper_lengths(self) -> tuple[int, ...]:
        """The L_p that the measured lengths stand for, in tokens, ascending."""
        return tuple(sorted(length * self.scale for length in self.prefix_lengths))

    @property
    def unequal(self) -> bool:
        """Whether the prefixes differ in length."""
        return len(set(self.prefix_lengths)) > 1


def _group(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    group = config.get(name)
    return group if isinstance(group, Mapping) else {}


def _prefix_lengths(workload: Mapping[str, Any]) -> tuple[int, ...]:
    unequal = workload.get("prefix_lengths")
    if unequal:
        return tuple(int(length) for length in unequal)
    length = workload.get("prefix_length")
    if length is None:
        return ()
    return (int(length),) * int(workload.get("prefix_count") or 1)


def _model(config: Mapping[str, Any]) -> str:
    model = _group(config, "model")
    name = str(model.get("name", "unknown model"))
    shown = MODEL_CONFIGS[name].partition("/")[0] if name in MODEL_CONFIGS else name
    return f"{shown}/TP={int(model.get('tp') or 1)}"


def _b(config: Mapping[str, Any]) -> int | None:
    load, workload = _group(config, "load"), _group(config, "workload")
    b = load.get("permits")
    if b is None and load.get("kind") == "burst":
        b = workload.get("requests")
    if b is None:
        b = workload.get("rows")
    return None if b is None else int(b)


def _page_size(config: Mapping[str, Any]) -> int | None:
    size = _group(config, "system").get("page_size")
    if isinstance(size, Mapping):
        size = size.get(_group(config, "hardware").get("device"))
    return None if size is None else int(size)


def _kv_budget(config: Mapping[str, Any]) -> str:
    budget = config.get("kv_budget", "full")
    of_paper = _group(config, "model").get("kv_budget_paper")
    return "paper" if of_paper is not None and budget == of_paper else str(budget)


def _stream_interval(config: Mapping[str, Any]) -> int:
    return int(_group(config, "engine").get("stream_interval") or 1)


def _deviations(config: Mapping[str, Any], page_size: int | None) -> int:
    """Choices of a storage system other than the paper's: its f_p, eager, LRU, COLD page 1."""
    storage = _group(config, "storage")
    asked = _group(config, "workload").get("hot_fraction")
    return sum(
        (
            asked is not None and storage.get("hot_fraction", asked) != asked,
            storage.get("admission", "eager") != "eager",
            storage.get("eviction", "lru") != "lru",
            page_size not in (None, 1),
        )
    )


def standing(cell: CellLike) -> Standing:
    """Read a cell's configuration. Missing groups give empty values: an odd cell fits no row."""
    config = cell.config
    hardware, workload, load = (_group(config, n) for n in ("hardware", "workload", "load"))
    name = str(hardware.get("name", "unknown hardware"))
    system, b, page_size = str(_group(config, "system").get("name", "")), _b(config), None
    stores = system in STORAGE_SYSTEMS
    if stores:
        page_size = _page_size(config)
    hot_fraction = _group(config, "storage").get("hot_fraction", workload.get("hot_fraction"))
    layout = str(workload.get("layout", ""))
    return Standing(
        hardware=name,
        title=str(hardware.get("title", name)),
        functional=hardware.get("device") == "cpu",
        model=_model(config),
        system=system,
        kind=str(workload.get("kind", "")),
        prefix_lengths=_prefix_lengths(workload),
        scale=int(workload.get("scale") or 1),
        b=b,
        repetition=int(config.get("repetition") or 0),
        paper_b=b * int(load["scale"]) if b is not None and load.get("scale") else None,
        rate=float(load.get("rate") or 0.0),
        hot_fraction=float(hot_fraction) if stores and hot_fraction is not None else None,
        page_size=page_size,
        kv_budget=_kv_budget(config),
        probe=str(_group(config, "profile").get("kind") or ""),
        layout=layout,
        read=str(workload.get("read", "shared" if layout == "HOT" else "unshared")),
        backend=str(workload.get("backend", "dense")),
        admission=str(_group(config, "storage").get("admission", "eager")) if stores else None,
        trace=str(workload.get("trace") or ""),
        deviations=_deviations(config, page_size) if stores else 0,
        stream_interval=_stream_interval(config),
    )


def model_shape(cell: CellLike) -> tuple[int, int] | None:
    """(query heads, KV heads) of the cell's model, all ranks; None for one not known by name."""
    name = str(_group(cell.config, "model").get("name"))
    if name == "tiny":
        tiny = TinyLlama()
        return tiny.q_heads, tiny.kv_heads
    shape = paper.ROOT / "harness" / "models" / "shapes" / f"{name}.json"
    if name not in MODEL_CONFIGS or not shape.is_file():
        return None
    model = json.loads(shape.read_text("utf-8"))
    return int(model["num_attention_heads"]), int(model["num_key_value_heads"])


def group_size(cell: CellLike) -> int | None:
    """n_q/kv, query heads to a KV head, of the cell's model; None for a model not known by name."""
    heads = model_shape(cell)
    return None if heads is None else heads[0] // heads[1]


def m_sat(cell: CellLike) -> int | None:
    """M_sat of the hardware profile that the cell was measured with; None where not fitted."""
    threshold = _group(_group(cell.config, "hardware"), "dispatch").get("m_sat")
    return None if threshold is None else int(threshold)


def revision(cell: CellLike) -> str | None:
    """The commit that measured the cell; None where it does not say."""
    commit = _group(_group(cell.record, "environment"), "revision").get("commit")
    return None if commit is None else str(commit)


def prefill_backend(cell: CellLike) -> tuple[str, int] | None:
    """(attention backend, page size in tokens) of the cell's server in prefill, by its own word."""
    facts = _group(_group(cell.record, "server"), "facts")
    backend = facts.get("prefill_attention_backend") or facts.get("attention_backend")
    page_size = facts.get("page_size")
    return None if backend is None or page_size is None else (str(backend), int(page_size))


EQ_2 = "dense when rows * n_q/kv >= "
FITTED = "the least predicted time of "
"""How a server's own words for its dispatch rule begin, by rule (`granikv.dispatch`)."""


def dispatch_rule(cell: CellLike) -> str:
    """What the server said of how it chose a step's backend; empty where it told nothing."""
    return str(_group(cell.state or {}, "backends").get("rule") or "")


def setting(cell: CellLike) -> str:
    """What two systems must have in common to be compared: everything asked of them, as JSON.

    f_p rides in the workload's configuration but belongs to GraniKV, so it is left out. Of the
    engine the stream interval counts: with another, more or less of its output is delivered.
    """
    config = cell.config
    names = ("model", "workload", "load", "kv_budget", "prime", "profile")
    asked = {name: config.get(name) for name in names}
    asked["stream_interval"] = _stream_interval(config)
    workload = {k: v for k, v in _group(config, "workload").items() if k != "hot_fraction"}
    return json.dumps(asked | {"workload": workload}, sort_keys=True, default=str)


def variant(cell: CellLike) -> str:
    """What repetitions have in common: the setting, the system and its storage choices."""
    choices = {name: cell.config.get(name) for name in ("system", "storage")}
    return setting(cell) + json.dumps(choices, sort_keys=True, default=str)


def number(cell: CellLike, metric: str) -> float | None:
    """A finite metric of the cell, or None where it was not measured."""
    raw = cell.metrics.get(metric)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        return None
    return float(raw)


POOL_NUMBERS = frozenset(
    {
        "capacity",
        "page_size",
        "hot_start",
        "hot_size",
        "hot_free",
        "hot_live",
        "hot_donated",
        "cold_free",
        "cold_live",
    }
)
"""What a server tells of its pools, in slots; a state that lacks one is of another version."""


def server_state(cell: CellLike) -> Mapping[str, Any] | None:
    """The server's tree and whole pools, under load if they were seen then, else after it."""
    for state in (cell.layout, cell.state):
        if state and state.get("tree") and set(state.get("pools") or ()) >= POOL_NUMBERS:
            return state
    return None


def counters(cell: CellLike) -> dict[str, int]:
    """GraniKV's counters over the measured load alone, since a server outlives a cell."""
    after = _group(cell.state or {}, "counters")
    before = _group(_group(cell.record, "server"), "counters_before")
    return {name: int(count) - int(before.get(name, 0)) for name, count in after.items()}


def requests(cell: CellLike) -> pd.DataFrame | None:
    """The cell's request log (`harness.store.REQUEST_COLUMNS`); None where it cannot be had."""
    try:
        log = getattr(cell, "requests", None)
    except HarnessError:
        return None
    return log if isinstance(log, pd.DataFrame) and not log.empty else None


def by_hardware(cells: Iterable[CellLike]) -> dict[str, list[CellLike]]:
    """Cells by hardware name, both sorted: names alphabetically, cells by id."""
    groups: dict[str, list[CellLike]] = {}
    for cell in sorted(cells, key=lambda c: c.id):
        groups.setdefault(standing(cell).hardware, []).append(cell)
    return dict(sorted(groups.items()))
