"""What a figure module returns."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure


class NothingToDraw(Exception):  # noqa: N818 - it is an answer, not an error
    """The cells hold nothing that this figure shows; the message is the reason, for the index."""


@dataclass(frozen=True)
class Drawing:
    """A figure with the sentence that says what it shows and where its numbers come from."""

    figure: Figure
    caption: str
