"""What may be kept of a server's log: no host, user, directory, device id, address, key or request.

    scrub(text)             the text with each of these replaced by a word in <angle brackets>
    excerpt(log)            the scrubbed log, its middle left out when it is long
    arguments(command)      a command line, directories reduced to their last part
    environment(variables)  the same of environment variables

Replacing too much costs a reader little; what is published once stays published. So a rule takes
what looks like a secret although it may be none.
"""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

Rule: TypeAlias = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

HEAD_BYTES = 96 * 1024
TAIL_BYTES = 96 * 1024

_CONTENT = (
    "text|prompt|messages|content|input_text|output_text|generated_text|reasoning_content"
    "|input_ids|output_ids|origin_input_ids|token_ids|prompt_token_ids|input_embeds"
)
_QUOTED = r"'(?:[^'\\]|\\.)*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)"
_LIST = r"\[[^\[\]]*(?:\[[^\[\]]*\]?[^\[\]]*)*(?:\]|$)"
_SECRET = r"[\w-]*(?:api[_-]?key|secret|passw(?:or)?d|access[_-]?key|auth[_-]?token|_token|[_-]key)"
_WORD = r"[\w.@+~=,-]+"
_V6 = (
    r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"
    r"|(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6}"
    r"|::(?:[0-9a-f]{1,4}:){0,6}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,7}:"
)


def _path(match: re.Match[str]) -> str:
    """What follows site-packages, or the name of a source file: enough to find a line of code."""
    text = match.group(0)
    _, packages, inside = text.rpartition("site-packages/")
    if packages:
        return f"<path>/{inside}"
    name = text.rpartition("/")[2]
    return f"<path>/{name}" if name.endswith((".py", ".so", ".cu", ".cuh", ".cpp")) else "<path>"


def _list(match: re.Match[str]) -> str:
    """A long list of integers may be token ids; what SGLang captures graphs for is none."""
    shapes = re.search(r"\b(?:num_tokens|bs|batch_sizes|capture_bs)=$", match.group("before"))
    return match.group(0) if shapes else f"{match.group('before')}[<content>]"


def _address(match: re.Match[str]) -> str:
    return match.group(0) if match.group(0) in ("127.0.0.1", "0.0.0.0") else "<address>"


RULES: tuple[Rule, ...] = (
    # Requests: SGLang prints them whole when it is asked to log them.
    (re.compile(r"\b\w*(?:ReqInput|ReqOutput|Request)\(.*"), "<request>"),
    (re.compile(rf"(['\"]?\b(?:{_CONTENT})['\"]?\s*[=:]\s*)(?:{_QUOTED}|{_LIST})"), r"\1<content>"),
    (re.compile(r"(?P<before>[\w=]*)\[\s*-?\d+(?:\s*,\s*-?\d+){7,}[^\]]*(?:\]|$)"), _list),
    # Keys, by what they are called and by what they look like.
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), r"\1 <key>"),
    (
        re.compile(rf"(?i)(\b{_SECRET}['\"]?(?:\s*[=:]\s*|\s+))(?!None\b)(?:{_QUOTED}|[^\s,;)]+)"),
        r"\1<key>",
    ),
    (re.compile(r"\bhf_[A-Za-z0-9]{12,}"), "<key>"),
    (re.compile(r"\b(?:sk-|ghp_|github_pat_|glpat-|xox[abp]-|AKIA)[\w-]{8,}"), "<key>"),
    # Ids of devices, requests and processes elsewhere.
    (
        re.compile(
            r"\b(?:(?:GPU|MIG|MIG-GPU)-)?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
        ),
        "<id>",
    ),
    (re.compile(r"\b[0-9a-f]{32,64}\b"), "<id>"),
    # Addresses and names of machines and people.
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "<mail>"),
    (re.compile(r"(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"), "<address>"),
    (re.compile(rf"(?i)(?<![\w:.])(?:{_V6})(?![\w:])"), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), _address),
    (re.compile(r"(?i)\b[\w-]+(?:\.[\w-]+)*\.(?:local|internal|lan|corp|localdomain|svc)\b"),
     "<host>"),
    (
        re.compile(
            r"(?i)(\b(?:host|hostname|node|nodename|user|username|logname)['\"]?\s*[=:]\s*)"
            rf"(?!['\"]?(?:127\.0\.0\.1|0\.0\.0\.0|localhost|None)\b)(?:{_QUOTED}|[\w.-]+)"
        ),
        r"\1<name>",
    ),
    # Directories.
    (re.compile(rf"(?<![\w.<>/:])~[\w-]*(?:/{_WORD})+"), _path),
    (re.compile(rf"(?<![\w.<>/])/(?:{_WORD}/)+(?:{_WORD})?|(?<=file://)/(?:{_WORD}/?)+"), _path),
    (re.compile(r"(?<![\w.<>/])/(?:home|Users|root|data|mnt|scratch)\b(?!/)"), "<path>"),
)  # fmt: skip
"""What is replaced, in this order: (what it looks like, what stands there instead)."""


_SECRET_NAME = re.compile(rf"(?i){_SECRET}$")


@cache
def _own() -> tuple[re.Pattern[str], ...]:
    """The names of this machine and of its user, which no general rule can know."""
    host = platform.node()
    names = {host, host.partition(".")[0], *_users()}
    # A short name or a common word would blot out half of the log.
    telling = sorted((n for n in names if len(n) > 2 and n not in ("root", "localhost")), key=len)
    return tuple(re.compile(rf"(?<![\w-]){re.escape(n)}(?![\w-])") for n in reversed(telling))


def _users() -> set[str]:
    try:
        return {getpass.getuser()}
    except (KeyError, OSError):
        return set()


def scrub(text: str) -> str:
    """The text without anything in RULES and without this machine's and user's names."""
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    for pattern, instead in RULES:
        line = pattern.sub(instead, line)
    for name in _own():
        line = name.sub("<name>", line)
    return line


def arguments(command: Sequence[str]) -> list[str]:
    """A command line as it may be kept: no directory, and no value of a key or password."""
    kept: list[str] = []
    for argument, before in zip(command, ["", *command], strict=False):
        secret = before.startswith("-") and _SECRET_NAME.search(before)
        kept.append("<key>" if secret else scrub(_without_directory(argument)))
    return kept


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables as they may be kept."""
    return {
        name: "<key>" if _SECRET_NAME.search(name) else scrub(_without_directory(str(value)))
        for name, value in variables.items()
    }


def _without_directory(text: str) -> str:
    return Path(text).name if text.startswith("/") else text


def excerpt(log: Path) -> str:
    """A log for keeping: scrubbed, progress bars reduced to their last state, at most 192 KiB.

    Of a longer one the beginning and the end stay: how the server started and how it ended.
    """
    data = log.read_bytes()
    if (left_out := len(data) - HEAD_BYTES - TAIL_BYTES) > 0:
        middle = f"\n... {left_out:,} bytes left out ...\n".encode()
        # Cut at line ends: half a line may hide from a rule that knows its beginning.
        head = data[:HEAD_BYTES].rpartition(b"\n")[0]
        tail = data[-TAIL_BYTES:].partition(b"\n")[2]
        data = head + middle + tail
    text = data.decode("utf-8", "replace")
    return scrub("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")))
