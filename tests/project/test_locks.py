"""The lock files pin everything once, agree with each other and with pyproject.toml."""

import importlib.metadata
import tomllib
from collections.abc import Iterable
from typing import Any

import pytest
from packaging.requirements import Requirement

from granikv.install.errors import SetupError
from granikv.install.locks import canonical, parse_pins, read_lock
from granikv.install.sizes import SIZES
from tests.project.paths import LOCKS, ROOT

NAMES = ("build", "base", "dev", "engine-cpu", "engine-gpu")


def pins(*names: str) -> dict[str, str]:
    """The union of several locks."""
    union: dict[str, str] = {}
    for name in names:
        union |= read_lock(LOCKS, name).pins
    return union


def pyproject() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def unmet(requirements: Iterable[str], locked: dict[str, str]) -> list[str]:
    """Requirements that apply here and that the pins do not satisfy."""
    missing = []
    for line in requirements:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = locked.get(canonical(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{line} (locked: {version})")
    return missing


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_reads_and_its_size_is_known(name: str) -> None:
    assert read_lock(LOCKS, name).pins
    assert SIZES[name].download_mb > 0
    assert SIZES[name].disk_mb > SIZES[name].download_mb


@pytest.mark.parametrize("engine", ["engine-cpu", "engine-gpu"])
def test_locks_of_one_venv_never_disagree(engine: str) -> None:
    seen: dict[str, str] = {}
    for name in ("build", "base", "dev", engine):
        for package, version in read_lock(LOCKS, name).pins.items():
            assert seen.setdefault(package, version) == version, f"{package} in {name}.txt"


def test_base_and_dev_bring_no_torch_and_no_engine() -> None:
    heavy = {"torch", "sglang", "triton", "flashinfer-python", "transformers"}
    assert not heavy & pins("build", "base", "dev").keys()


def test_locks_satisfy_pyproject() -> None:
    project = pyproject()["project"]
    extras = project["optional-dependencies"]
    assert unmet(project["dependencies"], pins("base")) == []
    assert unmet(extras["dev"], pins("base", "dev")) == []
    assert unmet(extras["gpu"], pins("base", "engine-gpu")) == []


def test_cpu_lock_holds_what_pyproject_asks_for() -> None:
    engine = pyproject()["tool"]["granikv"]["engine-cpu"]
    assert unmet(engine["as-is"], pins("engine-cpu")) == []
    assert unmet(engine["resolved"], pins("base", "engine-cpu")) == []
    assert unmet(engine["build"], pins("build")) == []


def test_both_engines_are_the_same_sglang() -> None:
    assert pins("engine-cpu")["sglang"] == pins("engine-gpu")["sglang"] == "0.5.17"


@pytest.mark.parametrize("package", sorted(pins("base", "dev")))
def test_base_and_dev_are_closed_under_dependencies(package: str) -> None:
    requires = importlib.metadata.requires(package) or []
    assert unmet(requires, pins("build", "base", "dev")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("numpy>=2", "not an exact pin"),
        ("numpy", "not an exact pin"),
        ("numpy==2.3.5\nNumPy==2.3.4", "pinned twice"),
    ],
)
def test_a_loose_or_double_pin_is_refused(text: str, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        parse_pins(text, "made-up.txt")


def test_names_are_normalised_and_comments_ignored() -> None:
    assert parse_pins("# head\nPy_YAML==6.0  # why\n\n", "x") == {"py-yaml": "6.0"}


def test_a_missing_lock_says_which() -> None:
    with pytest.raises(SetupError, match=r"absent\.txt.*checkout whole"):
        read_lock(LOCKS, "absent")
