"""The kernels alone, one layer of a decode step: `python -m granikv.bench.kernels`.

Each pass (prefix, suffix, merge, and the whole) is captured in a CUDA graph and its replays are
timed, beside what the arithmetic and the bytes must take at this device's measured ceilings. L2 is
`cold` where launches rotate over the caches of so many layers that they do not fit, as a model's
do, and `warm` where every launch reads the same. JSON on standard output; times in µs.
"""

from granikv.bench.kernels.cases import (
    CASES,
    Case,
    Ceilings,
    Read,
    Work,
    layers_for,
    work_of,
)
from granikv.bench.kernels.host import host_records
from granikv.bench.kernels.passes import measure, records_of
from granikv.bench.kernels.step import Bench
from granikv.bench.kernels.storage import Storage, build
from granikv.bench.kernels.table5 import TwoByTwo, table5_records
from granikv.bench.kernels.timing import captured

__all__ = [
    "CASES",
    "Bench",
    "Case",
    "Ceilings",
    "Read",
    "Storage",
    "TwoByTwo",
    "Work",
    "build",
    "captured",
    "host_records",
    "layers_for",
    "measure",
    "records_of",
    "table5_records",
    "work_of",
]
