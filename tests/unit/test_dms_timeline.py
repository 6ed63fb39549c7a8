"""What a route's timeline draws: lanes, bars, labels and units, read off the SVG."""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

import numpy as np
import pytest

from dms_assets import timeline
from dms_assets.cache_schema import RouteCache, WindowCache, synthetic_route_cache
from dms_assets.contract import FRAMES, WINDOWS
from dms_assets.plan import RoutePlan, State, Work
from dms_assets.timeline import RouteTimeline
from resources import figures as style

NONE = np.zeros((0, 2), np.int64)
_SVG = "{http://www.w3.org/2000/svg}"


def _runs(*runs: tuple[int, int]) -> np.ndarray:
    return np.array(runs, np.int64).reshape(-1, 2)


def _timeline(**changes: object) -> RouteTimeline:
    values: dict[str, object] = {
        "uid": "dongle_1",
        "baseline": "facemesh",
        "wanted": _runs((0, 199), (300, 599)),
        "covered": _runs((0, 150), (300, 480)),
        "missing": _runs((151, 199)),
        "unmeetable": _runs((481, 599)),
        "failed": {"no_face": _runs((20, 33), (90, 120)), "no_box": NONE},
    }
    return RouteTimeline(**(values | changes))  # type: ignore[arg-type]


@dataclass
class Drawn:
    """A picture as read back: every text; by lane, the total and the bars (left and width in pixels)."""

    texts: list[str]
    totals: dict[str, str]
    bars: dict[str, list[tuple[float, float]]]


def drawn(route: RouteTimeline) -> Drawn:
    root = ET.fromstring(timeline.svg(route))
    totals, bars = {}, {}
    for lane in root.iter(f"{_SVG}g"):
        name, total = (str(text.text) for text in lane.iter(f"{_SVG}text"))
        totals[name] = total
        data = "".join(path.get("d") or "" for path in lane.iter(f"{_SVG}path"))
        bars[name] = [(float(x), float(w)) for x, w in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", data)]
    return Drawn([str(text.text) for text in root.iter(f"{_SVG}text")], totals, bars)


def test_a_timeline_has_a_lane_for_each_kind_and_for_each_failure_code_that_occurs() -> None:
    found = drawn(_timeline())
    assert found.totals == {
        "wanted": "50.0 s",
        "covered": "33.2 s",
        "missing": "4.9 s",
        "beyond the video": "11.9 s",
        "failed: no_face": "4.5 s",
    }
    assert [len(bars) for bars in found.bars.values()] == [2, 2, 1, 1, 2]
    assert found.texts[:2] == ["Timeline, facemesh", "dongle_1: 33.2 s of 50.0 s wanted are stored"]
    assert "seconds from the start of the video" in found.texts
    assert [text for text in found.texts if text.isdigit()] == ["0", "10", "20", "30", "40", "50", "60"]


def test_bars_lie_where_their_seconds_are() -> None:
    (first, second), (missing,) = (drawn(_timeline()).bars[name] for name in ("wanted", "missing"))
    assert second[1] == pytest.approx(first[1] * 300 / 200, abs=0.02)
    assert second[0] == pytest.approx(first[0] + first[1] * 300 / 200, abs=0.02)
    assert missing[0] + missing[1] == pytest.approx(first[0] + first[1], abs=0.02)


def test_one_missing_tick_of_two_hours_is_still_wide_enough_to_be_seen() -> None:
    route = _timeline(wanted=_runs((0, 72_000)), missing=_runs((36_000, 36_000)), covered=_runs((0, 35_999)))
    found = drawn(route)
    ((_, width),) = found.bars["missing"]
    assert width >= 1.2
    assert "time from the start of the video (min:s)" in found.texts
    assert "120:00" in found.texts


def test_a_lane_never_has_more_bars_than_the_width_can_show() -> None:
    every_other = np.repeat(np.arange(0, 100_000, 2), 2).reshape(-1, 2)
    bars = drawn(_timeline(failed={"no_face": every_other})).bars["failed: no_face"]
    assert 1 <= len(bars) <= style.MAX_BARS


def test_a_route_of_which_nothing_is_wanted_says_so() -> None:
    found = drawn(_timeline(wanted=NONE, covered=NONE, missing=NONE, unmeetable=NONE, failed={}))
    assert found.texts[1:] == ["dongle_1: nothing is wanted", "nothing is wanted of this route and nothing is stored"]
    assert found.bars == {}


def test_names_are_text_and_never_markup() -> None:
    found = drawn(_timeline(uid='<script>"&', baseline="a<b>"))
    assert found.texts[:2] == ["Timeline, a<b>", '<script>"&: 33.2 s of 50.0 s wanted are stored']


def test_a_timeline_is_small_and_the_same_bytes_every_time() -> None:
    image = timeline.svg(_timeline())
    assert image == timeline.svg(_timeline())
    assert len(image) < 4000
    assert ET.fromstring(image).get("width") == "720"


@pytest.mark.parametrize("kind", [FRAMES, WINDOWS])
def test_a_timeline_of_a_plan_and_its_cache_splits_what_is_wanted_and_shows_failed_rows(kind: str) -> None:
    frames = synthetic_route_cache(t1=10.0, invalid_frac=0.0)
    frames.fail[3:6], frames.valid[3:6] = 3, False
    cache: RouteCache | WindowCache = frames
    if kind == WINDOWS:
        times = np.arange(15, 101, dtype=np.int64) / 10
        valid = ~((times >= 2.0) & (times < 2.5))
        cache = WindowCache("r", times.astype(np.float32), np.zeros((86, 2), np.float16), valid, 16, frames.spans)
    plan = RoutePlan(
        "facemesh", "r", State.PARTIAL, False, Work.EXTRACT, False, _runs((101, 110)), _runs((150, 159)), 130, ""
    )
    route = RouteTimeline.of(plan, _runs((0, 110), (150, 159)), cache)
    assert route.covered.tolist() == [[0, 100]]
    assert {name: runs.tolist() for name, runs in route.failed.items() if len(runs)} == (
        {"no_face": [[3, 5]]} if kind == FRAMES else {"invalid_windows": [[20, 24]]}
    )
    assert drawn(route).bars["covered"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.1, "0.1 s"), (59.94, "59.9 s"), (125, "2 min 05 s"), (4800, "1 h 20 min")]
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert timeline.duration(seconds) == text
