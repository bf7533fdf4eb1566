"""The command line of `granikv.bench.kernels`."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from granikv.bench import kernels
from granikv.bench.kernels.cases import CASES
from granikv.bench.kernels.host import host_records
from granikv.bench.kernels.machine import ceilings, machine
from granikv.bench.kernels.passes import records_of
from granikv.bench.kernels.table5 import LAUNCHES, table5_records
from granikv.bench.relocate import relocation_record


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="granikv.bench.kernels", description=kernels.__doc__)
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--l2", default="cold,warm", help="cold, warm or both (cold,warm)")
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time of a case")
    parser.add_argument(
        "--only", default="passes,table5,relocation,host", help="what to measure, by comma"
    )
    parser.add_argument(
        "--launch",
        choices=["-".join(launch) for launch in LAUNCHES],
        help="of Table 5 this alone, for a profiler around it; left out, all four",
    )
    return parser


def _selected(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    limits, l2_bytes = ceilings(), torch.cuda.get_device_properties().L2_cache_size
    yield {"case": "ceilings", **limits._asdict()}
    only, cases = options.only.split(","), [c for c in CASES if options.cases in c.name]
    if "passes" in only:
        for case, l2 in itertools.product(cases, options.l2.split(",")):
            yield from records_of(case, l2, l2_bytes, options.seconds, limits)
            torch.cuda.empty_cache()
    if "table5" in only:
        launches = [one for one in LAUNCHES if options.launch in (None, "-".join(one))]
        yield from table5_records(options.seconds, limits, launches=launches)
    if "relocation" in only:
        yield relocation_record(options.seconds, limits)
    if "host" in only:
        for case in cases:
            yield from host_records(case)


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON object; its exit status."""
    options = _parser().parse_args(argv)
    if not torch.cuda.is_available():
        print(
            "kernels: no CUDA device is usable here; run this on the GPU's machine", file=sys.stderr
        )
        return 2
    records = list(_selected(options))
    json.dump({"bench": "kernels", **machine(), "records": records}, sys.stdout)
    print()
    return 0
