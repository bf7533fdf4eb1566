"""``python3 -m granikv.install``: look at the machine, say what is coming, make ``.venv``."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from granikv.install import steps
from granikv.install.errors import SetupError
from granikv.install.machine import check_venv_module, choose_engine, detect
from granikv.install.plan import Step, announce, build_plan, check_space, pending
from granikv.install.resolver import differences, resolve
from granikv.install.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
_INTERRUPTED = 130


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m granikv.install", description="Make or complete the project's .venv."
    )
    parser.add_argument("--engine", choices=("auto", "cpu", "gpu", "none"), default="auto")
    parser.add_argument("--no-dev", action="store_true", help="leave out linters and tests")
    parser.add_argument(
        "--dry-run",
        choices=("gpu",),
        help="only resolve this extra against the package index and compare it with its lock",
    )
    return parser.parse_args(arguments)


def dry_run(root: Path, uv: Path) -> str:
    """Resolve the ``gpu`` extra anew, free but for its own bounds, within the locks' pins.

    Returns a line for the terminal. Raises SetupError when it does not resolve to the lock.
    """
    directory = root / "conf" / "locks"
    locks = [directory / "base.txt", directory / "engine-gpu.txt"]
    found = resolve(uv, [str(root / "pyproject.toml"), "--extra", "gpu"], constraints=locks)
    work = Workspace(root)
    wanted = work.lock("base").pins | work.lock("engine-gpu").pins
    wrong = differences(wanted, found)
    if wrong:
        raise SetupError("the gpu extra no longer resolves to its lock: " + "; ".join(wrong[:5]))
    return f"gpu extra: {len(found)} packages resolve to conf/locks/base.txt + engine-gpu.txt"


def set_up(root: Path, asked: str, *, dev: bool) -> str:
    """Bring ``.venv`` to what is asked for; returns the closing line."""
    machine = detect(root)
    engine = choose_engine(asked, machine)
    work = Workspace(root)
    with work.claimed():
        todo = pending(work, build_plan(work, engine, dev=dev, cuda_torch=False))
        if not todo:
            return f"set-up: nothing to do ({_result(work, engine)})"
        print(f"set-up of {work.venv} ({machine.describe()})", flush=True)
        begun = time.monotonic()
        if todo[0].name == "venv":
            check_venv_module()
            _run(work, todo[0])
        cuda_torch = engine == "cpu" and _asks_cuda_torch(work, todo)
        todo = pending(work, build_plan(work, engine, dev=dev, cuda_torch=cuda_torch))
        for line in announce(todo, machine.free_mb):
            print(line, flush=True)
        if cuda_torch:
            print(_cuda_torch_hint(), flush=True)
        check_space(todo, machine.free_mb)
        for step in todo:
            _run(work, step)
        return f"set-up done in {time.monotonic() - begun:.0f} s ({_result(work, engine)})"


def _asks_cuda_torch(work: Workspace, todo: Sequence[Step]) -> bool:
    if all(step.name != "engine" for step in todo):
        return False
    return steps.torch_is_cuda_build(work) is True


def _cuda_torch_hint() -> str:
    return (
        "  your package indexes offer torch's CUDA build only, which also runs without a GPU; for\n"
        "  the smaller CPU build stop here (Ctrl-C), set PIP_EXTRA_INDEX_URL to the index of CPU\n"
        "  wheels that PyTorch's installation page names, and run the same command again"
    )


def _result(work: Workspace, engine: str) -> str:
    return "without the engine" if engine == "none" else work.stamps.note("verify")


def _run(work: Workspace, step: Step) -> None:
    begun = time.monotonic()
    work.stamps.remove(step.name)
    note = step.run(work)
    work.stamps.write(step.name, step.key, note)
    print(f"  {step.title}: done in {time.monotonic() - begun:.0f} s", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Command line; returns the exit status."""
    options = _parse(arguments)
    try:
        if options.dry_run:
            print(dry_run(ROOT, ROOT / ".venv" / "bin" / "uv"))
        else:
            print(set_up(ROOT, options.engine, dev=not options.no_dev))
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or ROOT}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped: run the same command again to go on from here", file=sys.stderr)
        return _INTERRUPTED
    return 0
