"""The timeline of one route: what is wanted of it and what became of it, as SVG.

Belongs here: the plain input of the picture and its drawing. Does not belong here: deciding what is covered (`plan`),
colours and how a picture gets onto a page (`resources.figures`), the figures of many routes (`figures`). No Dagster.

Every route that is judged gets one, thousands at once when files are adopted, so it is written as SVG directly: that
takes about a hundredth of the time of a Matplotlib figure and a fifth of its bytes, for bars on a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.contract import FAIL_CODES, HZ
from dms_assets.figures import FAIL_COLOURS
from dms_assets.plan import RoutePlan
from dms_assets.spans import Ticks, count_ticks, minus, runs_of_ticks
from resources import figures as style

# CSS pixels.
_WIDTH = 720
_LEFT, _RIGHT = 168, 628
_HEAD, _LANE, _BAR, _FOOT = 60, 29, 21, 56
_TO_THE_LEFT, _CENTRED = 'text-anchor="end"', 'text-anchor="middle"'


@dataclass(frozen=True, slots=True)
class RouteTimeline:
    """One route and baseline: runs of ticks (first and last, int64 (R, 2)) of each kind.

    `wanted` is what anchors ask for; `covered`, `missing` and `unmeetable` (beyond the video) are its parts; `failed`
    holds stored rows that failed, by the name of their code.
    """

    uid: str
    baseline: str
    wanted: Ticks
    covered: Ticks
    missing: Ticks
    unmeetable: Ticks
    failed: Mapping[str, Ticks] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: RoutePlan, wanted: Ticks, cache: RouteCache | WindowCache | None) -> RouteTimeline:
        """The timeline of a plan, the `wanted` runs it was made for, and the stored cache (None: nothing usable)."""
        covered = minus(minus(wanted, plan.missing), plan.beyond)
        return cls(plan.uid, plan.baseline, wanted, covered, plan.missing, plan.beyond, _failed(cache))

    @property
    def title(self) -> str:
        """The title, which is the picture's alternative text as well."""
        return f"Timeline, {self.baseline}"


def _failed(cache: RouteCache | WindowCache | None) -> dict[str, Ticks]:
    """Runs of failed rows by the name of their code; windows have no codes."""
    if cache is None:
        return {}
    if isinstance(cache, WindowCache):
        return {"invalid_windows": _runs(cache.win_t_end[~cache.win_valid])}
    return {name: _runs(cache.t[cache.fail == code]) for code, name in FAIL_CODES.items() if code}


def _runs(seconds: NDArray[np.float32]) -> Ticks:
    return runs_of_ticks(np.rint(seconds.astype(np.float64) * HZ))


