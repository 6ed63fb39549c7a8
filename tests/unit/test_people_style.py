"""The style of figures: what is drawn and how it becomes bytes, never pixels."""

import base64
import re
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from resources import figures as style


def _figure(seed: int = 0) -> Figure:
    figure = style.new_figure("Numbers", "a hundred of them")
    axis = figure.subplots()
    values = np.random.default_rng(seed).normal(size=100)
    style.histogram(axis, values, values[:50] + 1)
    axis.set_xlabel("metres (m)")
    style.count_axis(axis, "rows")
    style.legend_above(axis)
    return figure


def test_the_same_figure_gives_the_same_bytes_in_every_thread() -> None:
    alone = style.svg(_figure())
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: style.svg(_figure(seed % 2)), range(8)))
    assert together[::2] == [alone] * 4
    assert len(set(together)) == 2


def test_the_bytes_hold_neither_a_date_nor_a_version() -> None:
    text = style.svg(_figure()).decode()
    assert "<dc:date>" not in text
    assert not re.search(r"Matplotlib v?\d", text)


def test_an_svg_is_well_formed_720_pixels_wide_and_keeps_its_text_as_text() -> None:
    root = ET.fromstring(style.svg(_figure()))
    assert root.get("width") == "540pt"  # 720 CSS pixels
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Numbers", "a hundred of them", "metres (m)", "rows", "now", "previous (50, scaled)"} <= words


def test_drawing_leaves_no_global_figure_behind() -> None:
    style.svg(_figure())
    assert plt.get_fignums() == []


def test_the_markdown_shows_every_figure_with_its_title_and_no_file() -> None:
    text = style.markdown([_figure(0), _figure(1)])
    images = re.findall(r"!\[Numbers\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", text)
    assert [base64.b64decode(image)[:5] for image in images] == [b"<?xml"] * 2


def test_a_histogram_counts_every_finite_value_once_and_scales_the_previous_ones() -> None:
    axis = style.new_figure("x").subplots()
    style.histogram(axis, [1.0, 2.0, np.nan, 3.0, np.inf], [1.0, 1.0, 1.0, 3.0, 2.0, 2.0])
    *behind, now = [patch for patch in axis.patches if isinstance(patch, StepPatch)]
    assert now.get_data()[0].sum() == 3
    assert [one.get_data()[0].sum() for one in behind] == [3.0, 3.0]


@pytest.mark.parametrize("values", [[], [np.nan], [np.inf, -np.inf]])
def test_a_histogram_of_nothing_says_so(values: list[float]) -> None:
    axis = style.new_figure("x").subplots()
    style.histogram(axis, values, [1.0])
    assert [text.get_text() for text in axis.texts] == ["no finite values"]
    assert not axis.patches


def test_a_constant_series_is_one_bin_around_it() -> None:
    assert style.edges_of([np.full(3, 4.0)], 10).tolist() == [3.5, 4.5]


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "none"),
        (0, 9, "0 %"),
        (9, 9, "100 %"),
        (1, 3, "33.3 %"),
        (1, 10_000, "<0.1 %"),
        (9999, 10_000, ">99.9 %"),
    ],
)
def test_a_share_never_claims_all_or_nothing_wrongly(part: int, whole: int, text: str) -> None:
    assert style.share(part, whole) == text


def test_a_long_name_loses_its_middle_only() -> None:
    assert style.shortened("short") == "short"
    cut = style.shortened("a" * 100 + "b" * 100)
    assert len(cut) == 44
    assert cut.startswith("aaa")
    assert cut.endswith("bbb")


def test_numbers_are_written_with_separators_and_their_noun() -> None:
    assert style.counted(1, "row") == "1 row"
    assert style.counted(12345, "row").replace("\N{NARROW NO-BREAK SPACE}", " ") == "12 345 rows"
