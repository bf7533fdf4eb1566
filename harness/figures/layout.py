"""The layout figure (§3.4): pools, slabs and radix tree as a live server reported them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from harness.analysis.cells import CellLike, Standing, server_state, standing
from harness.analysis.slabs import run_count
from harness.figures import radix, style
from harness.figures.drawing import Drawing, NothingToDraw
from harness.tables.labels import length_label, system_label
from harness.tables.sources import Sources

SLAB_COLOURS = (style.SKY, style.ORANGE, style.GREEN, style.PURPLE, style.VERMILION)
COLD_COLOUR = "#b5b5b5"
MANY_COLOUR = style.YELLOW
LINES_PER_ROW = 1.6
"""Lines of the key that fit beside one row of the tree."""
NARROW = 0.025
"""Share of an axis below which a bar holds no letter."""
MOST_ROWS = 40


def choose(cells: Sequence[CellLike]) -> tuple[CellLike, Mapping[str, Any]]:
    """A cell of several prefixes, of few of them, unequal ones first; then the most slabs.

    Among equals the fewest nodes, then the first id.
    """
    drawable = [(cell, state) for cell in cells if (state := server_state(cell)) is not None]
    if not drawable:
        raise NothingToDraw(
            "No cell holds a server's tree and whole pools; measure a system with GraniKV's "
            "storage layer first."
        )
    return min(drawable, key=_preference)


def _preference(drawable: tuple[CellLike, Mapping[str, Any]]) -> tuple[object, ...]:
    cell, state = drawable
    at, tree = standing(cell), state["tree"]
    return (at.k < 2, at.k, not at.unequal, -run_count(tree), len(tree), cell.id)


def _colour(letter: str, slabs: Sequence[radix.Slab]) -> str:
    """A named slab's colour, the same in pool and tree."""
    named = [slab.letter for slab in slabs if slab.letter]
    return SLAB_COLOURS[named.index(letter) % len(SLAB_COLOURS)] if letter else MANY_COLOUR


def _bar_colour(bar: radix.Bar, slabs: Sequence[radix.Slab]) -> str:
    return _colour(bar.slab, slabs) if bar.hot else COLD_COLOUR


def _box(axes: Axes, x: float, y: float, width: float, height: float, **look: Any) -> None:
    axes.add_patch(Rectangle((x, y), width, height, **look))


def _bare(axes: Axes) -> None:
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _draw_hot(axes: Axes, pools: Mapping[str, Any], slabs: Sequence[radix.Slab]) -> None:
    start, size = int(pools["hot_start"]), int(pools["hot_size"])
    for base, length in pools.get("hot_donated_ranges", ()):
        _box(
            axes,
            base,
            0,
            length,
            1,
            facecolor=COLD_COLOUR,
            edgecolor="white",
            hatch="///",
            linewidth=0,
        )
    for slab in slabs:
        _box(
            axes,
            slab.base,
            0,
            slab.length,
            1,
            facecolor=_colour(slab.letter, slabs),
            edgecolor=style.BLACK,
            # A sliver's edges would cover its colour.
            linewidth=0.8 if slab.length >= NARROW * size else 0.0,
        )
        if slab.length >= NARROW * size:
            axes.text(
                slab.base + slab.length / 2, 0.5, slab.letter, ha="center", va="center", fontsize=9
            )
    _box(axes, start, 0, size, 1, facecolor="none", edgecolor=style.BLACK, linewidth=0.8)
    axes.set_xlim(start, start + max(size, 1))
    axes.set_ylim(0, 1)
    _bare(axes)
    donated = (
        f", {pools['hot_donated']:,} on loan to COLD (hatched)" if pools["hot_donated"] else ""
    )
    style.describe(
        axes,
        title=f"HOT pool: {size:,} slots, {pools['hot_live']:,} in slabs, "
        f"{pools['hot_free']:,} free{donated}",
        x="slot",
        y="",
    )


def _draw_cold(axes: Axes, pools: Mapping[str, Any]) -> None:
    live, free = int(pools["cold_live"]), int(pools["cold_free"])
    _box(axes, 0, 0, live, 1, facecolor=COLD_COLOUR, edgecolor="none")
    _box(axes, 0, 0, max(live + free, 1), 1, facecolor="none", edgecolor=style.BLACK, linewidth=0.8)
    axes.set_xlim(0, max(live + free, 1))
    axes.set_ylim(0, 1)
    _bare(axes)
    style.describe(
        axes,
        title=f"COLD pool: {live + free:,} slots (page size {pools['page_size']}), {live:,} live, "
        f"{free:,} free",
        x="slots (a count, not positions)",
        y="",
    )


def _tokens(shortest: int, longest: int) -> str:
    span = f"{shortest:,}" if shortest == longest else f"{shortest:,}–{longest:,}"
    return f"{span} token" + ("" if longest == 1 else "s")


def _bar_text(bar: radix.Bar) -> str:
    """What stands to the right of a leaf: its slab's letter, or how many nodes of which pool."""
    if bar.slab:
        return bar.slab
    many = f"{bar.branches:,} × " if bar.branches > 1 else ""
    return f"{many}{'HOT' if bar.hot else 'COLD'}, {_tokens(bar.shortest, bar.longest)}"


