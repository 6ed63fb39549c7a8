"""What the DMS figures draw: bars, cells, labels and units."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from dms_assets import figures
from dms_assets.figures import ChannelHistogram
from resources import figures as style


def _subtitle(figure: Figure) -> str:
    return next(text.get_text() for text in figure.texts if text.get_gid() == "subtitle")


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


def test_a_code_that_the_table_does_not_know_is_drawn_and_named_all_the_same() -> None:
    axis = figures.failure_codes({"clips": {"ok": 9, "of another program": 1}}).axes[0]
    ((bar,),) = axis.containers
    assert bar.get_width() == 10.0
    legend = axis.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.texts] == ["of another program"]
