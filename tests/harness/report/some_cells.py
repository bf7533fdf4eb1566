"""A few made-up cells with which every part of the page has something to show."""

from __future__ import annotations

from tests.harness.analysis.made_up import MadeUpCell, cpu_cell, pools, tree_node
from tests.harness.campaign import K4, kernel, serving

SYSTEMS = ("sglang_default", "sglang_cascade", "granikv")


def here() -> list[MadeUpCell]:
    """CPU cells of the tiny model, one of them not valid, and the layout of a live server."""
    state = {
        "pools": pools(1, 8192, 960, 400, 7024),
        "tree": [tree_node(n, None, 0, 64 * n, 64 * n, 2) for n in (1, 2, 4, 8)],
    }
    cells = [cpu_cell(system, 900.0 + n, lengths=(512,)) for n, system in enumerate(SYSTEMS)]
    four = cpu_cell("granikv", 950.0, kind="multi_prefix", lengths=(64, 128, 256, 512))
    storage = {"storage": {"hot_fraction": 0.5}}
    live = MadeUpCell(four.id, dict(four.config) | storage, four.metrics, state=state, layout=state)
    hostile = cpu_cell(
        "granikv", 1.0, lengths=(256,), valid=False, reasons=("</script><img src=x onerror=hit>",)
    )
    return [*cells, live, hostile]


def shipped() -> list[MadeUpCell]:
    """GPU cells of Tables 3, 5, 20, 21 and 22; three repetitions of the headline."""
    headline = [
        serving(system, "sharegpt", (16384,), 256, repetition=run)
        for system in SYSTEMS
        for run in range(3)
    ]
    wavering = [
        MadeUpCell(
            cell.id,
            cell.config,
            dict(cell.metrics)
            | {"output_tok_s": cell.metrics["output_tok_s"] * (0.98 + 0.02 * (n % 3))},
            state=cell.state,
            record=cell.record,
        )
        for n, cell in enumerate(headline)
    ]
    traced = serving("sglang_default", "sharegpt", (16384,), 256, profile={"kind": "kineto"})
    unequal = [serving(system, "multi_prefix", K4, 256, k=4) for system in SYSTEMS]
    kernels = [kernel("HOT", "shared"), kernel("paged", "unshared")]
    return [*wavering, traced, *unequal, *kernels]
