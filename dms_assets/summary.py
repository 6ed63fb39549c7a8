"""The summary of one route's cache: a small JSON document beside the caches, for analysis and for the UI.

Belongs here: what is counted and averaged over a route's rows, and where the document lies. Does not belong here:
whether the cache is right (`validation`), what is missing (`plan`, which is given).

Layout: `<root>/summ/<baseline>/<uid>.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.contract import FAIL_CODES, HZ
from dms_assets.digest import content_digest
from dms_assets.plan import RoutePlan
from dms_assets.routes import check_baseline, check_uid
from dms_assets.spans import as_lists, count_ticks
from resources.files import FileRoot
from resources.results import plain

PERCENTILES = (5, 50, 95)
_PROVENANCE = (
    "baseline",
    "model_ids",
    "weight_sha256",
    "code_version",
    "lib_versions",
    "video_source",
    "video",
    "box_source",
)


def summary_path(baseline: str, uid: str) -> str:
    """The summary of a route, relative to the cache root. Raises RouteNameError for an unsafe name."""
    return f"summ/{check_baseline(baseline)}/{check_uid(uid)}.json"


def row_counts(cache: RouteCache | WindowCache | None) -> tuple[int, int, dict[str, int]]:
    """Valid rows, rows, and the failed ones by the name of their code (windows have no codes: `invalid_windows`)."""
    if cache is None:
        return 0, 0, {}
    if isinstance(cache, WindowCache):
        valid = int(np.count_nonzero(cache.win_valid))
        return valid, len(cache.win_valid), {"invalid_windows": len(cache.win_valid) - valid}
    counts = np.bincount(cache.fail, minlength=max(FAIL_CODES) + 1)
    failed = {name: int(counts[code]) for code, name in FAIL_CODES.items() if code}
    return int(np.count_nonzero(cache.valid)), len(cache.valid), failed


def channel_statistics(values: NDArray[Any]) -> dict[str, float | int | None]:
    """Count, mean, population std and the percentiles p05, p50, p95 (linear) of finite values, in float64."""
    kept = values[np.isfinite(values)].astype(np.float64)
    if not len(kept):
        return {"count": 0, "mean": None, "std": None, **{f"p{p:02d}": None for p in PERCENTILES}}
    quantiles = np.percentile(kept, PERCENTILES)
    return {
        "count": len(kept),
        "mean": float(kept.mean()),
        "std": float(kept.std()),
        **{f"p{p:02d}": float(q) for p, q in zip(PERCENTILES, quantiles, strict=True)},
    }


def _columns(cache: RouteCache | WindowCache, rows: NDArray[np.bool_]) -> dict[str, dict[str, float | int | None]]:
    if isinstance(cache, WindowCache):
        norm = np.linalg.norm(cache.emb[rows].astype(np.float64), axis=1)
        return {"embedding_norm": channel_statistics(norm)}
    return {name: channel_statistics(cache.feat[rows, index]) for index, name in enumerate(cache.channels)}


def summarise(cache: RouteCache | WindowCache, plan: RoutePlan) -> dict[str, Any]:
    """The summary document of a route's cache under the plan made for it. Seconds are ticks / 10."""
    valid, rows, failed = row_counts(cache)
    frames = isinstance(cache, RouteCache)
    good = cache.valid if isinstance(cache, RouteCache) else cache.win_valid
    moving = cache.moving if isinstance(cache, RouteCache) else None
    missing = count_ticks(plan.missing)
    return {
        "uid": cache.uid,
        "baseline": plan.baseline,
        "kind": cache.KIND,
        "n": rows,
        "valid": valid,
        "spans": as_lists(cache.spans),
        "wanted_s": plan.wanted_ticks / HZ,
        "covered_s": (plan.wanted_ticks - missing) / HZ,
        "missing_s": missing / HZ,
        "beyond_video_s": count_ticks(plan.beyond) / HZ,
        "missing_spans": as_lists(plan.missing_spans),
        "failed": failed,
        "channels": _columns(cache, good),
        "channels_moving": _columns(cache, good & moving) if frames and moving is not None else None,
        "runtime": cache.runtime,
        "provenance": {key: cache.meta[key] for key in _PROVENANCE if key in cache.meta},
        "data_version": content_digest(cache),
    }


def write_summary(root: FileRoot, document: Mapping[str, Any]) -> str:
    """Publish a summary in one step; its path relative to the root.

    Raises:
        OSError: it can't be written; the old one is untouched.
    """
    path = summary_path(str(document["baseline"]), str(document["uid"]))
    text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=1)
    with root.publish(path) as file:
        file.write(text.encode())
    return path
