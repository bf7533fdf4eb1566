"""From the group `model` of a configuration to a directory that a server can load."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import BuildError
from harness.files import identity
from harness.models import tiny_llama

SHAPES = Path(__file__).parent / "shapes"


@dataclass(frozen=True)
class Model:
    """A model ready to be served.

    path: its directory. arguments: the engine's flags for it. fingerprint: hash of what it is (its
    shape; of real weights the files' names and sizes too): part of a cell's identity, as the path
    is not.
    """

    name: str
    path: Path
    arguments: tuple[str, ...]
    fingerprint: str


def prepare(config: Mapping[str, Any], root: Path) -> Model:
    """Make or find the model; what is made goes to `root`/models. Raises BuildError."""
    source, degree = config["source"], int(config["tp"])
    parallel = ("--tensor-parallel-size", str(degree)) if degree > 1 else ()
    name = str(config["name"])
    if config.get("path"):
        return _real(name, Path(str(config["path"])).expanduser(), parallel)
    if source == "tiny":
        path = _tiny(name, config, root)
        return Model(name, path, parallel, _digest(path / "tiny_llama.json"))
    if source == "shape":
        path = _dummy(name, root)
        arguments = ("--load-format", "dummy", *parallel)
        return Model(name, path, arguments, "dummy-" + _digest(path / "config.json"))
    raise BuildError(
        f"model.source {source!r} is unknown; choose tiny or shape, or give model.path"
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _tiny(name: str, config: Mapping[str, Any], root: Path) -> Path:
    """The tiny model; another shape than the default one gets a directory of its own."""
    fields = {"vocab": config["vocab_size"], "max_positions": config["context_length"]}
    try:
        shape = tiny_llama.TinyLlama(**fields, **(config.get("shape") or {}))
    except TypeError:
        known = ", ".join(field.name for field in dataclasses.fields(tiny_llama.TinyLlama))
        raise BuildError(f"model.shape takes only: {known}") from None
    if shape != tiny_llama.TinyLlama():
        name = f"{name}-{identity(dataclasses.asdict(shape))}"
    return tiny_llama.write(root / "models" / name, shape)


def _dummy(name: str, root: Path) -> Path:
    """A directory that holds the shape alone, for --load-format dummy."""
    shape = SHAPES / f"{name}.json"
    if not shape.is_file():
        known = ", ".join(sorted(path.stem for path in SHAPES.glob("*.json")))
        raise BuildError(f"no shape is shipped for model {name!r}; there are: {known}")
    directory = root / "models" / name
    target = directory / "config.json"
    if not (target.is_file() and target.read_bytes() == shape.read_bytes()):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as beside:
            beside.write(shape.read_bytes())
        Path(beside.name).chmod(0o644)
        Path(beside.name).replace(target)
    return directory


def _real(name: str, path: Path, parallel: tuple[str, ...]) -> Model:
    config = path / "config.json"
    if not config.is_file():
        raise BuildError(f"model.path={path} holds no config.json: give a model's directory")
    weights = sorted((file.name, file.stat().st_size) for file in path.glob("*.safetensors"))
    if not weights:
        raise BuildError(f"model.path={path} holds no .safetensors file")
    described = json.dumps([_digest(config), weights])
    return Model(name, path, parallel, hashlib.sha256(described.encode()).hexdigest()[:16])
