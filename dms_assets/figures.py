"""What routes, baselines and their coverage look like: pure functions from plain numbers to figures.

Belongs here: one function per figure and the plain input of each. Does not belong here: style and rendering
(`resources.figures`), deciding what is covered (`spans`, `plan`), Dagster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from resources import figures as style

# One look per state of the plan, best first. Every state differs from its neighbours in lightness or hatch as well.
STATE_COLOURS: dict[str, tuple[str, str]] = {
    "covered": (style.BLUE, ""),
    "unmeetable": (style.SKY, "////"),
    "no_video": (style.GRID, ""),
    "partial": (style.YELLOW, ""),
    "stale": (style.PURPLE, "...."),
    "absent": (style.ORANGE, ""),
    "invalid": (style.VERMILION, "xxxx"),
    "unreadable": (style.BLACK, ""),
    "settling": (style.GREEN, "...."),
    "inaccessible": (style.MUTED, "xxxx"),
}
FAIL_COLOURS: dict[str, tuple[str, str]] = {
    "no_box": (style.ORANGE, ""),
    "no_frame": (style.PURPLE, "////"),
    "no_face": (style.SKY, ""),
    "non_finite": (style.BLACK, ""),
    "invalid_windows": (style.VERMILION, "...."),
}
_MANY_ROUTES = 40
_LEVELS = 50
_MAX_COLUMNS = 100  # buckets of routes on the width of the matrix


@dataclass(frozen=True, slots=True)
class ChannelHistogram:
    """A channel's values over valid rows: `counts` (B,) between `edges` (B + 1,), and those of the result before."""

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]
    previous: NDArray[np.int64] | None = None


def failure_codes(rows: Mapping[str, Mapping[str, int]]) -> Figure:
    """Failed rows per baseline and code. `rows`: baseline -> name of the code, `ok` included -> stored rows."""
    figure = style.new_figure(
        "Failed rows by baseline",
        "share of the stored rows, by failure code",
        height_in=1.65 + 0.34 * max(len(rows), 2),
    )
    axis = figure.subplots()
    totals = {name: sum(codes.values()) for name, codes in rows.items()}
    if not any(totals.values()):
        style.no_data(axis, "no row is stored yet")
        return figure
    places = np.arange(len(rows))[::-1]
    left = np.zeros(len(rows))
    occurring = {code for codes in rows.values() for code, number in codes.items() if number} - {"ok"}
    known = [code for code in FAIL_COLOURS if code in occurring]
    for code in [*known, *sorted(occurring - set(known))]:
        colour, hatch = FAIL_COLOURS.get(code, (style.PREVIOUS, ""))
        shares = np.array(
            [100 * codes.get(code, 0) / totals[name] if totals[name] else 0.0 for name, codes in rows.items()]
        )
        axis.barh(
            places, shares, left=left, height=0.66, color=colour, hatch=hatch, edgecolor=style.CARD, lw=0, label=code
        )
        left += shares
    reach = max(float(left.max()), 0.1)
    for place, end, (name, codes) in zip(places, left, rows.items(), strict=True):
        failed = totals[name] - codes.get("ok", 0)
        text = f"{style.share(failed, totals[name])} of {style.counted(totals[name], 'row')}"
        axis.text(end + reach * 0.015, place, text if totals[name] else "no rows", va="center", fontsize=8.5)
    axis.set_xlim(0, reach * 1.42)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_yticks(places, list(rows))
    axis.set_xlabel("failed rows (%)")
    axis.grid(axis="x")
    style.legend_above(axis)
    return figure


