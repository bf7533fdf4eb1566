"""Table 22: Amdahl's bridge from the kernel's gain to the whole (§4.6, B.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness import paper
from harness.analysis import amdahl
from harness.analysis.statistics import Estimate
from harness.tables import table05
from harness.tables.comparison import Comparison, Row
from harness.tables.computed import Computed
from harness.tables.entries import Kind, Measured
from harness.tables.metrics import TO_DEFAULT
from harness.tables.numbers import Point
from harness.tables.sources import CellSource, Sources
from harness.tables.table import Column, Table

B, L_P = 256, 16384
PROBE = "kineto"
SHARES = ("alpha", "beta", "gamma")


def profiled(point: Point) -> Point:
    """The traced cell of SGLang default at a row's place."""
    return Point(point.config, "sglang_default", point.workload, point.b, point.l_p).with_traits(
        probe=PROBE
    )


def _share(name: str, title: str) -> Computed:
    """One share of the decode step's wall time, %, from the traced cell."""
    key = f"{name}_pct"

    def compute(source: CellSource, point: Point) -> Measured:
        return source.mean(source.runs(profiled(point), key))

    return Computed(key, title, Kind.PERCENT, compute)


@dataclass(frozen=True)
class Terms:
    """What the bridge is computed from: estimates by name, and the cells behind them.

    alpha, beta and gamma are fractions; s is the kernel's gain (Table 5), measured the end-to-end
    one.
    """

    values: dict[str, Estimate]
    cells: tuple[str, ...]

    def through(self, law: Callable[[dict[str, float]], float]) -> Measured:
        """A law of the terms. Its interval is the law's range over the terms' own intervals."""
        centre = law({name: one.value for name, one in self.values.items()})
        ends = [centre]
        for name, one in self.values.items():
            for bound in (one.low, one.high):
                ends.append(law({n: o.value for n, o in self.values.items()} | {name: bound}))
        runs = min(one.runs for one in self.values.values())
        if runs < 2:
            return Measured(Estimate(centre, centre, centre, 1), self.cells)
        return Measured(Estimate(centre, min(ends), max(ends), runs), self.cells)


def _bridge(
    key: str, title: str, needs: tuple[str, ...], law: Callable[[dict[str, float]], float]
) -> Computed:
    """A number computed from the measured terms of this hardware."""

    def compute(source: CellSource, point: Point) -> Measured:
        return terms(source, point, needs).through(law)

    return Computed(key, title, Kind.RATIO, compute)


def terms(source: CellSource, point: Point, needs: tuple[str, ...]) -> Terms:
    """The named terms at a row's place. Raises LookupError where one was not measured."""
    values: dict[str, Estimate] = {}
    cells: tuple[str, ...] = ()
    for name in needs:
        entry = _term(source, point, name)
        values[name] = entry.estimate
        cells += tuple(one for one in entry.cells if one not in cells)
    return Terms(values, cells)


def _term(source: CellSource, point: Point, name: str) -> Measured:
    if name == "measured":
        default = Point(point.config, "sglang_default", point.workload, point.b, point.l_p)
        number = TO_DEFAULT.name
        return source.ratio(source.runs(point, number), source.runs(default, number))
    if name == "s":
        wall = "kernel_wall_us"
        hot = table05.point("HOT", "shared")
        return source.ratio(source.runs(table05.BASELINE, wall), source.runs(hot, wall))
    share = "nccl" if name == "beta" else {"alpha": "prefix_attention", "gamma": "host_gap"}[name]
    return source.mean(source.runs(profiled(point), f"share_{share}"))


def _with_kernel(of: dict[str, float]) -> float:
    return amdahl.speedup(amdahl.share_of_kernel_time(of["alpha"], of["gamma"]), of["s"])


def _with_fixed(of: dict[str, float]) -> float:
    return amdahl.speedup_with_fixed_terms(of["alpha"], of["beta"], of["gamma"], of["s"])


def _effective(of: dict[str, float]) -> float:
    s_eff = amdahl.effective_kernel_speedup(of["alpha"], of["measured"])
    if s_eff == float("inf"):
        raise ValueError("the gain is above what removing prefix attention would give: no s_eff")
    return s_eff


TABLE = Comparison(
    number=22,
    title="From the kernel's gain to the whole: Amdahl's law at L_p = 16K, B = 256, ShareGPT.",
    labels=(Column("config", "Model / TP"),),
    metrics=(
        _share("alpha", "α"),
        _share("beta", "β"),
        _share("gamma", "γ"),
        _bridge("predicted_kernel_s", "S (s)", ("alpha", "gamma", "s"), _with_kernel),
        _bridge("predicted_with_beta_gamma", "S (+β, γ)", (*SHARES, "s"), _with_fixed),
        _bridge("measured", "measured", ("measured",), lambda of: of["measured"]),
        _bridge("s_eff", "s_eff", ("alpha", "measured"), _effective),
    ),
    rows=[
        Row({"config": config}, Point(config, "granikv", "sharegpt", B, L_P))
        for config in paper.CONFIGS
    ],
    command="python -m harness -m experiment=table22 (and experiment=table05)",
    notes=(
        "α: prefix attention's share of SGLang default's decode time, β: NCCL's, γ: the GPU is "
        "idle; from a kernel timeline whose overlaps count once. α holds the suffix too, where one "
        "launch reads both (Table 13).",
        "S (s) takes α of the time the GPU is busy, α/(1 − γ), which the paper's numbers need and "
        "its text does not say. β and γ cancel in Eq. 4, so S (+β, γ) is Eq. 3.",
        "s_eff is the kernel gain that Eq. 3 needs for the measured ratio; s is Table 5's, of "
        "L_p = 8K.",
    ),
)


def build(sources: Sources) -> Table:
    """Three models: shares, both predictions, the measured gain and s_eff."""
    return TABLE.build(sources)