def duration(seconds: float) -> str:
    """Seconds as people say them: 4.3 s, 2 min 05 s, 1 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def svg(route: RouteTimeline) -> bytes:
    """The picture: one lane per kind, a bar per run, the seconds of each lane at its right end.

    A run is at least as wide as can be seen, and there are never more bars than the width can show.
    """
    lanes: list[tuple[str, Ticks, str, str]] = [
        ("wanted", route.wanted, style.MUTED, ""),
        ("covered", route.covered, style.BLUE, ""),
        ("missing", route.missing, style.VERMILION, ""),
        ("beyond the video", route.unmeetable, style.SKY, "////"),
    ]
    for code, (colour, hatch) in FAIL_COLOURS.items():
        if len(runs := route.failed.get(code, np.zeros((0, 2), np.int64))):
            lanes.append((f"failed: {code}", runs, colour, hatch))
    wanted = count_ticks(route.wanted) / HZ
    stored = f"{duration(count_ticks(route.covered) / HZ)} of {duration(wanted)} wanted are stored"
    height = _HEAD + _LANE * len(lanes) + _FOOT
    font = "font-family=\"'DejaVu Sans', Verdana, sans-serif\""
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" {font} font-size="11.3">',
        f"<title>{escape(route.title)}</title>",
        f'<rect x="4" y="4" width="{_WIDTH - 8}" height="{height - 8}" rx="8" fill="{style.CARD}" '
        f'stroke="{style.EDGE}"/>',
        _text(14, 27, route.title, style.INK, 'font-size="15.3" font-weight="bold"'),
        _text(14, 47, f"{style.shortened(route.uid)}: {stored if wanted else 'nothing is wanted'}", style.MUTED),
    ]
    drawn = [runs for _, runs, _, _ in lanes if len(runs)]
    if drawn:
        start = min(int(runs[:, 0].min()) for runs in drawn) / HZ
        end = (max(int(runs[:, 1].max()) for runs in drawn) + 1) / HZ
        parts += _axis(start, end, len(lanes))
        for place, lane in enumerate(lanes):
            parts += _lane(place, *lane, start, end)
    else:
        note = "nothing is wanted of this route and nothing is stored"
        parts.append(_text(_WIDTH / 2, height / 2 + 15, note, style.MUTED, _CENTRED))
    return "".join([*parts, "</svg>"]).encode()


def _text(x: float, y: float, text: str, colour: str, more: str = "") -> str:
    return f'<text x="{x:.6g}" y="{y:.6g}" fill="{colour}" {more}>{escape(text)}</text>'


def _lane(place: int, name: str, runs: Ticks, colour: str, hatch: str, start: float, end: float) -> list[str]:
    scale = (_RIGHT - _LEFT) / (end - start)
    top, baseline = _HEAD + place * _LANE + (_LANE - _BAR) / 2, _HEAD + place * _LANE + _LANE / 2 + 4
    bars = "".join(
        f"M{_LEFT + (first - start) * scale:.2f} {top:g}h{length * scale:.2f}v{_BAR}h{-length * scale:.2f}z"
        for first, length in _bars(runs, (end - start) / style.MAX_BARS)
    )
    fill, pattern = colour, ""
    if hatch:
        fill = f"url(#lane{place})"
        mark = (
            f'<path d="M-1 1l2-2M0 6l6-6M5 7l2-2" stroke="{style.CARD}"/>'
            if hatch.startswith("/")
            else f'<circle cx="3" cy="3" r="1" fill="{style.CARD}"/>'
        )
        pattern = (
            f'<pattern id="lane{place}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6" fill="{colour}"/>{mark}</pattern>'
        )
    total = duration(count_ticks(runs) / HZ) if len(runs) else "none"
    return [
        pattern,
        f'<g class="lane">{_text(_LEFT - 10, baseline, name, style.INK, _TO_THE_LEFT)}',
        f'<path fill="{fill}" d="{bars}"/>' if bars else "",
        f"{_text(_RIGHT + 8, baseline, total, style.MUTED)}</g>",
    ]


def _bars(runs: Ticks, width: float) -> list[tuple[float, float]]:
    """Bars (start, length) in seconds, none narrower than `width`; those less than `width` apart drawn as one."""
    bars: list[tuple[float, float]] = []
    for first, last in runs.tolist():
        start, end = first / HZ, max((last + 1) / HZ, first / HZ + width)
        if bars and start < bars[-1][0] + bars[-1][1] + width / 2:
            bars[-1] = (bars[-1][0], max(end, sum(bars[-1])) - bars[-1][0])
        else:
            bars.append((start, end - start))
    return bars


def _axis(start: float, end: float, lanes: int) -> list[str]:
    """The time axis below the lanes, with a light line up at each of its marks."""
    bottom = _HEAD + lanes * _LANE + 4
    if end < 600:
        locator, label = MaxNLocator(nbins=8, steps=[1, 2, 5, 10]), "seconds from the start of the video"
    else:
        locator = MaxNLocator(nbins=7, steps=[1, 1.2, 1.8, 2.4, 3, 6, 10])
        label = "time from the start of the video (min:s)"
    marks = [float(mark) for mark in locator.tick_values(start, end) if start <= mark <= end]
    places = [_LEFT + (mark - start) * (_RIGHT - _LEFT) / (end - start) for mark in marks]
    grid = "".join(f"M{x:.2f} {_HEAD - 4}V{bottom}" for x in places)
    below = "".join(f"M{x:.2f} {bottom}v4" for x in places)
    axes = f"M{_LEFT - 2} {_HEAD - 4}V{bottom}H{_RIGHT + 4}{below}"
    found = [
        f'<path d="{grid}" stroke="{style.GRID}" fill="none"/>',
        f'<path d="{axes}" stroke="{style.MUTED}" fill="none"/>',
    ]
    for x, mark in zip(places, marks, strict=True):
        text = f"{mark:g}" if end < 600 else f"{int(mark) // 60}:{int(mark) % 60:02d}"
        found.append(_text(x, bottom + 18, text, style.INK, _CENTRED))
    found.append(_text((_LEFT + _RIGHT) / 2, bottom + 37, label, style.INK, f'{_CENTRED} font-size="12"'))
    return found
