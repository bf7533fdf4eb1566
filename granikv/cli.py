"""The `granikv` command: serve, doctor, calibrate, pin, unpin, pins."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from granikv import doctor, remote
from granikv.hardware import HardwareProfile, find_profile

LOOPBACK = "127.0.0.1"
_USAGE = """granikv COMMAND ...

  serve ARGS       serve with the storage layer on: every flag of `python -m sglang.launch_server`,
                   and `granikv serve --help` for GraniKV's own; loopback by default
  doctor           what this machine can run, and what is missing
  calibrate ARGS   measure this device and write a hardware profile
  pin, pins, unpin declared prefixes of a running server (they need its admin key)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments.pop(0) if arguments else "help"
    if command == "serve":
        return _serve(arguments)
    if command == "doctor":
        return doctor.main(arguments)
    if command == "calibrate":
        from granikv import calibrate

        return calibrate.main(arguments)
    if command in ("pin", "pins", "unpin"):
        return _pins(command, arguments)
    if command in ("help", "-h", "--help"):
        print(_USAGE)
        return 0
    print(f"granikv: no command {command!r}; `granikv help` lists them", file=sys.stderr)
    return 2


def serve_command(arguments: Sequence[str]) -> list[str]:
    """The engine's own command line for `granikv serve ARGUMENTS`."""
    ours = [] if {"--granikv", "--sglang-cascade"} & set(arguments) else ["--granikv"]
    host = [] if _given(arguments, "--host") else ["--host", LOOPBACK]
    return [sys.executable, "-m", "sglang.launch_server", *arguments, *host, *ours]


def _serve(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        from granikv import flags

        flags.parser().print_help()
        print("\nEvery other flag is the engine's: `python -m sglang.launch_server --help`.")
        return 0
    missing = doctor.missing_engine()
    if missing:
        print(f"granikv: {missing}", file=sys.stderr)
        return 1
    if not doctor.has_gpu() and not _given(arguments, "--device"):
        print("granikv: no GPU here: serving on the CPU in float32, for checks only", flush=True)
        profile = find_profile("cpu")
        os.environ.update(profile.server_env)
        arguments = [*arguments, *cpu_arguments(arguments, profile)]
    return _replace_process(serve_command(arguments))


def cpu_arguments(arguments: Sequence[str], profile: HardwareProfile) -> list[str]:
    """What the engine needs on a CPU and ``arguments`` do not say.

    A model's own tokenizer is kept: the profile leaves it out for the harness, which sends ids.
    """
    needed = [("--attention-backend", "torch_native"), *_flags(profile.server_args)]
    added: list[str] = []
    for flag, *value in needed:
        if flag != "--skip-tokenizer-init" and not _given(arguments, flag):
            added += [flag, *value]
    return added


def _flags(arguments: Sequence[str]) -> list[tuple[str, ...]]:
    """A flat argument list as (flag,) and (flag, value) tuples."""
    grouped: list[tuple[str, ...]] = []
    for argument in arguments:
        if argument.startswith("--"):
            grouped.append((argument,))
        else:
            grouped[-1] = (*grouped[-1], argument)
    return grouped


def _given(arguments: Sequence[str], flag: str) -> bool:
    return any(a == flag or a.startswith(flag + "=") for a in arguments)


def _replace_process(command: Sequence[str]) -> NoReturn:
    """Become the engine, so that signals and the exit status are its own."""
    sys.stdout.flush()
    os.execv(command[0], list(command))


def _pins(command: str, arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"granikv {command}")
    parser.add_argument("--url", default=f"http://{LOOPBACK}:30000", help="the server")
    parser.add_argument("--admin-key", default=os.environ.get("GRANIKV_ADMIN_KEY", ""))
    if command == "pin":
        given = parser.add_mutually_exclusive_group(required=True)
        given.add_argument("--text-file", help="file with the prefix as text")
        given.add_argument("--ids-file", help="file with the prefix as a JSON list of token ids")
    if command == "unpin":
        parser.add_argument("number", type=int, help="as `granikv pins` shows it")
    options = parser.parse_args(list(arguments))
    server = remote.Server(options.url, options.admin_key)
    try:
        if command == "pins":
            answer = server.pins()
        elif command == "unpin":
            answer = server.unpin(options.number)
        else:
            answer = server.pin(remote.read_prefix(options.text_file, options.ids_file))
    except remote.RemoteError as error:
        print(f"granikv: {error}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
