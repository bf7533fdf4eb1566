"""`make reproduce`: measures the paper's experiments here, then makes the tables and figures.

    python -m harness.reproduce                       what this machine can run
    python -m harness.reproduce --figures-only        from the cells at hand; no engine needed
    python -m harness.reproduce --hardware h200 model=qwen25_14b
    python -m harness.reproduce --experiments h200_2_headline "table09 repetition=0" --minutes 8

A cell that is measured already is skipped, so an interrupted run goes on where it stopped. Further
arguments are overrides of the configuration (conf/config.yaml).
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

from harness import agreement, cli, figures, hardware, jobs, paper, report, tables
from harness import config as configuration
from harness.errors import HarnessError
from harness.servers import gpus
from harness.store import Cell, load_cells, load_shipped, shipped_folders
from harness.sweeps.entry import Entry, Schedule, schedule
from harness.sweeps.estimate import Estimator
from harness.sweeps.order import ORDERS, arrange
from harness.sweeps.run import Clock, run

logger = logging.getLogger("harness.reproduce")

EXPERIMENTS = {"cpu": ("table03_cpu", "table21_cpu"), "cuda": ("table03", "table21")}
"""What is run, by the device of the hardware profile."""
PROGRESS_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when every cell is valid and every exact comparison holds."""
    options, overrides = _parser().parse_known_args(arguments)
    output: Path = options.output.expanduser().resolve()
    console = Console(stderr=True)
    try:
        with _logging(output, console) as log:
            wrong = [] if options.figures_only else _measure(options, overrides, output, console)
            if not (options.cells_only or options.dry_run):
                _render(output)
            logger.info("log: %s", log)
            for reason in wrong:
                logger.error("error: %s", reason)
    except (HarnessError, OSError) as error:
        print(f"error: {configuration.first_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m harness.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--figures-only", action="store_true", help="measure nothing")
    parser.add_argument("--hardware", help="hardware profile; left out, this machine's")
    parser.add_argument("--repetitions", type=int, help="of each cell; left out, the experiment's")
    parser.add_argument(
        "--experiments",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of conf/experiment/, by priority; with overrides of its own: 'table09 full=true'",
    )
    parser.add_argument("--minutes", type=float, help="start no cell that would end later")
    parser.add_argument(
        "--order", choices=list(ORDERS), default="rotated", help="of the servers within one of them"
    )
    parser.add_argument(
        "--besides",
        type=Path,
        action="append",
        default=[],
        metavar="RESULTS",
        help="cells that are valid there are not measured",
    )
    parser.add_argument("--dry-run", action="store_true", help="say how long it would take")
    parser.add_argument("--cells-only", action="store_true", help="no tables and figures")
    parser.add_argument("--output", type=Path, default=paper.ROOT / "results")
    return parser


@contextmanager
def _logging(output: Path, console: Console) -> Iterator[Path]:
    """Progress to the terminal, and as plain lines with times to a file."""
    log = output / "logs" / time.strftime("reproduce-%Y%m%d-%H%M%S.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(log, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    shown: logging.Handler = logging.StreamHandler(sys.stderr)
    if console.is_terminal:
        shown = RichHandler(console=console, show_path=False, show_level=False)
    root = logging.getLogger("harness")
    root.setLevel(logging.INFO)
    for handler in (file, shown):
        root.addHandler(handler)
    try:
        yield log
    finally:
        for handler in (file, shown):
            root.removeHandler(handler)
            handler.close()


def _measure(
    options: argparse.Namespace, overrides: Sequence[str], output: Path, console: Console
) -> list[str]:
    """Measure every cell; what went wrong, one line each."""
    clock = Clock(options.minutes)
    planned = _planned(options, overrides, output)
    for name, reason in planned.refused.items():
        logger.info("left out: %s: %s", name, reason)
    elsewhere = {cell.id for root in options.besides for cell in load_cells(root) if cell.valid}
    wanted = [entry for entry in planned.entries if entry.id not in elsewhere]
    apart = clock.minutes is not None
    entries = arrange(wanted, options.order, apart)
    estimator = Estimator(_known([output, *shipped_folders(paper.RESULTS), *options.besides]))
    for name in ORDERS:
        chosen = " (chosen)" if name == options.order else ""
        logger.info("%s%s: %s", name, chosen, estimator.forecast(arrange(wanted, name, apart)))
    if options.dry_run:
        return []
    cells: list[Cell] = []
    lost: list[str] = []

    def measure(entry: Entry) -> bool:
        try:
            with gpus.leased(entry.values):
                cell = jobs.measure(jobs.plan(entry.values), rerun=bool(entry.values["rerun"]))
        except (HarnessError, OSError) as error:
            lost.append(f"{entry.title}: {configuration.first_line(error)}")
            logger.error("%s", lost[-1])
            return False
        estimator.learn(cell)
        cells.append(cell)
        return cell.unserved

    cli.used_roots.add(output)
    with cli.servers_ended():
        left = run(entries, measure, estimator, clock, console, logger.info)
    logger.info("cells: %s", output / "runs")
    if left:
        rest = estimator.forecast(left)
        logger.info("left for another time, since the minutes are up: %s", rest)
    return lost + _complaints(cells)


def _planned(options: argparse.Namespace, overrides: Sequence[str], output: Path) -> Schedule:
    profile = options.hardware or hardware.detect()
    shared = [f"hardware={profile}", f"output={output}", *overrides]
    if options.repetitions is not None:
        shared.append(f"repetition={','.join(map(str, range(options.repetitions)))}")
    # An override after --experiments is none of them.
    names = [name for name in options.experiments if "=" not in name.split()[0]]
    shared += [name for name in options.experiments if name not in names]
    return plan_all(profile, shared, names)


def plan_all(profile: str, overrides: Sequence[str], experiments: Sequence[str] = ()) -> Schedule:
    """The cells of these experiments, or of those that are run on this profile's device.

    An experiment may carry overrides of its own, after its name: `"table09 load.permits=256"`.
    """
    if not experiments:
        device = configuration.compose_cell([f"hardware={profile}"])["hardware"]["device"]
        experiments = EXPERIMENTS[device]
    shown = time.monotonic()

    def seen(done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            logger.info("planned %d of %d cells", done, total)

    lines = [shlex.split(f"experiment={experiment}") for experiment in experiments]
    return schedule([[*line, *overrides] for line in lines], seen)


def _known(roots: Sequence[Path]) -> list[Cell]:
    """Cells to estimate from, the newest last."""
    found = {root.resolve(): load_cells(root) for root in roots}
    return [cell for cells in found.values() for cell in cells]


def _complaints(cells: Sequence[Cell]) -> list[str]:
    wrong = [f"cell {cell.id} is invalid: {cell.reasons[0]}" for cell in cells if not cell.valid]
    for comparison in agreement.compare(cells):
        logger.info("%s", comparison)
        if not comparison.holds:
            wrong.append(str(comparison))
    return wrong


def _render(output: Path) -> None:
    """Write the tables and figures from all cells at hand."""
    here, shipped = load_cells(output), load_shipped(paper.RESULTS)
    out = output / "out"
    drawn = figures.encode_all(here, shipped)
    written = [
        *tables.render_all(here, shipped, out / "tables"),
        *figures.write_all(drawn, out / "figures"),
    ]
    page = report.render(here, shipped, out, drawn)
    logger.info("tables: %s", out / "tables")
    logger.info("figures: %s (%d files with the tables)", out / "figures", len(written))
    logger.info("report: %s", page)


if __name__ == "__main__":
    sys.exit(main())
