"""The one style of all figures, and how a figure becomes bytes and a picture inside Dagster's pages.

Belongs here: sizes, fonts, colours, the pieces that several figures share (histograms with the previous result behind
them, a note where there is no data), rendering. Does not belong here: what a figure shows; that is `figures.py` of each
code location. No Dagster, no pyplot: figures are objects of their own, so threads may draw at the same time.

Figures are SVG on a light card of their own, because a page can't tell an image which theme it uses: dark ink on a
light card reads the same on a light and on a dark page. They are 720 CSS pixels wide, since Dagster shows an image in
its natural size and cuts what does not fit its dialog.

Colours are those of Okabe and Ito (Color Universal Design, 2008), told apart with every common colour blindness.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILION, PURPLE, BLACK = "#E69F00", "#D55E00", "#CC79A7", "#000000"
INK, MUTED, GRID, CARD, EDGE = "#1F2328", "#57606A", "#D8DCE1", "#FBFBFA", "#C9CED4"
PREVIOUS = "#8C959F"
DENSITY = LinearSegmentedColormap.from_list("density", ["#E3EEF6", SKY, BLUE, "#00344F"])

WIDTH_IN = 7.5  # 720 CSS pixels
MAX_BARS = 360  # bars that can be told apart on the width of a figure
_PATH_DATA = re.compile(rb'\bd="[^"]*"')
_DECIMALS = re.compile(rb"(\.\d\d)\d+")  # a hundredth of a point is enough for a path

# Set once and never changed: `rc_context` would change the settings of every thread.
mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans",  # comes with Matplotlib; `svg` names stand-ins of the same width
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.labelsize": 9.0,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.facecolor": "none",
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "text.color": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "hatch.linewidth": 0.7,
        "svg.fonttype": "none",
        "svg.hashsalt": "figures",
        "image.interpolation": "none",
        "image.composite_image": False,  # an image is embedded with its own few pixels
    }
)


def new_figure(title: str, subtitle: str = "", *, height_in: float = 3.2) -> Figure:
    """An empty figure with its card, a title and a line below it that says what was counted."""
    figure = Figure(figsize=(WIDTH_IN, height_in), facecolor="none")
    inset = 0.04
    figure.add_artist(
        FancyBboxPatch(
            (inset, inset),
            WIDTH_IN - 2 * inset,
            height_in - 2 * inset,
            boxstyle="round,pad=0,rounding_size=0.08",
            transform=figure.dpi_scale_trans,
            facecolor=CARD,
            edgecolor=EDGE,
            linewidth=0.8,
            zorder=-10,
            gid="card",
        )
    )
    figure.suptitle(title, x=0.02, ha="left", y=1 - 0.14 / height_in, va="top", fontsize=11.5, fontweight="bold")
    head_in = 0.38
    if subtitle:
        figure.text(
            0.02, 1 - 0.39 / height_in, subtitle, ha="left", va="top", fontsize=8.5, color=MUTED, gid="subtitle"
        )
        head_in = 0.58
    rect = (0.015, 0.10 / height_in, 0.97, 1 - (head_in + 0.14) / height_in)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=rect, w_pad=0.05, h_pad=0.05))
    return figure


def svg(figure: Figure) -> bytes:
    """The figure as SVG; the same figure gives the same bytes in every process and thread."""
    out = io.BytesIO()
    title = title_of(figure)
    metadata = {"Title": title, "Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(out, format="svg", metadata=metadata)
    text = out.getvalue().replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif")
    return _PATH_DATA.sub(lambda path: _DECIMALS.sub(rb"\1", path[0]), text)


def title_of(figure: Figure) -> str:
    """The figure's title, which is its alternative text as well."""
    return figure.get_suptitle()


def data_uri(image: bytes) -> str:
    """SVG bytes as a `data:` address."""
    return "data:image/svg+xml;base64," + base64.b64encode(image).decode("ascii")


def markdown(figures: Sequence[Figure]) -> str:
    """Markdown that shows the figures below each other, without any file."""
    return "\n\n".join(picture(title_of(figure), svg(figure)) for figure in figures)


def picture(title: str, image: bytes) -> str:
    """Markdown that shows SVG bytes, without any file."""
    return f"![{title}]({data_uri(image)})"


def save(figure: Figure, path: Path) -> Path:
    """Write the figure as `path` (inside a folder that its owner publishes as a whole)."""
    path.write_bytes(svg(figure))
    return path


def finite(values: ArrayLike) -> NDArray[np.float64]:
    """The finite entries, as float64, in order."""
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def count(number: float) -> str:
    """A whole number with thin separators a reader of any language understands: 12 345 678."""
    return f"{round(number):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 row, 2 rows."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def shortened(name: str, length: int = 44) -> str:
    """A name that is too long for its place, its middle left out."""
    return name if len(name) <= length else f"{name[: length // 2 - 1]}…{name[-(length // 2) :]}"


