"""Span algebra: ticks decide, exactly, and the older module's forms are kept where it was right."""

import json
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dms_assets import spans
from dms_assets.cache_schema import SPAN_TOL_S, merge_spans, spans_cover, spans_subtract

GOLDEN = Path(__file__).parents[1] / "golden" / "dms"
SPAN_CASES: list[dict[str, Any]] = json.loads((GOLDEN / "cases.json").read_text())["span_cases"]

LAST = 1_000_000  # 100,000 s
tick = st.integers(0, LAST)
near = st.integers(0, 300)


def f32(k: int) -> float:
    return float(np.float32(k / 10))


def on_grid(ticks: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[float]]]:
    pair = st.tuples(ticks, ticks).map(lambda ab: [f32(min(ab)), f32(max(ab))])
    return st.lists(pair, max_size=6)


seconds = st.floats(0, 30, width=32)
anywhere = st.lists(st.tuples(seconds, seconds).map(lambda ab: [min(ab), max(ab)]), max_size=6)
tables = st.one_of(on_grid(near), anywhere)


@pytest.mark.parametrize("case", SPAN_CASES, ids=[f"{case['have']}-{case['want']}" for case in SPAN_CASES])
def test_the_span_tables_are_answered(case: dict[str, Any]) -> None:
    missing = spans.missing_ticks(case["want"], case["have"])
    expected = np.arange(case["missing_k"][0], case["missing_k"][1] + 1) if case["missing_k"] else np.zeros(0)
    assert np.array_equal(missing, expected)
    assert spans_cover(case["have"], case["want"]) is case["covers"]
    assert (len(spans_subtract(case["want"], case["have"])) == 0) is case["covers"]
    if case["older_subtract"] and not case["covers"]:
        assert np.array_equal(spans_subtract(case["want"], case["have"]), np.array(case["older_subtract"], np.float32))


@given(tables, tables)
def test_covering_is_nothing_missing_is_an_empty_remainder(want: list[list[float]], have: list[list[float]]) -> None:
    missing = spans.missing_ticks(want, have)
    assert spans_cover(have, want) == (len(missing) == 0) == (len(spans_subtract(want, have)) == 0)


@given(tables, tables)
def test_what_is_missing_added_covers(want: list[list[float]], have: list[list[float]]) -> None:
    missing = spans.missing_ticks(want, have)
    for added in (spans.from_ticks(missing), spans_subtract(want, have)):
        both = merge_spans(np.concatenate((np.array(have, np.float32).reshape(-1, 2), added)))
        assert spans_cover(both, want)
        assert len(spans_subtract(want, both)) == 0


def exact_ticks(table: list[tuple[int, int]]) -> set[int]:
    """Ticks of spans [a/10, b/10] by rational arithmetic."""
    ticks: set[int] = set()
    for a, b in table:
        start, end = Fraction(a, 10), Fraction(b, 10)
        ticks.update(range(ceil(10 * start), floor(10 * end) + 1))
    return ticks


@given(
    st.lists(st.tuples(tick, st.integers(0, 40)), max_size=4), st.lists(st.tuples(tick, st.integers(0, 40)), max_size=4)
)
def test_ticks_of_float32_spans_equal_rational_arithmetic(
    want: list[tuple[int, int]], have: list[tuple[int, int]]
) -> None:
    want, have = [[(a, a + n) for a, n in table] for table in (want, have)]
    as_f32: list[list[list[float]]] = [[[f32(a), f32(b)] for a, b in table] for table in (want, have)]
    assert spans.ticks_of(as_f32[0]).tolist() == sorted(exact_ticks(want))
    assert spans.missing_ticks(as_f32[0], as_f32[1]).tolist() == sorted(exact_ticks(want) - exact_ticks(have))


def test_every_tick_up_to_100000_s_is_found_at_its_float32_time() -> None:
    k = np.arange(LAST + 1)
    assert np.array_equal(spans.nearest_tick((k / 10).astype(np.float32)), k)


