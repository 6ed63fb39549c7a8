"""One cache file read wholly: what a sweep keeps of it.

Belongs here: a judgement as plain columns. Does not belong here: reading (`cache_store`), many files (`sweep`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dms_assets import (
    cache_file,
    contract,
    merging,
    npz,
    routes,
    rule_view,
    rules,
    spans,
    statistics,
    validation,
)
from dms_assets.cache_meta import code_sha256
from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.cache_store import CacheStore
from dms_assets.contract import FAIL_CODES, RUNTIME_KEYS
from dms_assets.digest import content_digest
from dms_assets.statistics import ChannelStatistics, channel_values, column_statistics, failures
from dms_assets.unmet import beyond_now
from resources.files import Identity
from resources.findings import Finding, Severity

FAILURES: Final = tuple(name for code, name in FAIL_CODES.items() if code)
# A file that breaks one of these has no content to speak of.
_SHAPELESS: Final = frozenset({"container", "dtype", "shape", "kind", "uid", "meta_json"})


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a sweep keeps of one file. `row` holds its columns; spans are runs of ticks (R, 2)."""

    uid: str
    identity: Identity
    row: dict[str, Any]
    stored: spans.Ticks
    beyond: spans.Ticks
    findings: tuple[Finding, ...]
    channels: list[str]
    statistics: ChannelStatistics | None


def rules_digest() -> str:
    """The sha256 of the code that an examination depends on: while it is the same, its result may be kept."""
    modules: tuple[Any, ...] = (
        cache_file,
        contract,
        merging,
        npz,
        routes,
        rule_view,
        rules,
        spans,
        statistics,
        validation,
    )
    return code_sha256([*(module.__file__ for module in modules), __file__])


def examine(store: CacheStore, baseline: str, uid: str, identity: Identity) -> FileRecord | None:
    """Read, judge and measure one file; None when it vanished. What is wrong with it costs only itself.

    `identity` is the listing's, for a file that can't be opened.
    """
    nothing = np.zeros((0, 2), np.int64)
    try:
        judgement = store.judge(baseline, uid)
    except FileNotFoundError:
        return None
    except OSError as error:
        found = validation.inaccessible(store.path(baseline, uid), error)
        return FileRecord(uid, identity, _row("inaccessible", None, (found,)), nothing, nothing, (found,), [], None)
    codes = {finding.code for finding in judgement.findings if finding.severity is Severity.ERROR}
    cache = judgement.cache
    if cache is None or codes & _SHAPELESS - ({"container"} if cache is not None else set()):
        state = "unreadable" if cache is None else "invalid"
        row = _row(state, None, judgement.findings)
        return FileRecord(uid, judgement.identity, row, nothing, nothing, judgement.findings, [], None)
    state = "invalid" if codes - validation.ROWS_CODES else "valid"
    names, values, valid = channel_values(cache)
    finite = valid & np.isfinite(values).all(axis=1) if "feat_finite_on_valid" in codes else valid
    return FileRecord(
        uid,
        judgement.identity,
        _row(state, cache, judgement.findings),
        spans.runs_of(cache.spans),
        beyond_now(cache.meta, None),
        judgement.findings,
        names,
        column_statistics(values[finite]),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")


def _row(state: str, cache: RouteCache | WindowCache | None, findings: tuple[Finding, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "state": state,
        "errors": sum(finding.severity is Severity.ERROR for finding in findings),
        "warnings": sum(finding.severity is Severity.WARN for finding in findings),
        "kind": "",
        "rows": 0,
        "valid": 0,
        **dict.fromkeys((*FAILURES, "invalid_windows"), 0),
        **dict.fromkeys((*RUNTIME_KEYS, "wall_s"), float("nan")),
        "data_version": "",
        "meta": "",
    }
    if cache is None:
        return row
    failed = failures(cache)
    valid = cache.valid if isinstance(cache, RouteCache) else cache.win_valid
    row.update(
        kind=cache.KIND,
        rows=len(valid),
        valid=int(np.count_nonzero(valid)),
        invalid_windows=failed.pop("invalid", 0),
        **failed,
        **{key: _number(cache.runtime.get(key)) for key in (*RUNTIME_KEYS, "wall_s")},
        data_version=content_digest(cache),
        meta=json.dumps(cache.meta, sort_keys=True),
    )
    return row
