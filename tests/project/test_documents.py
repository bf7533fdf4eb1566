"""What the documents and the claims tell people to type is there."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from tests.project.paths import ROOT

DOCUMENTS = ("README.md", "REPRODUCE.md", "CONTRIBUTING.md")
CONF = ROOT / "conf"
GROUPS = {path.name for path in CONF.iterdir() if path.is_dir()}
TEXTS = {name: (ROOT / name).read_text("utf-8") for name in DOCUMENTS}
TEXTS["claims.yaml"] = "\n".join(
    claim["command"] for claim in yaml.safe_load((ROOT / "claims.yaml").read_text("utf-8"))
)


def told(pattern: str, text: str) -> set[str]:
    return set(re.findall(pattern, text))


@pytest.mark.parametrize("name", TEXTS)
def test_every_target_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = told(r"(?m)^([a-z-]+):", makefile)
    assert told(r"(?:^|`|    )make ([a-z][a-z-]*)", TEXTS[name]) <= targets


@pytest.mark.parametrize("name", TEXTS)
def test_every_module_exists(name: str) -> None:
    for module in told(r"python -m ((?:harness|granikv|workloads)[\w.]*)", TEXTS[name]):
        assert importlib.util.find_spec(module.rstrip(".")) is not None, module


def choices(text: str) -> Iterator[tuple[str, str]]:
    """(group, file) of every override that chooses a file of a group."""
    for word in text.replace("`", " ").replace('"', " ").replace("|", " ").split():
        key, equals, value = word.partition("=")
        if equals and key in GROUPS:
            yield from ((key, one) for one in value.rstrip(".,;)").split(",") if one)


@pytest.mark.parametrize("name", TEXTS)
def test_every_choice_is_a_file_of_its_group(name: str) -> None:
    found = list(choices(TEXTS[name]))
    missing = [
        f"{group}={choice}"
        for group, choice in found
        if re.fullmatch(r"[a-z]\w*", choice) and not (CONF / group / f"{choice}.yaml").is_file()
    ]
    assert missing == []
    assert found or name not in ("REPRODUCE.md", "claims.yaml")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_to_a_file_leads_there(name: str) -> None:
    for target in told(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", TEXTS[name]):
        assert (ROOT / target).exists(), target


def test_each_claims_command_is_one_line_of_this_project() -> None:
    for command in TEXTS["claims.yaml"].splitlines():
        assert shlex.split(command)[:1] in (["python"], ["make"]), command