def _draw_tree(axes: Axes, layout: radix.Layout, listed: str) -> None:
    ends = max(bar.end for bar in layout.bars)
    for bar in layout.bars:
        _box(
            axes,
            bar.start,
            bar.top + 0.08,
            bar.end - bar.start,
            bar.height - 0.16,
            facecolor=_bar_colour(bar, layout.slabs),
            edgecolor=style.BLACK,
            linewidth=0.6,
        )
        middle = bar.top + bar.height / 2
        if bar.slab and bar.end - bar.start >= NARROW * ends:
            axes.text(
                (bar.start + bar.end) / 2, middle, bar.slab, ha="center", va="center", fontsize=9
            )
        elif bar.leaf:
            axes.text(bar.end + 0.012 * ends, middle, _bar_text(bar), va="center", fontsize=8)
    axes.set_xlim(0, 1.36 * ends)
    axes.set_ylim(layout.rows, 0)
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= ends])
    _bare(axes)
    style.describe(
        axes,
        title="Radix tree: a bar is a node, its children to the right; letters are slabs",
        x=f"token position in the prompt{listed}{_below(layout.bars)}",
        y="",
    )


def _below(bars: Sequence[radix.Bar]) -> str:
    """A bar of many branches is as long as the longest of them: what lies below is not drawn."""
    counts = {
        pool: sum(bar.nodes - bar.branches for bar in bars if bar.hot is hot)
        for pool, hot in (("HOT", True), ("COLD", False))
    }
    said = " and ".join(f"{count:,} {pool}" for pool, count in counts.items() if count)
    return f"\nNot drawn apart: {said} nodes below those that share a bar" if said else ""


def _listed(state: Mapping[str, Any]) -> str:
    """A server lists so many nodes at most: what of the tree is not drawn."""
    listed, of = len(state["tree"]), int(state.get("tree_nodes") or 0)
    return f" ({listed:,} of {of:,} nodes listed)" if of > listed else ""


def _key_lines(slabs: Sequence[radix.Slab], room: int) -> list[tuple[str, str | None]]:
    """(text, letter) of each line of the key; the letter is None where no slab is meant."""
    named = [slab for slab in slabs if slab.letter]
    lines: list[tuple[str, str | None]] = [
        (f"{s.letter}  {s.length:,} at slot {s.base:,}, {_readers(s.readers)}", s.letter)
        for s in named[:room]
    ]
    if len(named) > room:
        lines.append((f"and {len(named) - room:,} more", None))
    if len(named) < len(slabs):
        lines.append((f"{len(slabs) - len(named):,} slabs of suffixes", ""))
    return lines


def _readers(count: int) -> str:
    return f"{count:,} reader" + ("" if count == 1 else "s")


def _draw_key(axes: Axes, slabs: Sequence[radix.Slab], room: int) -> None:
    axes.axis("off")
    axes.set_title("Slabs (tokens)", loc="left")
    for index, (line, letter) in enumerate(_key_lines(slabs, room)):
        y = 1 - (index + 0.5) / (room + 2)
        if letter is not None:
            axes.plot(
                [0.03],
                [y],
                marker="s",
                markersize=8,
                color=_colour(letter, slabs),
                markeredgecolor=style.BLACK,
                markeredgewidth=0.6,
                transform=axes.transAxes,
            )
        axes.text(0.09, y, line, va="center", fontsize=8, transform=axes.transAxes)


def _caption(cell: CellLike, state: Mapping[str, Any], held: Sequence[radix.Slab]) -> str:
    at, live = standing(cell), state.get("live_requests")
    flying = (
        "requests were" if live is None else f"{live:,} request{'s were' if live != 1 else ' was'}"
    )
    when = f"while {flying} in flight" if state is cell.layout else "after the load"
    unread = sum(slab.readers == 0 for slab in held)
    return (
        f"Pools, slabs and radix tree as the server of cell {cell.id} reported them {when}: "
        f"{system_label(at.system)}, {at.title}, {at.kind}, {_prefixes(at)}. "
        "A slab is a run of neighbouring slots, whose nodes are one bar where nothing branches off."
        + (
            f" {unread:,} of {len(held):,} slabs had no reader: what requests that had ended left."
            if unread
            else ""
        )
    )


def _prefixes(at: Standing) -> str:
    lengths = "/".join(length_label(length) for length in sorted(set(at.prefix_lengths)))
    return f"one prefix of {lengths}" if at.k == 1 else f"{at.k} prefixes of {lengths}"


def draw(sources: Sources) -> Drawing:
    """The layout of one live server, from a cell measured here or else from a shipped one."""
    try:
        cell, state = choose(sources.here)
    except NothingToDraw:
        cell, state = choose(sources.shipped)
    layout = radix.place(radix.parse(state["tree"]))
    rows = min(max(layout.rows, 4), MOST_ROWS)
    figure = style.figure(7.4, 2.7 + 0.3 * rows)
    grid = figure.add_gridspec(3, 2, height_ratios=(1, 1, rows * 0.75), width_ratios=(2.6, 1))
    _draw_hot(figure.add_subplot(grid[0, :]), state["pools"], layout.slabs)
    _draw_cold(figure.add_subplot(grid[1, :]), state["pools"])
    _draw_tree(figure.add_subplot(grid[2, 0]), layout, _listed(state))
    _draw_key(figure.add_subplot(grid[2, 1]), layout.slabs, max(int(LINES_PER_ROW * rows) - 2, 6))
    return Drawing(figure, _caption(cell, state, layout.slabs))
