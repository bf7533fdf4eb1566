"""Which runs of A stand beside which of B."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.comparison.record import Record

Group: TypeAlias = list[Record]
"""The repetitions of one variant."""

NOT_A_CHOICE = frozenset({"system.title", "model.title", "hardware.title", "output", "rerun"})


@dataclass(frozen=True)
class Pair:
    """The same experiment in A and in B, and what was chosen differently: (setting, A, B)."""

    a: Group
    b: Group
    differences: Sequence[tuple[str, str, str]]

    @property
    def title(self) -> str:
        """The experiment in a few words; of both sides where they are called differently."""
        a, b = _title(self.a[0]), _title(self.b[0])
        return a if a == b else f"{a} → {b}"


@dataclass(frozen=True)
class Match:
    """All pairs, and the experiments that stand on one side only."""

    pairs: Sequence[Pair]
    only_a: Sequence[str]
    only_b: Sequence[str]


def match(a: Sequence[Record], b: Sequence[Record]) -> Match:
    """Pair variants: equal to the last setting, else the only ones of one name on both sides.

    Where each side has but one variant, the two are a pair whatever they are called.
    """
    left, right = _groups(a), _groups(b)
    pairs: list[Pair] = []
    keys: tuple[Callable[[Record], object], ...] = (
        lambda one: one.variant,
        lambda one: one.place,
        lambda one: one.place[1:],
    )
    for key in keys:
        pairs += _take_pairs(left, right, key)
    if len(left) == len(right) == 1 and not pairs:
        pairs.append(_pair(left.pop(), right.pop()))
    return Match(
        sorted(pairs, key=lambda pair: pair.a[0].place),
        [_title(group[0]) for group in left],
        [_title(group[0]) for group in right],
    )


def _groups(records: Sequence[Record]) -> list[Group]:
    groups: dict[str, Group] = {}
    for record in sorted(records, key=lambda one: (one.place, one.repetition, one.id)):
        groups.setdefault(record.variant, []).append(record)
    return list(groups.values())


def _take_pairs(
    left: list[Group], right: list[Group], key: Callable[[Record], object]
) -> Iterator[Pair]:
    """Remove and give the groups whose key stands once on either side."""
    for group in list(left):
        wanted = key(group[0])
        here = [one for one in left if key(one[0]) == wanted]
        there = [one for one in right if key(one[0]) == wanted]
        if len(here) == len(there) == 1:
            left.remove(here[0])
            right.remove(there[0])
            yield _pair(here[0], there[0])


def _pair(a: Group, b: Group) -> Pair:
    ours, theirs = a[0].settings, b[0].settings
    names = sorted((set(ours) | set(theirs)) - NOT_A_CHOICE)
    if a[0].source != b[0].source:
        # Tools name their settings differently: only that they differ can be said.
        return Pair(a, b, [("source", a[0].source, b[0].source)])
    return Pair(
        a,
        b,
        [
            (name, str(ours.get(name)), str(theirs.get(name)))
            for name in names
            if ours.get(name) != theirs.get(name)
        ],
    )


def _title(record: Record) -> str:
    place = (record.hardware, record.model, record.system, record.workload, record.load)
    return ", ".join(part for part in place if part)
