"""The paper's tables rebuilt from the transcription, ordered and doubled like the extracted text.

The extraction prints most numbers twice (`34783478` is 3478, `449 0449` is 449 with its padding)
and a ratio as `1.35×1.35×`. Each function yields a whole table's tokens as regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pandas as pd

from harness import paper

SYSTEMS = ("sglang_default", "sglang_cascade", "granikv")
NAMES = {
    paper.LLAMA_8B: "Llama-3.1-8B / TP=1",
    paper.QWEN_14B: "Qwen-2.5-14B / TP=2",
    paper.QWEN_32B: "Qwen-2.5-32B / TP=4",
}
Tokens = Iterator[str]


def doubled(text: str) -> str:
    """`3478` as the extraction prints it: `34783478`, or `449 0449` where it was padded."""
    once = re.escape(text)
    return rf"{once} ?0*{once}"


def times(text: str) -> str:
    """`1.35` as `1.35×1.35×`."""
    return doubled(text + "×")


def percent(text: str) -> str:
    """`60.1` as `60.1%60.1\\%`."""
    return re.escape(text) + "%" + re.escape(text) + r"\\%"


def length(tokens: int) -> str:
    """16384 as `16K`, 512 as `512`."""
    return f"{tokens // 1024}K" if tokens >= 1024 else str(tokens)


def cell(frame: pd.DataFrame, **key: str | int) -> str:
    """One printed number."""
    return paper.printed(frame, **key)


def table03(frame: pd.DataFrame) -> Tokens:
    for config in paper.CONFIGS:
        yield re.escape(NAMES[config])
        for l_p in (4096, 8192, 16384):
            row = paper.select(frame, config=config, l_p=l_p)
            yield doubled(length(l_p))
            for system in SYSTEMS:
                yield doubled(cell(row, system=system, metric="output_tok_s"))
            for baseline in SYSTEMS[:2]:
                yield times(cell(row, metric=f"ratio_to_{baseline}"))


def table02(frame: pd.DataFrame) -> Tokens:
    for config in paper.CONFIGS:
        yield re.escape(config.split("/")[0])
        for metric in ("tp", "n_q_per_kv", "kv_heads_per_rank"):
            yield cell(frame, config=config, metric=metric)


def table04(frame: pd.DataFrame) -> Tokens:
    for system, name in zip(SYSTEMS, ("SGLang default", "SGLang-Cascade", "GraniKV"), strict=True):
        yield name
        for k in (4, 8):
            yield times(cell(frame, system=system, k=k))


def table05(frame: pd.DataFrame) -> Tokens:
    for case in ("shared (HOT)", "unique (paged)"):
        yield re.escape(case)
        yield doubled(cell(frame, case=case, metric="kernel_wall_us"))
        yield doubled(cell(frame, case=case, metric="hbm_gb_s"))
        yield times(cell(frame, case=case, metric="speedup"))


def grid(frame: pd.DataFrame) -> Tokens:
    """Tables 6–11: one row an (L_p, B), numbers printed once and the ratio twice."""
    for l_p, b in frame[["l_p", "b"]].drop_duplicates().itertuples(index=False):
        row = paper.select(frame, l_p=l_p, b=b)
        yield length(l_p)
        yield str(b)
        for system in SYSTEMS:
            yield cell(row, system=system, metric="output_tok_s")
        yield times(cell(row, metric="ratio_to_sglang_default"))
        for metric in ("tpot_p50_ms", "ttft_p50_s"):
            for system in SYSTEMS:
                yield re.escape(cell(row, system=system, metric=metric))


def table12(frame: pd.DataFrame) -> Tokens:
    short = ("Llama-8B/TP=1", "Qwen-14B/TP=2", "Qwen-32B/TP=4")
    for config, name in zip(paper.CONFIGS, short, strict=True):
        row = paper.select(frame, config=config)
        yield name
        for b in (256, 512, 1024):
            yield doubled(cell(row, b=b, metric="output_tok_s"))
        yield doubled(cell(row, metric="peak_b"))


def breakdown(frame: pd.DataFrame) -> Tokens:
    """Tables 13 and 14."""
    for case in ("Prefix attention", "Decode attention", "Linear GEMM", "Total kernel"):
        yield case
        for system in (*SYSTEMS[:2], "cascade_on_granikv", SYSTEMS[2]):
            yield doubled(cell(frame, case=case, system=system))


def table15(frame: pd.DataFrame) -> Tokens:
    for l_p in (512, 2048, 8192, 16384):
        yield length(l_p)
        for b in (8, 32, 128, 256):
            yield doubled(cell(frame, l_p=l_p, b=b)) + "%"
        yield cell(frame, l_p=l_p, metric="majority")


def table16(frame: pd.DataFrame) -> Tokens:
    for b in (8, 32, 128, 256):
        row = paper.select(frame, b=b)
        yield doubled(str(b))
        yield doubled(cell(row, metric="m_eff"))
        for system in ("granikv", "sglang_cascade"):
            yield doubled(cell(row, system=system, metric="tpot_p50_ms"))
        yield times(cell(row, metric="tpot_ratio_to_sglang_cascade"))


def table17(frame: pd.DataFrame) -> Tokens:
    yield r"Dense-backend launches in 1515 s"
    yield doubled(cell(frame, metric="dense_launches_in_15_s"))
    yield "Kernel wall / launch"
    yield cell(frame, metric="kernel_wall_us") + r"μ\d+\\,"
    yield "Wrapper CPU / step"
    yield "<" + cell(frame, metric="wrapper_cpu_us_below") + r"μ<1\\,"
    yield "Wrapper % of step"
    yield "<" + re.escape(cell(frame, metric="wrapper_step_pct_below")) + "%"


def table18(frame: pd.DataFrame) -> Tokens:
    names = {paper.LLAMA_8B: "Llama-8B / TP=1", paper.QWEN_32B: "Qwen-32B / TP=4"}
    for config, name in names.items():
        row = paper.select(frame, config=config)
        yield name
        for size in (1, 4, 16):
            yield doubled(cell(row, case=f"page size {size}"))
        yield percent(cell(row, metric="spread_pct"))


def table19(frame: pd.DataFrame) -> Tokens:
    for config in frame["config"].drop_duplicates():
        row = paper.select(frame, config=config)
        model, _, tp = re.sub(r"-\d\.\d", "", config).partition("/")
        yield f"{model} / {tp}"
        for metric in ("kv_heads_per_rank", "nccl", "kv_memory"):
            yield re.escape(cell(row, metric=metric))
        yield times(cell(row, metric="ratio_to_sglang_default"))
        yield re.escape(cell(row, metric="regime"))


def table20(frame: pd.DataFrame) -> Tokens:
    ks = (1, 4, 16, 64)
    for system, name in zip(SYSTEMS, ("SGLang default", "SGLang-Cascade", "GraniKV"), strict=True):
        yield name
        for k in ks:
            yield doubled(cell(frame, system=system, k=k, metric="output_tok_s"))
    for name, baseline in (("SGL", "sglang_default"), ("SGL-C", "sglang_cascade")):
        yield f"GraniKV / {name}"
        for k in ks:
            yield times(cell(frame, k=k, metric=f"ratio_to_{baseline}"))


def table21(frame: pd.DataFrame) -> Tokens:
    for k in (4, 8):
        yield rf"k={k}k={k}: .*? slab tokens\)"
        for system, name in zip(
            SYSTEMS, ("SGLang default", "SGLang-Cascade", "GraniKV"), strict=True
        ):
            row = paper.select(frame, k=k, system=system)
            tok_s = cell(row, metric="output_tok_s")
            yield name
            # GraniKV's throughput is set in bold and comes through once.
            yield tok_s if system == "granikv" else doubled(tok_s)
            yield times(cell(row, metric="ratio_to_sglang_default"))
            yield doubled(cell(row, metric="tpot_p50_ms"))
            yield "/"
            yield doubled(cell(row, metric="tpot_p99_ms"))
            yield doubled(cell(row, metric="ttft_p50_s"))


def table22(frame: pd.DataFrame) -> Tokens:
    short = ("Llama-8B/TP=1", "Qwen-14B/TP=2", "Qwen-32B/TP=4")
    for config, name in zip(paper.CONFIGS, short, strict=True):
        row = paper.select(frame, config=config)
        yield name
        for metric in ("alpha_pct", "beta_pct", "gamma_pct"):
            yield percent(cell(row, metric=metric))
        for metric in ("predicted_kernel_s", "predicted_with_beta_gamma", "measured", "s_eff"):
            yield times(cell(row, metric=metric))


def table23(frame: pd.DataFrame) -> Tokens:
    def both(metric: str) -> tuple[str, str]:
        return (
            cell(frame, case="shared (HOT)", metric=metric),
            cell(frame, case="unique (paged)", metric=metric),
        )

    rows: tuple[tuple[str, str, Callable[[str], str]], ...] = (
        (r"DRAM bytes read / launch", "dram_read", lambda v: doubled(v) + " (?:MB|GB)"),
        (r"L2 hit rate", "l2_hit_pct", percent),
        (r"Tensor-core pipe active", "tensor_pipe_active_pct", percent),
        (r"Waves per SM", "waves_per_sm", doubled),
        (r"Wall time .*?\)", "kernel_wall_us", lambda v: v + r"μ\d+\\,"),
        (r"Useful throughput", "throughput", lambda v: doubled(v) + " TF/s"),
        (r"Achieved DRAM bandwidth", "dram_bandwidth", lambda v: doubled(v) + " GB/s"),
        (r"Arithmetic intensity", "intensity", lambda v: doubled(v) + " F/B"),
    )
    hot, paged = both("over_byte_model_pct")
    for index, (name, metric, written) in enumerate(rows):
        yield name
        yield from (written(value) for value in both(metric))
        if index == 0:
            yield rf"vs\. byte model \+{hot}%\+{hot}\\% \(Q, meta\) \+{re.escape(paged)}%\S+"


def table24(frame: pd.DataFrame) -> Tokens:
    rows = [(f"f_p = {f}", f) for f in ("0.05", "0.1", "0.2", "0.4", "0.6", "0.8")]
    for case, fraction in rows:
        yield doubled(fraction) + "†?"
        yield from _sensitivity(paper.select(frame, case=case))
    yield "Cascade"
    yield from _sensitivity(paper.select(frame, system="sglang_cascade"))


def _sensitivity(row: pd.DataFrame) -> Tokens:
    yield doubled(cell(row, metric="output_tok_s"))
    yield times(cell(row, metric="ratio_to_cascade"))
    yield doubled(cell(row, metric="tpot_p50_ms"))
    yield "/"
    yield doubled(cell(row, metric="tpot_p99_ms"))
    yield doubled(cell(row, metric="ttft_p50_s"))


TABLES: dict[int, Callable[[pd.DataFrame], Tokens]] = {
    2: table02, 3: table03, 4: table04, 5: table05,
    **dict.fromkeys(range(6, 12), grid),
    12: table12, 13: breakdown, 14: breakdown, 15: table15, 16: table16, 17: table17,
    18: table18, 19: table19, 20: table20, 21: table21, 22: table22, 23: table23, 24: table24,
}  # fmt: skip
