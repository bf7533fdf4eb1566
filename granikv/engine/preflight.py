"""What is looked at before a model is loaded, so that it is said in one line and at once."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from granikv.config import ConfigError


def check_model(arguments: Sequence[str]) -> None:
    """A model given as a path must be there.

    Raises:
        ConfigError: it is not, or it holds no configuration.
    """
    model = _value(arguments, ("--model-path", "--model"))
    if model is None and _value(arguments, ("--config",)) is not None:
        return
    if model is None:
        raise ConfigError("--model-path is missing: give a folder with a model or a model's name")
    path = Path(model).expanduser()
    looks_like_a_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if not path.exists() and looks_like_a_path:
        raise ConfigError(f"there is no model at {model}")
    if path.is_dir() and not (path / "config.json").exists():
        raise ConfigError(f"{model} holds no config.json, so it is no model")


def check_port(host: str, port: int) -> None:
    """The port must be free.

    Raises:
        ConfigError: something listens there, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot serve at {host}:{port}: {reason}; give --port") from None


def _value(arguments: Sequence[str], flags: tuple[str, ...]) -> str | None:
    for at, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name in flags:
            following = arguments[at + 1] if at + 1 < len(arguments) else None
            return value or following
    return None