def share(part: float, whole: float) -> str:
    """`part` of `whole` in per cent; never "100 %" or "0 %" for what is not all or nothing."""
    if not whole:
        return "none"
    per_cent = 100 * part / whole
    if 0 < per_cent < 0.1:
        return "<0.1 %"
    if 99.9 < per_cent < 100:
        return ">99.9 %"
    return f"{per_cent:.1f} %" if 0 < per_cent < 100 else f"{per_cent:.0f} %"


def whole_numbers(axis: Axis, most: int | None = None) -> None:
    """Ticks at whole numbers only, written with separators; about `most` of them."""
    axis.set_major_locator(MaxNLocator(nbins=most or "auto", integer=True, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def count_axis(axis: Axes, label: str, which: str = "y", *, most: int = 5) -> None:
    """Label an axis that counts things, with whole numbers and a light grid."""
    target = axis.yaxis if which == "y" else axis.xaxis
    target.set_label_text(label)
    whole_numbers(target, most=most)
    axis.grid(axis="y" if which == "y" else "x")


def no_data(axis: Axes, text: str) -> None:
    """Say why there is nothing to draw, in the place where it would be."""
    axis.set_axis_off()
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=MUTED, wrap=True)


def edges_of(values: Sequence[NDArray[np.float64]], bins: int) -> NDArray[np.float64]:
    """Common histogram edges over all series, round numbers excepted: exactly `bins` bins, or one around a constant."""
    joined = np.concatenate([np.asarray(one, dtype=np.float64) for one in values])
    low, high = float(joined.min()), float(joined.max())
    if low == high:
        pad = max(abs(low) * 0.05, 0.5)
        return np.array([low - pad, low + pad])
    return np.linspace(low, high, bins + 1)


def histogram(
    axis: Axes,
    values: ArrayLike,
    previous: ArrayLike | None,
    *,
    bins: int = 40,
    colour: str = BLUE,
    span: tuple[float, float] | None = None,
) -> None:
    """Draw the finite values as a filled histogram, the previous ones behind it as a grey outline with a light fill.

    At most `bins` bins, fewer for few values. Counts of the previous result are scaled to the present total where the
    totals differ, so that shapes compare, which the legend then says. `span` fixes the range (degrees of a full turn).
    """
    now = finite(values)
    before = finite(previous) if previous is not None else np.empty(0)
    if now.size == 0:
        no_data(axis, "no finite values")
        return
    bins = min(bins, max(8, int(np.sqrt(now.size))))
    edges = np.linspace(*span, bins + 1) if span else edges_of([now, before], bins)
    behind = np.histogram(before, edges)[0] if before.size else None
    binned(axis, np.histogram(now, edges)[0], edges, behind, colour=colour)


def binned(
    axis: Axes,
    counts: NDArray[np.int64],
    edges: NDArray[np.float64],
    previous: NDArray[np.int64] | None = None,
    *,
    colour: str = BLUE,
) -> None:
    """`histogram` for values counted already: `counts` and `previous` (B,) between the same `edges` (B + 1,)."""
    now, before = int(counts.sum()), 0 if previous is None else int(previous.sum())
    if previous is not None and before:
        behind = previous * (now / before)
        axis.stairs(behind, edges, fill=True, color=PREVIOUS, alpha=0.35, zorder=1)
        axis.stairs(behind, edges, color=MUTED, linewidth=1.2, zorder=3, label=previous_label(now, before))
    axis.stairs(counts, edges, fill=True, color=colour, alpha=0.75, zorder=2, label="now")
    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(bottom=0)


def previous_label(now: int, before: int) -> str:
    """The legend of the previous result, saying whether it was scaled."""
    return "previous" if now == before else f"previous ({count(before)}, scaled)"


def mark(axis: Axes, value: float, label: str, *, colour: str = INK) -> None:
    """A vertical line at `value`, named in the legend, where its name covers no data."""
    axis.axvline(value, color=colour, linewidth=1.1, linestyle=(0, (4, 2)), zorder=4, label=label)


def legend_in_head(figure: Figure, axis: Axes) -> None:
    """The legend of one axes for all of them, on the right of the title."""
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        place = (0.985, 1 - 0.10 / figure.get_figheight())
        figure.legend(handles, labels, loc="upper right", bbox_to_anchor=place, ncols=len(handles), handlelength=1.4)


def legend_above(axis: Axes, columns: int = 4) -> None:
    """A legend above the axes, where it covers no data."""
    handles, labels = axis.get_legend_handles_labels()
    if handles:
        axis.legend(
            handles,
            labels,
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=columns,
            borderaxespad=0.2,
            handlelength=1.4,
            columnspacing=1.4,
        )
