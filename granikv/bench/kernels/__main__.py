"""`python -m granikv.bench.kernels`."""

from granikv.bench.kernels.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
