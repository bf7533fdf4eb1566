"""`python -m harness.servers [--stop] [RESULTS]`: lists or ends a results directory's servers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import server
from harness.errors import HarnessError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    parser = argparse.ArgumentParser("python -m harness.servers", description=__doc__)
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"))
    parser.add_argument("--stop", action="store_true", help="end them, whoever uses them")
    options = parser.parse_args(arguments)
    for state in server.running(options.results):
        print(f"{state['title']}: port {state['port']}, device {state['device']}")
    if options.stop:
        try:
            server.stop_all(options.results)
        except HarnessError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
