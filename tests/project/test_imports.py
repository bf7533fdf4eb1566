"""Who may import whom: read from the source, and tried with the forbidden packages barred."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.paths import ROOT

STAND_INS = ROOT / "granikv" / "install" / "stand_ins"
PURE = ("pools", "admission", "eviction", "prefix_index", "plan", "planner", "dispatch")


def sources(package: str) -> list[Path]:
    """The package's Python files without the stand-ins, which are packages of their own."""
    files = sorted((ROOT / package).rglob("*.py"))
    return [path for path in files if not path.is_relative_to(STAND_INS)]


def imported(path: Path) -> Iterator[str]:
    """Dotted names of every absolute import in a file, nested ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def offenders(files: list[Path], forbidden: set[str]) -> list[str]:
    """``file: module`` for each import of a forbidden top-level package."""
    return [
        f"{path.relative_to(ROOT)}: {module}"
        for path in files
        for module in imported(path)
        if module.split(".")[0] in forbidden
    ]


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("granikv", {"harness", "workloads", "tests"}),
        ("harness", {"granikv", "sglang", "torch", "triton", "flashinfer", "tests"}),
        ("workloads", {"granikv", "harness", "sglang", "torch", "tests"}),
        (
            "granikv/install",
            {"aiohttp", "filelock", "numpy", "packaging", "rich", "sglang", "torch", "yaml"},
        ),
    ],
)
def test_a_package_imports_nothing_it_must_not(package: str, forbidden: set[str]) -> None:
    files = sources(package)
    assert files
    assert offenders(files, forbidden) == []


def test_only_the_engine_folder_imports_sglang() -> None:
    engine = ROOT / "granikv" / "engine"
    files = [path for path in sources("granikv") if not path.is_relative_to(engine)]
    assert offenders(files, {"sglang"}) == []


def test_the_rule_itself_sees_an_offender(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def f():\n    from torch.nn import Module\n    import sglang as s\n")
    assert list(imported(path)) == ["torch.nn", "sglang"]


def run_barred(barred: set[str], modules: list[str]) -> subprocess.CompletedProcess[str]:
    """Import modules in a fresh interpreter in which the barred packages do not exist."""
    code = (
        "import importlib, sys\n"
        f"for name in {sorted(barred)!r}: sys.modules[name] = None\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def modules_of(package: str) -> list[str]:
    """Dotted names of the package's modules; ``__main__`` runs when imported, so it is left out."""
    names = []
    for path in sources(package):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__":
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def test_pure_modules_import_without_torch_and_sglang() -> None:
    done = run_barred({"torch", "sglang"}, [f"granikv.{name}" for name in PURE])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["harness", "workloads"])
def test_every_module_imports_without_torch_sglang_and_granikv(package: str) -> None:
    done = run_barred({"torch", "sglang", "granikv"}, modules_of(package))
    assert done.returncode == 0, done.stderr


def test_the_set_up_needs_the_standard_library_alone() -> None:
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"for name in {modules_of('granikv/install')!r}: importlib.import_module(name)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["__init__", "install/__init__", "install/__main__", "install/interpreter"]
)
def test_the_version_check_parses_on_old_pythons(name: str) -> None:
    path = ROOT / "granikv" / f"{name}.py"
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
    # Python 3.6 lacks `from __future__ import annotations`, which feature_version lets pass.
    assert "__future__" not in list(imported(path))
