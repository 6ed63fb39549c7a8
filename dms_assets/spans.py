"""Span algebra on the 10 Hz tick grid.

Belongs here: what spans (float32 seconds, both ends included) say about ticks, and set operations on them, all
vectorised; one route or many at once. Does not belong here: caches, files, wanted tables.

Ticks decide. A span [s, e] holds the ticks k with ceil(10 s) <= k <= floor(10 e), where 10 s and 10 e are first snapped
to the nearest integer when within max(1e-3, ten times half a float32 ulp of s): spans are stored as float32, and
float32(0.3) times 10 is not 3. Runs of ticks are int64 (R, 2), first and last tick of each run.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dms_assets.contract import HZ, SPAN_TOL_S

Spans: TypeAlias = NDArray[np.float32]
Ticks: TypeAlias = NDArray[np.int64]

_STRIDE = 1 << 33  # ticks between two owners laid on one line; a route's own stay within +-2**31
_LIMIT = float(1 << 31)


def _seconds(spans: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(spans, np.float64)
    if array.size == 0:
        return np.zeros((0, 2))
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"spans are (S, 2) seconds, not of shape {array.shape}")
    return array


def _wanted(spans: ArrayLike) -> NDArray[np.float64]:
    array = _seconds(spans)
    if not np.isfinite(array).all():
        raise ValueError(f"wanted spans must be finite: {array[~np.isfinite(array).all(axis=1)][:5].tolist()}")
    return array


def nearest_tick(seconds: ArrayLike) -> NDArray[np.float64]:
    """10 t, with values that a float32 near a tick would have made of it put on the tick (float64, same shape)."""
    s = np.asarray(seconds, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        x = s * HZ
        tick = np.rint(x)
        near = np.maximum(1e-3, 0.5 * HZ * np.spacing(np.abs(s).astype(np.float32)).astype(np.float64))
        return np.where(np.abs(x - tick) <= near, tick, x)


def _runs(spans: NDArray[np.float64]) -> Ticks:
    """First and last tick of each span, in the spans' order; a span without a tick has last < first."""
    x = nearest_tick(spans)
    runs = np.empty(spans.shape, np.int64)
    bad = np.isnan(spans).any(axis=1)
    runs[:, 0] = np.where(bad, 1, np.ceil(np.clip(x[:, 0], -_LIMIT, _LIMIT)))
    runs[:, 1] = np.where(bad, 0, np.floor(np.clip(x[:, 1], -_LIMIT, _LIMIT)))
    return runs


def join_runs(runs: Ticks) -> Ticks:
    """Runs sorted, with overlapping and neighbouring ones joined and empty ones dropped."""
    runs = runs[runs[:, 0] <= runs[:, 1]]
    if len(runs) < 2:
        return runs
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    last = np.maximum.accumulate(runs[:, 1])
    first = np.flatnonzero(np.concatenate(([True], runs[1:, 0] > last[:-1] + 1)))
    return np.column_stack((runs[first, 0], np.concatenate((last[first[1:] - 1], last[-1:]))))


def minus(want: Ticks, have: Ticks) -> Ticks:
    """The ticks of `want` outside `have`, all of them joined runs."""
    if not len(want) or not len(have):
        return want
    # One sweep over all beginnings and ends: wanted depth and stored depth after each.
    at = np.concatenate((want[:, 0], want[:, 1] + 1, have[:, 0], have[:, 1] + 1))
    wanted = np.zeros(len(at), np.int8)
    wanted[: len(want)], wanted[len(want) : 2 * len(want)] = 1, -1
    stored = np.zeros(len(at), np.int8)
    stored[2 * len(want) : -len(have)], stored[-len(have) :] = 1, -1
    order = np.argsort(at, kind="stable")
    at = at[order]
    open_ = (np.cumsum(wanted[order], dtype=np.int64) > 0) & (np.cumsum(stored[order], dtype=np.int64) == 0)
    piece = np.flatnonzero(open_[:-1] & (at[1:] > at[:-1]))
    return join_runs(np.column_stack((at[piece], at[piece + 1] - 1)))


def runs_of(spans: ArrayLike) -> Ticks:
    """The ticks of `spans` as joined runs, int64 (R, 2). NaN and reversed spans hold none."""
    return join_runs(_runs(_seconds(spans)))


