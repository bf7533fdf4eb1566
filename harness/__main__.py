"""`python -m harness`: measures, unless its first word names another command."""

import importlib
import sys

COMMANDS = {
    "compare": "harness.comparison.command",
    "export": "harness.comparison.export",
    "ship": "harness.shipping",
}
MEASURE = "harness.cli"


def main(arguments: list[str]) -> int:
    """Run a command; its exit status."""
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        status: int = importlib.import_module(COMMANDS[name]).main(arguments[1:])
    else:
        status = importlib.import_module(MEASURE).main()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
