"""Table 1: notation (§3), with where each symbol is set in this project."""

from __future__ import annotations

from harness import paper
from harness.analysis.roofline import read_profiles
from harness.tables.sources import Sources
from harness.tables.table import Column, Table

_SYMBOLS = (
    ("L_p", "shared prefix length, tokens", "workload: prefix_length, prefix_lengths"),
    ("L_s", "suffix length, tokens", "workload: drawn per user turn"),
    ("L_out", "output length, tokens", "workload: output_tokens"),
    ("B", "requests in flight", "load: permits"),
    ("k", "distinct shared prefixes", "workload: prefix_count, prefix_lengths"),
    ("d", "width of one head", "the model"),
    ("H_kv", "KV heads per rank", "the model and TP"),
    ("n_q/kv", "query heads per KV head (GQA group)", "the model"),
    ("TP", "tensor-parallel ranks", "model: tp"),
    ("f_p", "share of the KV budget given to HOT; 0.2 in the paper", "--granikv-hot-fraction"),
    ("M_eff", "B · n_q/kv, rows of the prefix product (Eq. 2)", "computed at each decode step"),
    ("(O_p, ℓ_p)", "prefix output and its log-sum-exp", "the attention backends"),
    ("(O_s, ℓ_s)", "suffix output and its log-sum-exp", "the attention backends"),
)


def build(sources: Sources) -> Table:
    """Notation; of cells it needs none."""
    del sources
    columns = (
        Column("symbol", "Symbol"),
        Column("meaning", "Meaning"),
        Column("setting", "Set by"),
    )
    rows = [dict(zip(("symbol", "meaning", "setting"), line, strict=True)) for line in _SYMBOLS]
    rows.append(
        {"symbol": "M_sat", "meaning": _m_sat(), "setting": "hardware profile: dispatch.m_sat"}
    )
    return Table(1, "Notation (§3).", columns, rows)


def _m_sat() -> str:
    """M_sat of every hardware profile: a property of the device, re-fitted for each (§3.6).

    Where a profile has costs, `auto` follows those and M_sat serves the saturation rule alone.
    """
    fitted = []
    for profile in read_profiles(paper.ROOT / "conf" / "hardware"):
        dispatch = profile.get("dispatch") or {}
        m_sat = dispatch.get("m_sat")
        words = "not fitted yet" if m_sat is None else f"{m_sat:,}"
        if dispatch.get("cost"):
            words += " (--granikv-backend auto uses the fitted cost model there)"
        fitted.append(f"{profile['name']}: {words}")
    return "M_eff from which the saturation rule uses the dense backend; " + "; ".join(fitted)
