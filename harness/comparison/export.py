"""`python -m harness export PATH... --to FILE`: runs as one frame, a row a run.

    python -m harness export results results/h200 --to cells.parquet
    pandas.read_parquet("cells.parquet").groupby(["system", "workload"])["output_tok_s"].mean()

PATH is what `compare` takes. FILE ends in .parquet or .csv.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pandas as pd

from harness.comparison.record import frame, read
from harness.errors import HarnessError
from harness.files import write_bytes

FORMATS = (".parquet", ".csv")


def export(paths: Sequence[Path], target: Path) -> pd.DataFrame:
    """Write the runs behind the paths to a file at once. Raises HarnessError."""
    if target.suffix not in FORMATS:
        raise HarnessError(f"--to {target}: the name must end in {' or '.join(FORMATS)}")
    table = frame([record for path in paths for record in read(path)])
    if target.suffix == ".csv":
        data = table.to_csv(index=False).encode("utf-8")
    else:
        buffer = BytesIO()
        table.to_parquet(buffer, index=False)
        data = buffer.getvalue()
    write_bytes(target, data)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser(
        "python -m harness export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args(arguments)
    try:
        table = export(asked.paths, asked.to)
    except (HarnessError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(table):,} runs: {asked.to}")
    return 0
