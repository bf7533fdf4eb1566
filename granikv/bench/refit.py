"""A profile's cost model from recorded steps, no GPU needed: `python -m granikv.bench.refit`.

    python -m granikv.bench.refit results/h200/dispatch/steps.json --profile conf/hardware/h200.yaml

Anybody can so check a shipped profile against the times it was fitted to, or fit them anew after a
change of the model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from granikv.cost import CostModel, Geometry, Reads, Tile
from granikv.fit import Sample, fit_paged, fit_shared
from granikv.hardware import ProfileError, load_profile, write_profile


def cost_of(recorded: Mapping[str, Any]) -> CostModel:
    """The fit to recorded steps.

    recorded holds `steps`: by child, each with rows, own ((row, token) pairs outside shared
    ranges), lengths and readers of the ranges, kv_heads, group and us of one layer; `tiles` of the
    sharing children; `head_width` and `element_bytes`.
    """
    samples = {
        child: [_sample(step, recorded) for step in steps]
        for child, steps in recorded["steps"].items()
    }
    tiles = {child: Tile(**tile) for child, tile in recorded["tiles"].items()}
    return CostModel(
        {child: fit_paged(s) for child, s in samples.items() if child not in tiles},
        {child: fit_shared(samples[child], tile) for child, tile in tiles.items()},
    )


def _sample(step: Mapping[str, Any], recorded: Mapping[str, Any]) -> Sample:
    width, size = recorded["head_width"], recorded["element_bytes"]
    lengths = np.array(step["lengths"], dtype=np.float64)
    readers = np.array(step["readers"], dtype=np.float64)
    reads = Reads(step["rows"], step["own"], step["own"], lengths, readers)
    geometry = Geometry(step["kv_heads"], step["group"], width, width, size)
    return Sample(reads, geometry, step["us"])


def main(argv: Sequence[str] | None = None) -> int:
    """Fit and rewrite the profile."""
    parser = argparse.ArgumentParser("python -m granikv.bench.refit", description=__doc__)
    parser.add_argument("steps", type=Path, help="recorded steps, JSON")
    parser.add_argument("--profile", type=Path, required=True, help="profile whose cost to replace")
    options = parser.parse_args(argv)
    try:
        cost = cost_of(json.loads(options.steps.read_text(encoding="utf-8")))
        write_profile(replace(load_profile(options.profile), cost=cost), options.profile)
    except (OSError, ValueError, KeyError, ProfileError) as error:
        print(f"error: {options.steps}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    for name, residuals in cost.residuals.items():
        print(f"{name}: {residuals.points} steps, median error {residuals.median:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
