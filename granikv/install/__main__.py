"""``python3 -m granikv.install``: make or complete ``.venv``."""

import sys

from granikv.install.interpreter import ensure_supported


def _main():  # type: () -> int
    problem = ensure_supported("granikv.install", sys.argv[1:])
    if problem is not None:
        sys.stderr.write("error: " + problem + "\n")
        return 1
    from granikv.install.cli import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
