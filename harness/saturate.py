"""`python -m harness.saturate`: what systems can serve at most, and the rate that saturates all.

    python -m harness.saturate system=sglang_default,granikv workload=sharegpt_cpu hardware=cpu
    python -m harness.saturate experiment=table03 system=sglang_default,sglang_fa3 hardware=h200

Arguments are overrides of the configuration (conf/config.yaml); a list is a choice of each. For
each choice: B permits with no wait between requests give a first capacity; from half of it the rate
of arrivals is doubled until throughput no longer rises, and the last doubling is bisected. Printed
last is the rate for `load=poisson_capped`: twice the capacity of the fastest, the same for all.
Its cells lie under <output>/saturation, apart from those that tables show, and are resumed.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from rich.console import Console
from rich.table import Table

from harness import cli, config
from harness.cell import measure
from harness.errors import HarnessError
from harness.load.poisson_capped import PoissonCapped
from harness.plan import plan
from harness.servers import gpus

RISE = 1.05
"""Throughput that grows by less than this from twice the arrivals no longer rises."""
PRECISION = 1.25
"""Bisection ends when the rates on either side of the knee are this close."""
MARGIN = 2.0
"""Saturation is at least this many times the capacity of the fastest system."""
AT_ONCE = 1e6
"""A rate that stands for no wait between requests, in requests/s."""
MOST_DOUBLINGS = 12


@dataclass(frozen=True)
class Capacity:
    """requests_per_s: the most that was answered. knee: the lowest rate found that gives it.

    Both in requests/s; throughput at the knee is at least the most / RISE.
    """

    requests_per_s: float
    knee: float


def find(throughput: Callable[[float], float]) -> Capacity:
    """The capacity behind `throughput`: requests/s answered, of requests/s offered.

    Raises HarnessError if throughput still rises after MOST_DOUBLINGS.
    """
    at_once = throughput(AT_ONCE)
    rate = at_once / 2
    seen = {rate: throughput(rate)}
    for _ in range(MOST_DOUBLINGS):
        rate *= 2
        seen[rate] = throughput(rate)
        if seen[rate] < RISE * seen[rate / 2]:
            return _bisected(throughput, seen, at_once)
    raise HarnessError(f"throughput still rises at {rate:.3g} requests/s: nothing saturates")


def _bisected(
    throughput: Callable[[float], float], seen: dict[float, float], at_once: float
) -> Capacity:
    """Narrow the knee down between what was seen; noise may leave it at the highest rate."""
    while True:
        most = max(at_once, *seen.values())
        enough = [rate for rate, served in seen.items() if served * RISE >= most]
        knee = min(enough, default=max(seen))
        low = max((rate for rate in seen if rate < knee), default=knee)
        if knee / low <= PRECISION:
            return Capacity(most, knee)
        middle = math.sqrt(low * knee)
        seen[middle] = throughput(middle)


def saturating_rate(capacities: Sequence[Capacity]) -> float:
    """MARGIN × the capacity of the fastest, in requests/s."""
    return MARGIN * max(capacity.requests_per_s for capacity in capacities)


def capacity_of(values: Mapping[str, Any]) -> Capacity:
    """The capacity of one resolved configuration. Raises HarnessError for an invalid cell."""
    load = values["load"]
    if load["kind"] != PoissonCapped.kind:
        raise HarnessError(f"load={load['kind']} cannot be saturated: use load=poisson_capped")
    output = str(Path(str(values["output"])) / "saturation")

    def throughput(rate: float) -> float:
        # Rounded, so that a search that is made again asks for the same cells.
        rounded = float(f"{rate:.6g}")
        with gpus.leased(values):
            ready = plan({**values, "output": output, "load": {**load, "rate": rounded}})
            cli.used_roots.add(ready.root)
            cell = measure(ready)
        if not cell.valid:
            raise HarnessError(f"cell {cell.id} is invalid: {cell.reasons[0]}")
        return cell.metrics["request_per_s"]

    return find(throughput)


def _title(values: Mapping[str, Any]) -> str:
    workload = values["workload"]
    length = workload.get("prefix_length") or workload.get("prefix_lengths") or ""
    return f"{values['system']['name']} {workload['name']} {length}".strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    found: dict[str, Capacity] = {}
    try:
        choices = config.sweep(["repetition=0", *cli.with_hardware(given)])
        with cli.servers_ended():
            for values in config.compose_cells(choices):
                found[_title(values)] = capacity_of(values)
    except (HarnessError, HydraException, OSError) as error:
        print(f"error: {config.first_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; run it again to go on", file=sys.stderr)
        return 130
    table = Table("system and workload", "capacity, requests/s", "reached at a rate of")
    for title, capacity in found.items():
        table.add_row(title, f"{capacity.requests_per_s:.3g}", f"{capacity.knee:.3g}")
    Console().print(table)
    print(f"load.rate={saturating_rate(list(found.values())):.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
