"""`make reproduce`: measures the paper's experiments here, then makes the tables and figures.

    python -m harness.reproduce                       what this machine can run
    python -m harness.reproduce --figures-only        from the cells at hand; no engine needed
    python -m harness.reproduce --hardware h200 model=qwen25_14b

A cell that is measured already is skipped, so an interrupted run goes on where it stopped. Further
arguments are overrides of the configuration (conf/config.yaml).
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness import agreement, cli, figures, hardware, report, tables
from harness import config as configuration
from harness.errors import HarnessError
from harness.jobs import Job, measure, plan
from harness.store import Cell, load_cells

logger = logging.getLogger("harness.reproduce")

REPOSITORY = Path(__file__).resolve().parents[1]
SHIPPED = REPOSITORY / "results" / "h200"
EXPERIMENTS = {"cpu": ("table03_cpu", "table21_cpu"), "cuda": ("table03", "table21")}
"""What is run, by the device of the hardware profile."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when every cell is valid and every exact comparison holds."""
    options, overrides = _parser().parse_known_args(arguments)
    output: Path = options.output.expanduser().resolve()
    console = Console(stderr=True)
    try:
        with _logging(output, console) as log:
            wrong = [] if options.figures_only else _measure(options, overrides, output, console)
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
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results")
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
    profile = options.hardware or hardware.detect()
    shared = [f"hardware={profile}", f"output={output}", *overrides]
    if options.repetitions is not None:
        shared.append(f"repetition={','.join(map(str, range(options.repetitions)))}")
    plans = plan_all(profile, shared)
    servers = len({cell.server.hash for cell in plans})
    logger.info("%d cells on %d servers, one server at a time (%s)", len(plans), servers, profile)
    cli.used_roots.add(output)
    with cli.servers_ended():
        cells = _run(plans, console)
    logger.info("cells: %s", output / "runs")
    return _complaints(cells)


def plan_all(profile: str, overrides: Sequence[str]) -> list[Job]:
    """The cells of this profile's experiments, those of one server next to each other."""
    device = configuration.compose_cell([f"hardware={profile}"])["hardware"]["device"]
    plans = [
        plan(configuration.compose_cell(cell))
        for experiment in EXPERIMENTS[device]
        for cell in configuration.sweep([f"experiment={experiment}", *overrides])
    ]
    first: dict[str, int] = {}
    for position, cell_plan in enumerate(plans):
        first.setdefault(cell_plan.server.hash, position)
    return sorted(plans, key=lambda cell_plan: first[cell_plan.server.hash])


def _run(plans: Sequence[Job], console: Console) -> list[Cell]:
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    cells = []
    with progress:
        bar = progress.add_task("cells", total=len(plans))
        for number, cell_plan in enumerate(plans, 1):
            progress.update(bar, description=cell_plan.title)
            logger.info("[%d/%d]", number, len(plans))
            cells.append(measure(cell_plan))
            progress.advance(bar)
    return cells


def _complaints(cells: Sequence[Cell]) -> list[str]:
    wrong = [f"cell {cell.id} is invalid: {cell.reasons[0]}" for cell in cells if not cell.valid]
    for comparison in agreement.compare(cells):
        logger.info("%s", comparison)
        if not comparison.holds:
            wrong.append(str(comparison))
    return wrong


def _render(output: Path) -> None:
    """Write the tables and figures from all cells at hand."""
    here, shipped = load_cells(output), load_cells(SHIPPED)
    out = output / "out"
    written = [
        *tables.render_all(here, shipped, out / "tables"),
        *figures.render_all(here, shipped, out / "figures"),
    ]
    page = report.render(here, shipped, out)
    logger.info("tables: %s", out / "tables")
    logger.info("figures: %s (%d files with the tables)", out / "figures", len(written))
    logger.info("report: %s", page)


if __name__ == "__main__":
    sys.exit(main())
