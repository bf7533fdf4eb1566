"""Make ``conf/locks/*.txt`` anew from ``pyproject.toml``: ``python -m granikv.install.relock``.

Existing pins are kept where they still fit; ``--upgrade`` takes the newest versions.
"""

import argparse
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from granikv.install.errors import SetupError
from granikv.install.locks import canonical, read_lock
from granikv.install.resolver import resolve

NAMES = ("base", "dev", "engine-gpu", "engine-cpu", "build")
_TITLES = {
    "base": "Base: what the harness, the tables and the figures need. No torch, no SGLang.",
    "dev": "Linters, type checker and test runner, on top of base.txt.",
    "engine-gpu": "SGLang with everything it asks for on a GPU, on top of base.txt.",
    "engine-cpu": "The real SGLang on a CPU, on top of base.txt; installed without dependencies.",
    "build": "What builds the project itself and the one dependency that has no wheel.",
}


def _write(directory: Path, name: str, pins: dict[str, str]) -> None:
    lines = [f"# {_TITLES[name]}", "# Made by `python -m granikv.install.relock`; do not edit."]
    lines += [f"{package}=={version}" for package, version in sorted(pins.items())]
    target = directory / f"{name}.txt"
    beside = target.with_suffix(".tmp")
    beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(beside, target)


def _as_pins(requirements: list[str]) -> dict[str, str]:
    pairs = (requirement.split("==", 1) for requirement in requirements)
    return {canonical(name): version for name, version in pairs}


def _minus(closure: dict[str, str], base: dict[str, str]) -> dict[str, str]:
    return {name: version for name, version in closure.items() if name not in base}


def resolve_all(
    uv: Path, pyproject: Path, engine_cpu: dict[str, Any], old: Path | None
) -> dict[str, dict[str, str]]:
    """All locks from one joint resolution, so that base, dev and either engine share one .venv."""
    with tempfile.TemporaryDirectory() as scratch:
        joint_path = Path(scratch) / "joint.txt"
        kept = [old] if old else []
        extras = ["--extra", "gpu", "--extra", "dev"]
        joint = resolve(uv, [str(pyproject), *extras], constraints=kept)
        joint_path.write_text("\n".join(f"{n}=={v}" for n, v in joint.items()), encoding="utf-8")
        limits = [*kept, joint_path]
        base = resolve(uv, [str(pyproject)], constraints=limits)
        dev = resolve(uv, [str(pyproject), "--extra", "dev"], constraints=limits)
        gpu = resolve(uv, [str(pyproject), "--extra", "gpu"], constraints=limits)
        cpu_requirements = [*engine_cpu["resolved"], *_lines(base)]
        cpu = resolve(uv, [], constraints=limits, requirements=cpu_requirements)
        build = resolve(uv, [], constraints=limits, requirements=engine_cpu["build"])
    return {
        "base": base,
        "dev": _minus(dev, base),
        "engine-gpu": _minus(gpu, base),
        "engine-cpu": _minus(cpu, base) | _as_pins(engine_cpu["as-is"]),
        "build": build,
    }


def _lines(pins: dict[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in pins.items()]


def _old_pins(directory: Path, as_is: dict[str, str], scratch: Path) -> Path:
    """A constraints file of the present pins; the as-is pins answer to nothing but themselves."""
    pins: dict[str, str] = {}
    for name in NAMES:
        if (directory / f"{name}.txt").exists():
            pins |= _minus(read_lock(directory, name).pins, as_is)
    path = scratch / "old.txt"
    path.write_text("\n".join(_lines(pins)), encoding="utf-8")
    return path


def relock(root: Path, uv: Path, *, upgrade: bool) -> None:
    """Rewrite all lock files under ``root``. Raises SetupError if anything does not resolve."""
    pyproject = root / "pyproject.toml"
    with pyproject.open("rb") as file:
        engine_cpu = tomllib.load(file)["tool"]["granikv"]["engine-cpu"]
    directory = root / "conf" / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        as_is = _as_pins(engine_cpu["as-is"])
        old = None if upgrade else _old_pins(directory, as_is, Path(scratch))
        locks = resolve_all(uv, pyproject, engine_cpu, old)
    for name, pins in locks.items():
        _write(directory, name, pins)
        print(f"{directory / name}.txt: {len(pins)} packages")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--uv", type=Path, default=root / ".venv" / "bin" / "uv")
    options = parser.parse_args()
    try:
        relock(root, options.uv, upgrade=options.upgrade)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
