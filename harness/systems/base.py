"""What every system is to the harness: a server's arguments, and the proof that it is in use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.errors import HarnessError

CPU = "cpu"
ENGINE_CHOICES = ("attention_backend", "page_size")
"""Options of a system that are also arguments of the engine, by the same name."""


@dataclass(frozen=True)
class Hardware:
    """The part of a hardware profile (conf/hardware/) that a system needs.

    name: the profile's name. device: "cpu" or "cuda". profile: the resolved profile as a file, for
    the server's own dispatcher.
    """

    name: str
    device: str
    profile: Path


@dataclass(frozen=True)
class ServerInfo:
    """A `/server_info` reply, read with care: what is absent is None, never a default."""

    raw: Mapping[str, Any]

    def argument(self, name: str) -> Any:
        """A resolved server argument, such as `page_size`."""
        return self.raw.get(name)

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """What GraniKV's plugin says of itself, one dict a rank; empty on a stock server."""
        states = self.raw.get("internal_states") or [{}]
        return list(states[0].get("granikv") or [])

    @property
    def granikv(self) -> dict[str, Any] | None:
        """Rank 0's part of `ranks`."""
        return self.ranks[0] if self.ranks else None

    @property
    def counters(self) -> dict[str, int]:
        """Rank 0's counters since the server's start; empty on a stock server."""
        return dict((self.granikv or {}).get("counters", {}))


@dataclass(frozen=True)
class Traffic:
    """What a load should have made the server do.

    prefix_lengths: tokens of each shared prefix that the requests used. shared_by_all: whether one
    prefix opens every request.
    """

    prefix_lengths: Sequence[int]
    shared_by_all: bool


class System(ABC):
    """One way to serve. A system is a file in this package and one in conf/system/."""

    name: ClassVar[str]
    uses_storage: ClassVar[bool] = False
    """Whether the `storage` choices (f_p, admission, ...) mean anything to it."""

    def __init__(self, options: Mapping[str, Any], storage: Mapping[str, Any]) -> None:
        """options: the group `system`; storage: the node `storage` of the configuration."""
        self.options = options
        self.storage = storage

    def choice(self, key: str, hardware: Hardware) -> Any:
        """An option that may be given per device ({cuda: ..., cpu: ...})."""
        value = self.options.get(key)
        if isinstance(value, Mapping):
            if hardware.device not in value:
                raise HarnessError(f"system.{key} has no choice for device {hardware.device!r}")
            return value[hardware.device]
        return value

    def refusal(self, hardware: Hardware) -> str | None:
        """Why this system cannot run on this hardware, in one line; None when it can."""
        return None

    @abstractmethod
    def arguments(self, hardware: Hardware) -> list[str]:
        """This system's own flags of the server's command line."""

    def misuse(self, info: ServerInfo, hardware: Hardware) -> list[str]:
        """What shows that another system is running than was asked for; empty when all is well."""
        wrong = []
        for key in ENGINE_CHOICES:
            asked, got = self.choice(key, hardware), info.argument(key)
            if asked is not None and got != asked:
                wrong.append(f"the server's {key} is {got!r}, {asked!r} was asked for")
        return wrong

    def silent(self, before: ServerInfo, after: ServerInfo, traffic: Traffic) -> list[str]:
        """What should have fired between the flush and the end of the load and did not."""
        return []

    def overflowed(self, before: ServerInfo, after: ServerInfo) -> list[str]:
        """What shows that steps of the measured window were served otherwise than was forced."""
        return []

    def engine_arguments(self, hardware: Hardware) -> list[str]:
        """The engine's own flags for ENGINE_CHOICES, where a choice is made."""
        arguments = []
        for key in ENGINE_CHOICES:
            value = self.choice(key, hardware)
            if value is not None:
                arguments += ["--" + key.replace("_", "-"), str(value)]
        return arguments


def rise(before: ServerInfo, after: ServerInfo, counter: str) -> int | None:
    """How much a counter rose; None when the server does not know it."""
    if counter not in after.counters:
        return None
    return after.counters[counter] - before.counters.get(counter, 0)


def must_rise(before: ServerInfo, after: ServerInfo, counter: str, meaning: str) -> list[str]:
    """A reason unless the counter is known and rose."""
    risen = rise(before, after, counter)
    if risen is None:
        return [f"/server_info has no counter {counter!r}"]
    return [] if risen > 0 else [f"{meaning}: the counter {counter!r} did not rise"]


def must_not_rise(before: ServerInfo, after: ServerInfo, counter: str, meaning: str) -> list[str]:
    """A reason unless the counter is known and stayed."""
    risen = rise(before, after, counter)
    if risen is None:
        return [f"/server_info has no counter {counter!r}"]
    return [f"{meaning}: the counter {counter!r} rose by {risen}"] if risen > 0 else []
