"""Reading the configuration in conf/ with Hydra."""

from __future__ import annotations

import copy
import functools
import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from harness.errors import HarnessError

DIRECTORY = Path(__file__).resolve().parents[1] / "conf"
NAME = "config"
NOT_A_CELLS = ("hydra", "experiment", "parts")
"""Top-level keys that say how cells are chosen and run, not what one is."""

LEAST_REQUESTS, FULL_REQUESTS, MOST_OF_PAPER = 64, 500, 512


def requests_for(permits: int, full: bool) -> int:
    """N of a cell: 2 B, at least 64; in full the paper's 500, but where they cannot fill B.

    `${requests_for:${load.permits},${full}}` in conf/. permits: B, requests in flight.
    """
    filling = 2 * permits
    if full and filling <= MOST_OF_PAPER:
        return FULL_REQUESTS
    return max(LEAST_REQUESTS, filling)


OmegaConf.register_new_resolver("requests_for", requests_for, replace=True)


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration of a cell as a plain dictionary, every interpolation resolved."""
    try:
        value = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise HarnessError(f"configuration: {first_line(error)}") from None
    assert isinstance(value, dict)
    return {str(key): part for key, part in value.items() if key not in NOT_A_CELLS}


def first_line(error: BaseException) -> str:
    """The message of an error without the advice that follows it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def describe(error: BaseException) -> str:
    """An error in one line; one that nobody foresaw with its type."""
    text = first_line(error)
    foreseen = isinstance(error, HarnessError | HydraException | OSError)
    return text if foreseen else f"{type(error).__name__}: {text}"


def compose_cell(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of one cell. Raises HarnessError for an override that fits nothing."""
    return compose_cells([overrides])[0]


def compose_cells(cells: Iterable[Sequence[str]]) -> list[dict[str, Any]]:
    """The configurations of many cells. Raises HarnessError for an override that fits nothing."""
    trees: dict[tuple[tuple[str, ...], tuple[str, ...]], DictConfig] = {}
    configs = []
    with _composing():
        for overrides in cells:
            files, values = _split([_parsed(override) for override in overrides])
            # Cells that set the same keys can share one tree: each sets all of them anew.
            key = files, tuple(override.key_or_group for override in values)
            if key not in trees:
                trees[key] = copy.deepcopy(_chosen(DIRECTORY, files).cell)
            _set_values(trees[key], values)
            configs.append(plain(trees[key]))
    return configs


@dataclass(frozen=True)
class _Chosen:
    """What a choice of files gives. cell: to be copied. params, parts: of its experiment."""

    cell: DictConfig
    params: Mapping[str, Any]
    parts: Sequence[str]


@functools.lru_cache(maxsize=512)
def _chosen(directory: Path, files: tuple[str, ...]) -> _Chosen:
    """Composed once for all cells that choose the same: reading the files takes longest."""
    config = compose(NAME, overrides=list(files), return_hydra_config=True)
    params = dict(config.hydra.sweeper.params or {})
    with open_dict(config):
        del config["hydra"]
    return _Chosen(config, params, tuple(config.get("parts") or ()))


def _split(overrides: Sequence[Override]) -> tuple[tuple[str, ...], list[Override]]:
    """Overrides that choose files, as written, and those that set values."""
    groups = {path.name for path in DIRECTORY.iterdir() if path.is_dir()}
    files, values = [], []
    for override in overrides:
        key = override.key_or_group
        if key in groups or "/" in key or "@" in key or override.is_delete():
            files.append(override.input_line or "")
        else:
            values.append(override)
    return tuple(files), values


def _set_values(config: DictConfig, values: Sequence[Override]) -> None:
    for override in values:
        key = override.key_or_group
        try:
            with open_dict(config) if override.is_add() else nullcontext():
                OmegaConf.update(config, key, override.value(), merge=True)
        except OmegaConfBaseException as error:
            raise HarnessError(
                f"configuration: Could not override '{key}': {first_line(error)}"
            ) from None


def sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every cell of an experiment: the product of its hydra.sweeper.params.

    An experiment with `parts` is the cells of its parts, one after another: each part is a line of
    overrides that names another experiment. Overrides given here win over an experiment's, comma
    lists included. The order is that of Hydra's own sweeper: the first parameter changes slowest.
    Raises HarnessError.
    """
    with _composing():
        return list(_expand(_by_key(overrides)))


@functools.lru_cache(maxsize=4096)
def _parsed(override: str) -> Override:
    """The cells of a sweep have most of their overrides in common."""
    return OverridesParser.create().parse_override(override)


def _by_key(overrides: Iterable[str]) -> dict[str, Override]:
    """Parsed; the last one of a key stands."""
    parsed = [_parsed(override) for override in overrides]
    return {override.key_or_group: override for override in parsed}


def _expand(given: dict[str, Override]) -> Iterator[list[str]]:
    experiment = given.get("experiment")
    if experiment is not None and experiment.is_sweep_override():
        for choice in _choices(experiment):
            yield from _expand(given | _by_key([choice]))
        return
    single = [override for override in given.values() if not override.is_sweep_override()]
    fixed = [override.input_line or "" for override in single]
    chosen = _chosen(DIRECTORY, _split(single)[0])
    if chosen.parts:
        mine = {key: override for key, override in given.items() if key != "experiment"}
        for part in chosen.parts:
            yield from _expand(_by_key(shlex.split(part)) | mine)
        return
    own = _by_key(f"{key}={value}" for key, value in chosen.params.items())
    swept = {key: override for key, override in own.items() if key not in given}
    swept |= {key: override for key, override in given.items() if override.is_sweep_override()}
    for combination in itertools.product(*(_choices(override) for override in swept.values())):
        yield [*fixed, *combination]


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
    # A sweep composes its cells while the program's own Hydra is at work.
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(DIRECTORY), version_base="1.3"):
            yield
    except (HydraException, OmegaConfBaseException) as error:
        raise HarnessError(f"configuration: {first_line(error)}") from None
    finally:
        GlobalHydra.instance().hydra = outer
