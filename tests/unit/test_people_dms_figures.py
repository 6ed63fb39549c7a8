"""What the DMS figures draw: lanes, bars, cells, labels and units."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from dms_assets import figures
from dms_assets.cache_schema import RouteCache, WindowCache, synthetic_route_cache
from dms_assets.contract import FRAMES, WINDOWS
from dms_assets.figures import ChannelHistogram, RouteTimeline
from dms_assets.plan import RoutePlan, State, Work
from resources import figures as style

NONE = np.zeros((0, 2), np.int64)


def _runs(*runs: tuple[int, int]) -> np.ndarray:
    return np.array(runs, np.int64).reshape(-1, 2)


def _subtitle(figure: Figure) -> str:
    return next(text.get_text() for text in figure.texts if text.get_gid() == "subtitle")


def _lanes(axis: Axes) -> list[str]:
    return [label.get_text() for label in axis.get_yticklabels()][::-1]


def _bars(axis: Axes) -> list[int]:
    """Bars per lane, in the order drawn: from the lowest lane up."""
    return [len(one.get_paths()) for one in axis.collections if isinstance(one, PolyCollection)]


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


def test_a_timeline_has_a_lane_for_each_kind_and_for_each_failure_code_that_occurs() -> None:
    figure = figures.route_timeline(_timeline())
    axis = figure.axes[0]
    assert _lanes(axis) == ["wanted", "covered", "missing", "beyond the video", "failed: no_face"]
    assert _bars(axis) == [2, 1, 1, 2, 2]
    assert [text.get_text() for text in axis.texts] == ["4.5 s", "11.9 s", "4.9 s", "33.2 s", "50.0 s"]
    assert axis.get_xlabel() == "seconds from the start of the video"
    assert _subtitle(figure) == "dongle_1: 33.2 s of 50.0 s wanted are stored"


def test_one_missing_tick_of_two_hours_is_still_wide_enough_to_be_seen() -> None:
    route = _timeline(wanted=_runs((0, 72_000)), missing=_runs((36_000, 36_000)), covered=_runs((0, 35_999)))
    axis = figures.route_timeline(route).axes[0]
    missing = next(
        one
        for one in axis.collections
        if np.allclose(np.atleast_2d(np.asarray(one.get_facecolor()))[0, :3], _rgb(style.VERMILION))
    )
    box = missing.get_paths()[0].get_extents()
    assert box.width >= 7200 / style.MAX_BARS
    assert axis.get_xlabel() == "time from the start of the video (min:s)"


def test_a_lane_never_has_more_bars_than_the_width_can_show() -> None:
    every_other = np.repeat(np.arange(0, 100_000, 2), 2).reshape(-1, 2)
    axis = figures.route_timeline(_timeline(failed={"no_face": every_other})).axes[0]
    assert max(_bars(axis)) <= style.MAX_BARS


def test_a_route_of_which_nothing_is_wanted_says_so() -> None:
    figure = figures.route_timeline(_timeline(wanted=NONE, covered=NONE, missing=NONE, unmeetable=NONE, failed={}))
    assert _subtitle(figure) == "dongle_1: nothing is wanted"
    assert not figure.axes[0].collections


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
    timeline = RouteTimeline.of(plan, _runs((0, 110), (150, 159)), cache)
    assert timeline.covered.tolist() == [[0, 100]]
    assert {name: runs.tolist() for name, runs in timeline.failed.items() if len(runs)} == (
        {"no_face": [[3, 5]]} if kind == FRAMES else {"invalid_windows": [[20, 24]]}
    )
    assert figures.route_timeline(timeline).axes[0].collections


def test_failure_shares_are_of_the_stored_rows_and_add_up() -> None:
    axis = figures.failure_codes({"facemesh": {"ok": 90, "no_face": 8, "no_box": 2}, "flow": {}}).axes[0]
    widths = [[bar.get_width() for bar in container] for container in axis.containers]
    assert np.sum(widths, axis=0).tolist() == [10.0, 0.0]
    assert [text.get_text() for text in axis.texts] == ["10.0 % of 100 rows", "no rows"]
    assert [container.get_label() for container in axis.containers] == ["no_box", "no_face"]
    assert axis.get_xlabel() == "failed rows (%)"


def test_a_baseline_without_rows_anywhere_says_so() -> None:
    axis = figures.failure_codes({"facemesh": {}}).axes[0]
    assert [text.get_text() for text in axis.texts] == ["no row is stored yet"]


@pytest.mark.parametrize("number", [1, 12, 64])
def test_every_channel_gets_its_own_titled_panel(number: int) -> None:
    one = ChannelHistogram(np.array([1, 2, 3]), np.array([0.0, 1.0, 2.0, 3.0]), np.array([3, 2, 1]))
    channels = {f"channel_{i}": one for i in range(number)}
    figure = figures.channel_histograms("facemesh", channels)
    panels = [axis for axis in figure.axes if axis.patches]
    assert [axis.get_title("left") for axis in panels] == list(channels)
    assert [text.get_text() for text in figure.legends[0].texts] == ["previous", "now"]


def test_a_channel_without_a_valid_row_says_so_and_costs_only_itself() -> None:
    edges = np.array([0.0, 1.0, 2.0])
    channels = {
        "dead": ChannelHistogram(np.zeros(2, np.int64), edges),
        "live": ChannelHistogram(np.ones(2, int), edges),
    }
    dead, live, *_ = figures.channel_histograms("facemesh", channels).axes
    assert [text.get_text() for text in dead.texts] == ["no valid row"]
    assert live.patches


def test_few_routes_are_cells_with_their_share() -> None:
    states = {"facemesh": {"a": "covered", "b": "partial"}, "flow": {"a": "absent"}}
    figure = figures.coverage_matrix(states, {"facemesh": {"a": 1.0, "b": 0.25}})
    axis = figure.axes[0]
    assert sorted(text.get_text() for text in axis.texts) == ["0 %", "100 %", "25 %"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["facemesh", "flow"]
    legend = axis.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.texts] == ["covered", "partial", "absent"]
    assert _subtitle(figure) == "2 baselines, 2 routes; 1 of 3 caches cover what is wanted (33.3 %)"


def test_ten_thousand_routes_stay_small_and_one_broken_route_stays_visible() -> None:
    routes = {f"route_{i:05d}": "covered" for i in range(10_000)} | {"route_05000": "unreadable"}
    figure = figures.coverage_matrix({"facemesh": routes}, {})
    (image,) = figure.axes[0].images
    pixels = np.asarray(image.get_array())
    black = (pixels == [0, 0, 0, 255]).all(axis=2)
    assert pixels.shape == (50, 100, 4)
    assert black.sum() == 1
    assert black.argmax() == 50  # the column of the 5,000th route
    assert (pixels[..., 3] == 255).all()
    assert len(style.svg(figure)) < 40_000


def test_a_route_that_a_baseline_does_not_know_stays_empty() -> None:
    states = {"one": {f"r{i:03d}": "covered" for i in range(50)}, "two": {"r000": "absent"}}
    lower, upper = figures.coverage_matrix(states, {}).axes[0].images
    assert (np.asarray(upper.get_array())[..., 3] == 255).all()
    assert (np.asarray(lower.get_array())[:, 0, 3] == 255).all()
    assert (np.asarray(lower.get_array())[:, 1:, 3] == 0).all()


def test_no_route_at_all_says_so() -> None:
    axis = figures.coverage_matrix({}, {}).axes[0]
    assert [text.get_text() for text in axis.texts] == ["no route is known yet"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.1, "0.1 s"), (59.94, "59.9 s"), (125, "2 min 05 s"), (4800, "1 h 20 min")]
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def test_a_code_that_the_table_does_not_know_is_drawn_and_named_all_the_same() -> None:
    axis = figures.failure_codes({"clips": {"ok": 9, "of another program": 1}}).axes[0]
    ((bar,),) = axis.containers
    assert bar.get_width() == 10.0
    legend = axis.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.texts] == ["of another program"]
