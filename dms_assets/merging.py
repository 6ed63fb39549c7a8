"""Merging two caches of one route.

Belongs here: which row, span, meta and runtime survive. Does not belong here: locks and files (`cache_store`).

Rows of the later cache win, but a failed row never replaces a valid one, so per tick the last valid row survives, or
the last one when none is valid: the arrays' merge is associative.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dms_assets.contract import HZ, CacheInvalidError, ProvenanceMismatchError
from dms_assets.spans import Spans, join_neighbours, nearest_tick

MAX_MERGED_FROM: Final = 20


def provenance_differences(meta: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What makes rows of the two metas belong in different files: code versions that both declare, and the weights.

    A file without a `code_version` (other programs write none) says nothing of it. `code_sha256` informs only.
    """
    differences = []
    versions = meta.get("code_version"), other.get("code_version")
    if None not in versions and versions[0] != versions[1]:
        differences.append(f"code_version {versions[0]!r} and {versions[1]!r}")
    weights = meta.get("weight_sha256") or {}, other.get("weight_sha256") or {}
    if weights[0] != weights[1]:
        differences.append(f"weight_sha256 {weights[0]!r:.200} and {weights[1]!r:.200}")
    return differences


def check_mergeable(earlier: Any, later: Any, same: dict[str, tuple[Any, Any]], allow_provenance_change: bool) -> None:
    """Refuse to merge what does not belong together.

    Raises:
        CacheInvalidError: another kind, uid, or one of `same` (code to the two values) differs.
        ProvenanceMismatchError: other code or weights, unless allowed.
    """
    if earlier.KIND != later.KIND:
        raise CacheInvalidError("kind", f"a {later.KIND} can't be merged into a {earlier.KIND}")
    for code, (one, other) in {"uid": (earlier.uid, later.uid), **same}.items():
        if one != other:
            raise CacheInvalidError(code, f"can't merge: {one!r:.200} and {other!r:.200} differ")
    if not allow_provenance_change and (differences := provenance_differences(earlier.meta, later.meta)):
        raise ProvenanceMismatchError(
            "provenance", f"{later.uid}: {'; '.join(differences)}; rebuild the route, or allow the change explicitly"
        )


def surviving_rows(
    t: NDArray[np.float32], valid: NDArray[np.bool_], t_later: NDArray[np.float32], valid_later: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """The rows to keep, in time order, as indices into the earlier cache's rows followed by the later one's."""
    key = nearest_tick(np.concatenate((t, t_later)))
    off_grid = np.abs(key - np.rint(key)) > 1e-3 + 1e-5 * np.abs(key)
    key = np.where(off_grid, key, np.rint(key))
    is_valid = np.concatenate((valid, valid_later))
    order = np.lexsort((np.arange(len(key)), is_valid, key))  # within a tick: valid ones last, later ones last
    last = np.ones(len(order), bool)
    last[:-1] = np.diff(key[order]) > 0
    return order[last]


def merged_moving(earlier: Any, later: Any, keep: NDArray[np.intp]) -> NDArray[np.bool_] | None:
    """`moving` of the surviving rows, filled from the other side where one lacks it; None when a row stays unknown."""
    if earlier.moving is None and later.moving is None:
        return None
    sides = [
        (np.rint(side.t.astype(np.float64) * HZ).astype(np.int64), side.moving)
        for side in (earlier, later)
        if side.moving is not None
    ]
    if len(sides) == 2:
        both: NDArray[np.bool_] = np.concatenate((earlier.moving, later.moving))[keep]
        return both
    (known, moving), t = sides[0], np.concatenate((earlier.t, later.t))[keep]
    if not len(t):
        return np.zeros(0, bool)
    ticks = np.rint(t.astype(np.float64) * HZ).astype(np.int64)
    at = np.minimum(np.searchsorted(known, ticks), max(len(known) - 1, 0))
    if not len(known) or not np.array_equal(known[at], ticks):
        return None
    filled: NDArray[np.bool_] = moving[at]
    return filled


def merged_spans(earlier: Spans, later: Spans) -> Spans:
    """The spans of both, neighbours joined."""
    return join_neighbours(np.concatenate((earlier, later)))


def _past(meta: dict[str, Any]) -> list[Any]:
    past = meta.get("merged_from")
    return past if isinstance(past, list) else []


def merged_meta(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """The later meta, with the earlier ones under `merged_from`, oldest first, the last MAX_MERGED_FROM of them."""
    history = [*_past(earlier), {key: value for key, value in earlier.items() if key != "merged_from"}, *_past(later)]
    return {**later, "merged_from": history[-MAX_MERGED_FROM:]}


def merged_runtime(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Frames and wall time added up; milliseconds averaged by n_frames over the sides where they are finite."""
    if not earlier or not later:
        return dict(later or earlier)

    def number(runtime: dict[str, Any], key: str) -> float:
        value = runtime.get(key)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")

    frames = [max(0, int(n)) if np.isfinite(n) else 0 for n in (number(earlier, "n_frames"), number(later, "n_frames"))]
    merged: dict[str, Any] = dict(later)
    for key in ("decode_ms_p50", "decode_ms_p95", "infer_ms_p50", "infer_ms_p95"):
        values = np.array([number(earlier, key), number(later, key)])
        weights = np.where(np.isfinite(values), frames, 0)
        if weights.sum():
            merged[key] = float(np.nansum(np.where(weights > 0, values, 0.0) * weights) / weights.sum())
        else:
            merged[key] = float(values[1] if np.isfinite(values[1]) else values[0])
    merged["n_frames"] = sum(frames)
    walls = [wall for wall in (number(earlier, "wall_s"), number(later, "wall_s")) if np.isfinite(wall)]
    merged["wall_s"] = sum(walls) if walls else None
    return merged