def expand(runs: Ticks) -> Ticks:
    """Every tick of joined runs, ascending, int64 (K,)."""
    if not len(runs):
        return np.zeros(0, np.int64)
    length = runs[:, 1] - runs[:, 0] + 1
    offset = np.cumsum(length) - length
    return np.repeat(runs[:, 0] - offset, length) + np.arange(int(length.sum()))


def ticks_of(spans: ArrayLike) -> Ticks:
    """Every tick of `spans`, ascending and once, int64 (K,)."""
    return expand(runs_of(spans))


def from_ticks(ticks: ArrayLike) -> Spans:
    """The spans that hold exactly `ticks` (any order, repeats allowed): one per run, float32 (S, 2) seconds."""
    return from_runs(runs_of_ticks(ticks))


def runs_of_ticks(ticks: ArrayLike) -> Ticks:
    """`ticks` (any order, repeats allowed) as joined runs."""
    k = np.unique(np.asarray(ticks, np.int64))
    if not len(k):
        return np.zeros((0, 2), np.int64)
    cut = np.flatnonzero(np.diff(k) > 1)
    return np.column_stack((k[np.concatenate(([0], cut + 1))], k[np.concatenate((cut, [-1]))]))


def within(ticks: Ticks, runs: Ticks) -> NDArray[np.bool_]:
    """Which of `ticks` lie in joined runs, bool (K,)."""
    if not len(runs):
        return np.zeros(len(ticks), bool)
    at = np.searchsorted(runs[:, 1], ticks, "left")
    inside: NDArray[np.bool_] = (at < len(runs)) & (runs[np.minimum(at, len(runs) - 1), 0] <= ticks)
    return inside


def from_runs(runs: Ticks) -> Spans:
    """Runs of ticks as float32 (R, 2) seconds."""
    return (runs / HZ).astype(np.float32)


def missing_runs(want: ArrayLike, have: ArrayLike) -> Ticks:
    """The wanted ticks without a stored one, as joined runs.

    Raises:
        ValueError: a wanted span is not finite.
    """
    return minus(join_runs(_runs(_wanted(want))), runs_of(have))


def missing_ticks(want: ArrayLike, have: ArrayLike) -> Ticks:
    """The exact wanted ticks without a stored one, ascending, int64 (K,). Raises what `missing_runs` raises."""
    return expand(missing_runs(want, have))


def runs_each(spans: ArrayLike, lead_in: int = 0) -> Ticks:
    """First and last tick of each wanted span, (S, 2), beginning `lead_in` ticks earlier but not before 0.

    Raises:
        ValueError: a span is not finite.
    """
    runs = _runs(_wanted(spans))
    if lead_in:
        runs[:, 0] = np.where(runs[:, 0] <= runs[:, 1], np.maximum(runs[:, 0] - lead_in, 0), runs[:, 0])
    return runs


def lay_out(runs: Ticks, owner: NDArray[np.int64]) -> Ticks:
    """Runs of many routes on one line, joined: the algebra then works on all of them at once.

    `owner` (R,) names the route of each run by a number from 0. `take_up` undoes it.
    """
    return join_runs(runs + owner.reshape(-1, 1) * _STRIDE)