@given(st.fractions(0, 30, max_denominator=64), st.fractions(0, 30, max_denominator=64))
def test_ticks_between_grid_points_equal_rational_arithmetic(a: Fraction, b: Fraction) -> None:
    start, end = min(a, b), max(a, b)
    expected = list(range(ceil(10 * start), floor(10 * end) + 1))
    assert spans.ticks_of([[float(start), float(end)]]).tolist() == expected


def older_subtract(want: list[list[float]], have: list[list[float]], tol: float) -> list[tuple[float, float]]:
    """The plain subtraction of intervals with its filter, as the contract describes the older form."""
    pieces = []
    for a, b in merge_spans(want).tolist():
        for s, e in merge_spans(have).tolist():
            if e < a or s > b:
                continue
            pieces.append((a, s))
            a = max(a, e)
        pieces.append((a, b))
    return [(a, b) for a, b in pieces if b - a > tol]


@given(on_grid(near), on_grid(near))
def test_a_remainder_has_the_older_form_where_the_older_answer_was_right(
    want: list[list[float]], have: list[list[float]]
) -> None:
    older = older_subtract(want, have, SPAN_TOL_S)
    ours = [tuple(row) for row in spans_subtract(want, have).tolist()]
    if ours and older:
        # Single wanted ticks are what the older filter lost.
        assert [row for row in ours if row[1] - row[0] > SPAN_TOL_S] == older


def test_a_remainder_begins_at_the_stored_end() -> None:
    assert spans_subtract([[8, 12]], [[0, 10]]).tolist() == [[10, 12]]
    assert spans_subtract([[8, 12]], [[0, 10]]).dtype == np.float32
    assert spans_subtract([[5, 5]], []).tolist() == [[5, 5]]


def test_merging_spans_keeps_neighbouring_ticks_apart_without_a_gap() -> None:
    table = np.array([[5.1, 6], [0, 5], [5.5, 7]], np.float32)
    assert merge_spans(table).tolist() == np.array([[0, 5], [5.1, 7]], np.float32).tolist()
    assert merge_spans(table, gap=0.1).tolist() == [[0, 7]]
    assert merge_spans([]).shape == (0, 2)
    assert merge_spans([]).dtype == np.float32


@given(st.lists(tick, max_size=30))
def test_ticks_become_spans_and_spans_ticks(ticks: list[int]) -> None:
    table = spans.from_ticks(ticks)
    assert spans.ticks_of(table).tolist() == sorted(set(ticks))
    assert np.array_equal(spans.join_neighbours(table), table)


@given(tables)
def test_joining_neighbours_changes_no_tick(table: list[list[float]]) -> None:
    assert np.array_equal(spans.ticks_of(spans.join_neighbours(table)), spans.ticks_of(table))


@given(st.lists(st.tuples(tables, tables), max_size=4))
def test_many_routes_at_once_equal_one_by_one(routes: list[tuple[list[list[float]], list[list[float]]]]) -> None:
    def flat(side: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        owners = [i for i, route in enumerate(routes) for _ in route[side]]
        return np.array([span for route in routes for span in route[side]]).reshape(-1, 2), np.array(owners, np.int64)

    runs, owner = spans.missing_of_many(*flat(0), *flat(1))
    for i, (want, have) in enumerate(routes):
        assert np.array_equal(runs[owner == i], spans.missing_runs(want, have))


def test_stored_spans_that_mean_nothing_hold_no_tick_and_disturb_none() -> None:
    have: list[list[float]] = [[np.nan, 5], [5, 0], [0, np.inf], [2, 3]]
    assert spans.missing_ticks([[2, 3]], have).tolist() == []
    assert spans.missing_ticks([[2, 3]], have[:2]).tolist() == list(range(20, 31))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_wanted_spans_must_be_finite(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        spans.missing_ticks([[0, bad]], [])


def test_spans_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(S, 2\)"):
        spans.ticks_of([1, 2, 3])
