"""Reading the configuration in conf/ with Hydra."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import HarnessError

DIRECTORY = Path(__file__).resolve().parents[1] / "conf"
NAME = "config"


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration of a cell as a plain dictionary, every interpolation resolved."""
    try:
        value = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise HarnessError(f"configuration: {first_line(error)}") from None
    assert isinstance(value, dict)
    return {str(key): part for key, part in value.items() if key not in ("hydra", "experiment")}


def first_line(error: BaseException) -> str:
    """The message of an error without the advice that follows it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def compose_cell(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of one cell. Raises HarnessError for an override that fits nothing."""
    with _composing():
        return plain(compose(NAME, overrides=list(overrides)))


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every cell of an experiment: the product of its hydra.sweeper.params.

    Overrides given here win over the experiment's, comma lists included. The order is that of
    Hydra's own sweeper: the first parameter changes slowest. Raises HarnessError.
    """
    with _composing():
        parser = OverridesParser.create()
        given = parser.parse_overrides(overrides=list(overrides))
        fixed = [override for override in given if not override.is_sweep_override()]
        start = [override.input_line or "" for override in fixed]
        config = compose(NAME, overrides=start, return_hydra_config=True)
        own = config.hydra.sweeper.params or {}
        named = {override.key_or_group for override in given}
        swept = parser.parse_overrides(
            overrides=[f"{key}={value}" for key, value in own.items() if key not in named]
        )
        swept += [override for override in given if override.is_sweep_override()]
        choices = [_choices(override) for override in swept]
        return [start + list(combination) for combination in itertools.product(*choices)]


def _choices(override: Override) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


@contextmanager
def _composing() -> Iterator[None]:
    """Hydra on conf/; what it raises becomes one line."""
    if not (DIRECTORY / f"{NAME}.yaml").is_file():
        raise HarnessError("conf/ is missing: run from a clone of the repository")
    try:
        with initialize_config_dir(str(DIRECTORY), version_base="1.3"):
            yield
    except (HydraException, OmegaConfBaseException) as error:
        raise HarnessError(f"configuration: {first_line(error)}") from None