def take_up(line: Ticks) -> tuple[Ticks, NDArray[np.int64]]:
    """The runs (R, 2) of many routes from their line, and the route (R,) of each, by route and time."""
    owner = (line[:, 0] + _STRIDE // 2) // _STRIDE
    return line - owner[:, None] * _STRIDE, owner


def missing_of_many(
    want: ArrayLike, want_owner: NDArray[np.int64], have: ArrayLike, have_owner: NDArray[np.int64]
) -> tuple[Ticks, NDArray[np.int64]]:
    """`missing_runs` of many routes at once: runs (R, 2) by route and time, and the route (R,) of each.

    `want` are spans (W, 2) of all routes, `want_owner` (W,) names the route of each by a number from 0; `have` (H, 2)
    are the stored ones, with `have_owner` (H,) likewise.

    Raises:
        ValueError: a wanted span is not finite.
    """
    stored = lay_out(_runs(_seconds(have)), have_owner)
    return take_up(minus(lay_out(runs_each(want), want_owner), stored))


def count_ticks(runs: Ticks) -> int:
    """How many ticks joined runs hold."""
    return int((runs[:, 1] - runs[:, 0] + 1).sum())


def merge_spans(spans: ArrayLike, gap: float = 0.0) -> Spans:
    """Spans sorted by start, overlapping or at most `gap` seconds apart joined: float32 (S, 2), (0, 2) when empty.

    A gap of 0 keeps neighbouring ticks apart. A positive gap allows for the float32 rounding of both ends.
    """
    return _merge(_seconds(spans), gap).astype(np.float32)


def _merge(array: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    if len(array) < 2:
        return array
    array = array[np.argsort(array[:, 0], kind="stable")]
    last = np.fmax.accumulate(array[:, 1])
    reach = last[:-1] + gap
    if gap > 0:
        reach = reach + np.spacing(np.abs(array[1:, 0]).astype(np.float32))
    first = np.flatnonzero(np.concatenate(([True], ~(array[1:, 0] <= reach))))
    return np.column_stack((array[first, 0], np.concatenate((last[first[1:] - 1], last[-1:]))))


def join_neighbours(spans: ArrayLike) -> Spans:
    """Spans with those joined between which no tick lies, so that no reader sees a gap where no row is missing.

    Spans that are not finite or reversed are a rule's business: such a table is returned as it is.
    """
    array = _seconds(spans)
    if len(array) < 2 or not np.isfinite(array).all() or (array[:, 0] > array[:, 1]).any():
        return array.astype(np.float32)
    array = _merge(array, 0.0)
    x = nearest_tick(array)
    first = np.flatnonzero(np.concatenate(([True], np.ceil(x[1:, 0]) > np.floor(x[:-1, 1]) + 1)))
    return np.column_stack((array[first, 0], array[np.concatenate((first[1:] - 1, [-1])), 1])).astype(np.float32)


def spans_cover(have: ArrayLike, want: ArrayLike, tol: float = SPAN_TOL_S) -> bool:
    """Whether every wanted tick is stored. `tol` is the older module's argument; ticks leave nothing to it.

    Raises:
        ValueError: a wanted span is not finite.
    """
    return not len(missing_runs(want, have))


def spans_subtract(want: ArrayLike, have: ArrayLike, tol: float = SPAN_TOL_S) -> Spans:
    """What of `want` is not in `have`, float32 (S, 2); empty exactly when no wanted tick is missing.

    A remainder begins at the stored end and ends at the next stored start or the wanted end, as callers of the older
    module expect. One of at most `tol` seconds is dropped, unless a missing tick lies in it.

    Raises:
        ValueError: a wanted span is not finite.
    """
    missing = missing_runs(want, have)
    if not len(missing):
        return np.zeros((0, 2), np.float32)
    stored = _seconds(have)
    stored = _merge(stored[stored[:, 0] <= stored[:, 1]], 0.0)
    wanted = _merge(_wanted(want), 0.0)
    gap_start = np.concatenate(([-np.inf], stored[:, 1]))
    gap_end = np.concatenate((stored[:, 0], [np.inf]))
    # Every pair of a wanted span and a gap between stored ones that meet, ends included.
    low = np.searchsorted(gap_end, wanted[:, 0], "left")
    count = np.maximum(np.searchsorted(gap_start, wanted[:, 1], "right") - low, 0)
    which = np.repeat(np.arange(len(wanted)), count)
    gap = np.arange(int(count.sum())) + np.repeat(low - (np.cumsum(count) - count), count)
    pieces = np.column_stack((np.maximum(wanted[which, 0], gap_start[gap]), np.minimum(wanted[which, 1], gap_end[gap])))
    runs = _runs(pieces)
    at = np.searchsorted(missing[:, 1], runs[:, 0], "left")
    holds = (runs[:, 0] <= runs[:, 1]) & (at < len(missing))
    holds &= missing[np.minimum(at, len(missing) - 1), 0] <= runs[:, 1]
    remainders: Spans = pieces[holds | (pieces[:, 1] - pieces[:, 0] > tol)].astype(np.float32)
    return remainders


def as_lists(spans: ArrayLike) -> list[list[float]]:
    """Spans as JSON likes them: seconds rounded to the nearest thousandth."""
    rounded: list[Any] = np.round(_seconds(spans), 3).tolist()
    return rounded
