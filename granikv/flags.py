"""`--granikv` and its companions, turned into official flags of the engine.

The engine's argument parser has no extension point, so its argument list is read first: ours are
taken out, and what makes the engine use our tree and our decode backend is put in.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from typing import Any

from granikv.config import GRANIKV, SGLANG_CASCADE, ConfigError, GraniKVConfig

DECODE_BACKEND = "granikv"
RADIX_BACKEND = "granikv"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ConfigError(message)


def parser() -> argparse.ArgumentParser:
    """The parser of our own flags; every other argument belongs to the engine."""
    flags = _Parser(prog="granikv", add_help=False, allow_abbrev=False)
    flags.add_argument("--granikv", action="store_true", help="switch the storage layer on")
    flags.add_argument(
        "--sglang-cascade",
        action="store_true",
        help="cascade attention on the engine's ordinary pages, without the storage layer",
    )
    add = flags.add_argument
    add("--granikv-hot-fraction", type=float, help="f_p: part of the KV budget that is HOT")
    add("--granikv-admission", help="eager, on_share or pinned")
    add("--granikv-min-tokens", type=int, help="shortest slab, in tokens")
    add("--granikv-eviction", help="lru or hotness")
    add("--granikv-backend", help="auto, dense, cascade, paged, contiguous_unshared or hydragen")
    add("--granikv-rule", help="how auto chooses: auto, saturation or cost")
    add("--granikv-hardware", help="hardware profile: a name or a file")
    add("--granikv-pin-budget", type=float, help="part of HOT that pinned prefixes may hold")
    add("--granikv-checks", action="store_true", default=None, help="audit every step (slow)")
    return flags


def split(argv: Sequence[str]) -> tuple[GraniKVConfig | None, list[str]]:
    """Our configuration, or None where GraniKV is not asked for, and the engine's arguments.

    Raises:
        ConfigError: a flag of ours is wrong, or stands without the switch it belongs to.
    """
    ours, rest = parser().parse_known_args(list(argv))
    unknown = [a for a in rest if a.startswith("--granikv")]
    if unknown:
        raise ConfigError(f"{unknown[0]} is no flag of GraniKV; `granikv serve --help` lists them")
    given = {
        name.removeprefix("granikv_"): value
        for name, value in vars(ours).items()
        if name.startswith("granikv_") and value is not None
    }
    if ours.granikv and ours.sglang_cascade:
        raise ConfigError("--granikv and --sglang-cascade are two systems; give one of them")
    if not ours.granikv and not ours.sglang_cascade:
        if given:
            flag = "--granikv-" + next(iter(given)).replace("_", "-")
            raise ConfigError(f"{flag} needs --granikv")
        return None, rest
    if ours.sglang_cascade:
        given = {"backend": "cascade", **given}
    system = GRANIKV if ours.granikv else SGLANG_CASCADE
    token = secrets.token_hex(16)
    config = GraniKVConfig(system=system, control_token=token, **given)
    return config, rest


def engine_options(config: GraniKVConfig) -> dict[str, str]:
    """What the engine must be told, as keyword arguments of `sglang.Engine`."""
    options = {"decode_attention_backend": DECODE_BACKEND}
    if config.system == GRANIKV:
        options["radix_cache_backend"] = RADIX_BACKEND
    return options


def engine_arguments(config: GraniKVConfig, rest: Sequence[str]) -> list[str]:
    """`engine_options` as command-line flags, behind the engine's own.

    Raises:
        ConfigError: the user chose one of these himself, which cannot both be true.
    """
    arguments = list(rest)
    if any(a.endswith(DECODE_BACKEND) and "attention-backend" in f for f, a in _pairs(rest)):
        raise ConfigError(f"{DECODE_BACKEND!r} serves decode only; leave the attention backend out")
    for option, value in engine_options(config).items():
        flag = "--" + option.replace("_", "-")
        if any(a == flag or a.startswith(flag + "=") for a in rest):
            raise ConfigError(f"{flag} is GraniKV's to set; leave it out")
        arguments += [flag, value]
    return arguments


def _pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Each argument with the flag that it belongs to; itself where it is `--flag=value`."""
    return [
        (a if "=" in a else before, a)
        for before, a in zip(["", *arguments], arguments, strict=False)
    ]