def channel_histograms(baseline: str, channels: Mapping[str, ChannelHistogram]) -> Figure:
    """One small histogram per channel over valid rows, the result before in grey behind it; 64 channels fit."""
    columns = 4 if len(channels) <= 24 else 6
    lines = max(1, -(-len(channels) // columns))
    rows = max((int(one.counts.sum()) for one in channels.values()), default=0)
    height = 0.95 + (1.35 if columns == 4 else 1.05) * lines
    subtitle = f"{style.counted(len(channels), 'channel')}, {style.counted(rows, 'valid row')}"
    figure = style.new_figure(f"Channels of {baseline}", subtitle, height_in=max(height, 2.2))
    if not channels:
        style.no_data(figure.subplots(), "no channel is known yet")
        return figure
    grid = figure.subplots(lines, columns, squeeze=False)
    labelled: Axes | None = None
    for axis, (name, one) in zip(grid.ravel(), channels.items(), strict=False):
        axis.set_title(name, fontsize=8 if columns == 4 else 7)
        if not one.counts.sum():
            style.no_data(axis, "no valid row")
            continue
        style.binned(axis, one.counts, one.edges, one.previous)
        axis.set_yticks([])
        axis.xaxis.set_major_locator(MaxNLocator(nbins=3 if columns == 4 else 2))
        axis.tick_params(labelsize=7)
        labelled = labelled or axis
    for axis in grid.ravel()[len(channels) :]:
        axis.set_axis_off()
    if labelled is not None:
        style.legend_in_head(figure, labelled)
    return figure


def coverage_matrix(states: Mapping[str, Mapping[str, str]], covered: Mapping[str, Mapping[str, float]]) -> Figure:
    """Baselines x routes. `states`: baseline -> uid -> state of the plan; `covered`: likewise, share of wanted seconds.

    Few routes are rows with their share in each cell. Many are put side by side in buckets of neighbours: a column
    shows what share of its routes is in which state.
    """
    uids = sorted({uid for routes in states.values() for uid in routes})
    whole = sum(state == "covered" for routes in states.values() for state in routes.values())
    cells = sum(len(routes) for routes in states.values())
    subtitle = f"{style.counted(len(states), 'baseline')}, {style.counted(len(uids), 'route')}; " + (
        f"{style.count(whole)} of {style.count(cells)} caches cover what is wanted ({style.share(whole, cells)})"
    )
    if not cells:
        figure = style.new_figure("Coverage", subtitle, height_in=2.0)
        style.no_data(figure.subplots(), "no route is known yet")
    elif len(uids) <= _MANY_ROUTES:
        figure = _cells(subtitle, uids, states, covered)
    else:
        figure = _buckets(subtitle, uids, states)
    return figure


def _cells(
    subtitle: str,
    uids: Sequence[str],
    states: Mapping[str, Mapping[str, str]],
    covered: Mapping[str, Mapping[str, float]],
) -> Figure:
    figure = style.new_figure("Coverage", subtitle, height_in=1.75 + 0.24 * max(len(uids), 3))
    axis = figure.subplots()
    used: dict[str, None] = {}
    for column, (baseline, routes) in enumerate(states.items()):
        for row, uid in enumerate(uids):
            if (state := routes.get(uid)) is None:
                continue
            used[state] = None
            colour, hatch = STATE_COLOURS[state]
            axis.barh(row, 0.94, left=column + 0.03, height=0.88, color=colour, hatch=hatch, edgecolor=style.CARD, lw=0)
            axis.text(
                column + 0.5,
                row,
                f"{100 * covered.get(baseline, {}).get(uid, 0.0):.0f} %",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if state in ("covered", "unreadable", "invalid") else style.INK,
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 1.0} if hatch else None,
            )
    axis.set_xlim(0, len(states))
    axis.set_ylim(len(uids) - 0.5, -0.5)
    axis.set_yticks(range(len(uids)), [style.shortened(uid) for uid in uids], fontsize=7.5)
    axis.set_xticks(np.arange(len(states)) + 0.5, list(states))
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("share of the wanted seconds that is stored")
    _state_legend(axis, [state for state in STATE_COLOURS if state in used], hatched=True)
    return figure


def _buckets(subtitle: str, uids: Sequence[str], states: Mapping[str, Mapping[str, str]]) -> Figure:
    figure = style.new_figure("Coverage", subtitle, height_in=1.95 + 0.62 * len(states))
    axis = figure.subplots()
    columns = min(_MAX_COLUMNS, len(uids))
    used = [state for state in STATE_COLOURS if any(state in routes.values() for routes in states.values())]
    for place, routes in enumerate(reversed(list(states.values()))):
        # A picture of a few kilobytes, where thousands of bars would be half a megabyte.
        image = _columns([routes.get(uid) for uid in uids], columns)
        axis.imshow(image, extent=(0, len(uids), place - 0.4, place + 0.4), aspect="auto")
        whole = sum(state == "covered" for state in routes.values())
        text = f"{style.share(whole, len(routes))}\n{style.count(len(routes) - whole)} not covered"
        axis.text(1.01, place, text, transform=axis.get_yaxis_transform(), va="center", fontsize=8, color=style.MUTED)
    axis.set_yticks(range(len(states)), list(reversed(list(states))))
    axis.tick_params(axis="y", length=0)
    axis.set_xlim(0, len(uids))
    axis.set_ylim(-0.5, len(states) - 0.5)
    axis.set_xlabel(f"routes by name; a column holds about {style.count(max(1, len(uids) / columns))} of them")
    style.whole_numbers(axis.xaxis)
    _state_legend(axis, used, hatched=False)
    return figure


def _columns(states: Sequence[str | None], columns: int) -> NDArray[np.uint8]:
    """RGBA (levels, columns, 4): each column's routes stacked by state, best below, the worst always to be seen."""
    names = list(STATE_COLOURS)
    numbers = np.array([names.index(state) if state else -1 for state in states])
    colours = np.array([to_rgba(colour) for colour, _ in STATE_COLOURS.values()])
    image = np.zeros((_LEVELS, columns, 4), np.uint8)
    for column, part in enumerate(np.array_split(numbers, columns)):
        top = 0
        for state in range(len(names) - 1, -1, -1):
            if here := int((part == state).sum()):
                # What is left goes to the best state, so that one broken route among many still has a level.
                levels = _LEVELS - top if not (part < state).any() else max(1, here * _LEVELS // len(part))
                image[top : top + levels, column] = (255 * colours[state]).round()
                top += levels
    return image


def _state_legend(axis: Axes, states: Sequence[str], *, hatched: bool) -> None:
    handles = [
        Patch(
            facecolor=STATE_COLOURS[state][0],
            hatch=STATE_COLOURS[state][1] if hatched else "",
            edgecolor=style.CARD,
            linewidth=0,
            label=state,
        )
        for state in states
    ]
    axis.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=min(len(states), 5),
        borderaxespad=0.2,
        handlelength=1.4,
        columnspacing=1.2,
    )
