"""Reading a workload's configuration: flat keys, one-line errors, no key silently ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from workloads.contents import FIRST_TOKEN
from workloads.request import WorkloadError

_T = TypeVar("_T")
_REQUIRED: Any = object()


class Options:
    """Takes keys out of a mapping, checked; remembers what it resolved, defaults included.

    Every reader raises WorkloadError in one line; null means the same as an absent key.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {key: value for key, value in config.items() if value is not None}
        self._given = set(config)
        self._known: set[str] = set()
        self.resolved: dict[str, Any] = {}

    def integer(self, key: str, default: int = _REQUIRED, *, minimum: int = 1) -> int:
        """An integer ≥ minimum."""
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise WorkloadError(f"{key} must be an integer, not {value!r}")
        if value < minimum:
            raise WorkloadError(f"{key} must be at least {minimum}, not {value}")
        return self._record(key, value)

    def optional_integer(self, key: str, *, minimum: int = 1) -> int | None:
        """An integer ≥ minimum, or None when the key is absent."""
        return self.integer(key, minimum=minimum) if self.has(key) else self._record(key, None)

    def integers(self, key: str, *, minimum: int = 1) -> tuple[int, ...] | None:
        """A non-empty list of integers ≥ minimum, or None when the key is absent."""
        if not self.has(key):
            return self._record(key, None)
        values = self._take(key)
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise WorkloadError(f"{key} must be a list of integers, not {values!r}")
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise WorkloadError(f"{key} must hold integers of at least {minimum}: {value!r}")
        self._record(key, list(values))
        return tuple(values)

    def fraction(self, key: str) -> float | None:
        """A number in (0, 1), or None when the key is absent."""
        if not self.has(key):
            return self._record(key, None)
        value = self._take(key)
        if not isinstance(value, int | float) or not 0 < value < 1:
            raise WorkloadError(f"{key} must lie between 0 and 1, not {value!r}")
        return self._record(key, float(value))

    def seconds(self, key: str, default: float) -> float:
        """A number ≥ 0."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise WorkloadError(f"{key} must be a number of seconds, not {value!r}")
        return self._record(key, float(value))

    def choice(self, key: str, default: str, allowed: Sequence[str]) -> str:
        """One of the allowed words."""
        value = self._take(key, default)
        if value not in allowed:
            raise WorkloadError(f"{key} must be one of {', '.join(allowed)}, not {value!r}")
        return self._record(key, str(value))

    def text(self, key: str, default: str = _REQUIRED) -> str:
        """A non-empty string."""
        value = self._take(key, default)
        if not isinstance(value, str) or not value:
            raise WorkloadError(f"{key} must be a word, not {value!r}")
        return self._record(key, value)

    def path(self, key: str) -> Path | None:
        """A path, or None; never recorded, since where a file lies changes nothing that is sent."""
        if not self.has(key):
            return None
        return Path(str(self._take(key))).expanduser()

    def has(self, key: str) -> bool:
        """Whether the key is given and is not null."""
        self._known.add(key)
        return key in self._config

    def finish(self, common: Common, longest_prefix: int) -> None:
        """To call when every key is read, before anything is made.

        Raises WorkloadError if a key was given that nothing has asked for, or if the longest
        prefix cannot fit the model's context with a suffix of one token and the output.
        """
        self.check_known()
        common.check_fits(longest_prefix + 1)

    def check_known(self) -> None:
        """Raises WorkloadError if a key was given that nothing has asked for."""
        unknown = sorted(self._given - self._known)
        if unknown:
            raise WorkloadError(
                f"unknown workload key {unknown[0]!r}; this kind takes: "
                f"{', '.join(sorted(self._known))}"
            )

    def _take(self, key: str, default: Any = _REQUIRED) -> Any:
        if self.has(key):
            return self._config[key]
        if default is _REQUIRED:
            raise WorkloadError(f"the workload needs {key}")
        return default

    def _record(self, key: str, value: _T) -> _T:
        self.resolved[key] = value
        return value


@dataclass(frozen=True)
class Basics:
    """What every kind of workload takes.

    vocab_size: ids are drawn below it. context_length: the model's limit in tokens, prompt and
    output together, or None.
    """

    name: str
    seed: int
    vocab_size: int
    context_length: int | None

    @classmethod
    def of(cls, options: Options) -> Basics:
        """Read from the configuration."""
        kind = options.text("kind")
        # Labels for reports and for the system's own configuration; no request depends on them
        # (but a trace's, which `scale` shrinks).
        options.integer("scale", 1)
        options.fraction("hot_fraction")
        return cls(
            name=options.text("name", kind),
            seed=options.integer("seed", 42, minimum=0),
            vocab_size=options.integer("vocab_size", minimum=FIRST_TOKEN + 1),
            context_length=options.optional_integer("context_length"),
        )

    def check_length(self, prompt_tokens: int, output_tokens: int) -> None:
        """Raises WorkloadError if a prompt this long and its output exceed the context."""
        limit = self.context_length
        if limit is not None and prompt_tokens + output_tokens > limit:
            raise WorkloadError(
                f"a prompt of {prompt_tokens} tokens and {output_tokens} output tokens exceed "
                f"the model's context of {limit}: use shorter prefixes or another model"
            )


@dataclass(frozen=True)
class Common(Basics):
    """What the kinds with equal outputs take.

    requests: how many. output_tokens: max_new_tokens of each.
    """

    requests: int
    output_tokens: int

    @classmethod
    def read(cls, options: Options, *, requests: int, output_tokens: int) -> Common:
        """Read from the configuration, with this kind's defaults (the paper's numbers)."""
        basics = Basics.of(options)
        return cls(
            **vars(basics),
            requests=options.integer("requests", requests),
            output_tokens=options.integer("output_tokens", output_tokens),
        )

    def check_fits(self, prompt_tokens: int) -> None:
        """Raises WorkloadError if a prompt this long and its output exceed the context."""
        self.check_length(prompt_tokens, self.output_tokens)
