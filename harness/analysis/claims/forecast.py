"""`python -m harness.analysis.claims.forecast`: the minutes of claims.yaml, forecast anew.

Plans each claim's command for as many H200s as it asks for, in the sweep's default order and with
nothing measured yet, estimates as `python -m harness.reproduce --dry-run` does, and rounds up to
five minutes. Exit status 1 where the file says otherwise; `--write` corrects it. What runs without
a GPU was measured and is left alone.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import yaml

from harness import paper, store
from harness.analysis.claims.claim import FILE, SWEEP, Claim, load
from harness.errors import HarnessError
from harness.files import write_text
from harness.servers.gpus import VISIBLE
from harness.sweeps.entry import schedule
from harness.sweeps.estimate import Estimator
from harness.sweeps.order import arrange

SWEEPER = paper.ROOT / "conf" / "hydra" / "sweeper" / "cells.yaml"
STEP = 5
"""Minutes; an estimate is no finer."""

Need: TypeAlias = tuple[str, str]
"""A command, and the GPUs as the claim words them."""


def needs(claims: Iterable[Claim]) -> dict[Need, list[Claim]]:
    """The claims by what measures them on GPUs, in the file's order."""
    found: dict[Need, list[Claim]] = {}
    for claim in claims:
        if claim.command.startswith(SWEEP) and gpus(claim.gpu):
            found.setdefault((claim.command, claim.gpu), []).append(claim)
    return found


def gpus(wording: str) -> int:
    """How many GPUs a claim asks for: 2 of "2 GPUs, 40 GB", 0 of "no GPU"."""
    number = re.match(r"\d+", wording)
    return int(number[0]) if number else 0


def rounded(seconds: float) -> int:
    """Minutes, rounded up to STEP."""
    return max(1, math.ceil(seconds / 60 / STEP)) * STEP


def forecast(need: Need, estimator: Estimator, output: Path) -> int:
    """Minutes of a command on so many GPUs, whether or not this machine has them.

    output: a results directory without cells. Raises HarnessError for a command of which
    nothing can be planned.
    """
    command, wording = need
    os.environ[VISIBLE] = ",".join(map(str, range(gpus(wording))))
    line = [*shlex.split(command.removeprefix(SWEEP)), f"output={output}"]
    order = str(yaml.safe_load(SWEEPER.read_text("utf-8"))["order"])
    planned = schedule([line])
    if not planned.entries:
        raise HarnessError(f"{command}: {'; '.join(planned.refused.values())}")
    return rounded(estimator.forecast(arrange(planned.entries, order)).seconds)


def corrected(text: str, need: Need, minutes: int) -> str:
    """The file's text with these minutes in every claim of this need."""
    command, wording = (re.escape(f'"{part}"') for part in need)
    place = re.compile(rf"^(  command: {command}\n  minutes: )[\d.]+(\n  gpu: {wording})$", re.M)
    return place.sub(rf"\g<1>{minutes}\g<2>", text)


def check(path: Path, minutes_of: Callable[[Need], int], write: bool) -> bool:
    """Whether the file's minutes are those of the forecast; prints each. write: corrects it."""
    text, right = path.read_text("utf-8"), True
    for need, claims in needs(load(path)).items():
        minutes = minutes_of(need)
        said = sorted({claim.minutes for claim in claims})
        right &= said == [minutes]
        words = ", ".join(f"{one:g}" for one in said)
        print(f"{minutes} min, the file says {words}: {need[0]} ({need[1]})", flush=True)
        text = corrected(text, need, minutes)
    if write:
        write_text(path, text)
    return right


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the forecasts; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--claims", type=Path, default=FILE)
    parser.add_argument("--write", action="store_true", help="correct the file")
    options = parser.parse_args(arguments)
    estimator = Estimator(store.load_shipped(paper.RESULTS))
    try:
        with tempfile.TemporaryDirectory() as output:
            right = check(
                options.claims,
                lambda need: forecast(need, estimator, Path(output)),
                options.write,
            )
    except (HarnessError, OSError) as error:
        print(f"forecast: {error}", file=sys.stderr)
        return 2
    return 0 if right or options.write else 1


if __name__ == "__main__":
    sys.exit(main())
