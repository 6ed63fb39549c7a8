"""DMS feature caches: the module that programs outside this project import to write and read them.

Belongs here: the two cache classes, saving and loading; everything public of the contract can be imported from here.
Needs numpy and the standard library only (isal makes it faster where installed).
Does not belong here: locks and whole stores (`cache_store`), rules (`rules`), span algebra (`spans`).
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dms_assets import merging, validation
from dms_assets.cache_file import Raw, kind_of, opened, read_raw
from dms_assets.cache_meta import (
    RESULTS_ROOT,
    cache_dir,
    cache_path,
    code_sha256,
    json_text,
    make_meta,
    make_runtime,
    savez_atomic,
    sha256_file,
    summ_dir,
)
from dms_assets.contract import (
    FAIL_CODES,
    FPS,
    FRAMES,
    HZ,
    META_KEYS,
    RUNTIME_KEYS,
    SPAN_TOL_S,
    TIME_BASE,
    WINDOWS,
    CacheInvalidError,
    CacheUnreadableError,
    ProvenanceMismatchError,
)
from dms_assets.spans import Spans, join_neighbours, merge_spans, spans_cover, spans_subtract

__all__ = [
    "FAIL_CODES",
    "FPS",
    "HZ",
    "META_KEYS",
    "RESULTS_ROOT",
    "RUNTIME_KEYS",
    "SPAN_TOL_S",
    "TIME_BASE",
    "CacheInvalidError",
    "CacheUnreadableError",
    "ProvenanceMismatchError",
    "RouteCache",
    "WindowCache",
    "cache_dir",
    "cache_kind",
    "cache_path",
    "code_sha256",
    "from_raw",
    "load_any",
    "make_meta",
    "make_runtime",
    "merge_spans",
    "savez_atomic",
    "sha256_file",
    "spans_cover",
    "spans_subtract",
    "summ_dir",
    "synthetic_route_cache",
]


class _Cache(ABC):
    """What both kinds share; a subclass is a dataclass with uid, spans, meta and runtime."""

    KIND: ClassVar[str]
    uid: str
    spans: Spans
    meta: dict[str, Any]
    runtime: dict[str, Any]

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """The members of this cache's file, in their order, with neighbouring spans joined."""

    def validate(self) -> Self:
        """This cache, held to the invariants of the contract's tables.

        Raises:
            CacheInvalidError: for the first broken one; `validation.findings` reports all.
        """
        validation.validate(self)
        return self

    def covers(self, spans: ArrayLike, tol: float = SPAN_TOL_S) -> bool:
        """Whether every tick of `spans` (seconds, (S, 2)) is stored."""
        return spans_cover(self.spans, spans, tol)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Validate and write in one step; the final path.

        Raises:
            CacheInvalidError: an invariant is broken; nothing is written.
            OSError: it can't be written; the old file is untouched.
        """
        return savez_atomic(path, **self.validate().arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The cache in a file, validated.

        Raises:
            CacheUnreadableError: the container is damaged or is none.
            CacheInvalidError: an invariant is broken, or the file is of the other kind.
            OSError: it can't be opened.
        """
        cache = _load(path)
        if not isinstance(cache, cls):
            raise CacheInvalidError("kind", f"{Path(path).name}: is a {cache.KIND}, not a {cls.KIND}")
        return cache


def _texts(cache: _Cache) -> dict[str, Any]:
    return {
        "spans": join_neighbours(cache.spans),
        "meta": np.array(json_text(cache.meta, "meta_json")),
        "runtime": np.array(json_text(cache.runtime, "runtime")),
        "kind": np.array(cache.KIND),
    }


@dataclass(eq=False)
class RouteCache(_Cache):
    """A per-frame cache: one row per decoded frame, in time order. Members, dtypes and shapes are the contract's."""

    KIND: ClassVar[str] = FRAMES

    uid: str
    t: NDArray[np.float32]
    frame_idx: NDArray[np.int64]
    box: NDArray[np.float32]
    valid: NDArray[np.bool_]
    fail: NDArray[np.uint8]
    feat: NDArray[np.float16]
    channels: Sequence[str]
    spans: Spans
    meta: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    moving: NDArray[np.bool_] | None = None

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.t)

    @property
    def C(self) -> int:  # noqa: N802 - the older module's name
        """Channels."""
        return int(self.feat.shape[1])

    def arrays(self) -> dict[str, Any]:
        """The members of this cache's file, in their order, with neighbouring spans joined."""
        members = {
            "uid": np.array(self.uid),
            "t": self.t,
            "frame_idx": self.frame_idx,
            "box": self.box,
            "valid": self.valid,
            "fail": self.fail,
            "feat": self.feat,
            "channels": np.array(list(self.channels), dtype=None if len(self.channels) else "<U1"),
            **_texts(self),
            "fail_codes": np.array(json.dumps({str(code): name for code, name in FAIL_CODES.items()})),
        }
        return members if self.moving is None else {**members, "moving": self.moving}

    @classmethod
    def empty(
        cls, uid: str, channels: Sequence[str], meta: Mapping[str, Any], spans: ArrayLike | None = None
    ) -> RouteCache:
        """A cache without rows; its spans are merged, its meta copied, and it is not validated."""
        return cls(
            uid=uid,
            t=np.zeros(0, np.float32),
            frame_idx=np.zeros(0, np.int64),
            box=np.zeros((0, 4), np.float32),
            valid=np.zeros(0, bool),
            fail=np.zeros(0, np.uint8),
            feat=np.zeros((0, len(channels)), np.float16),
            channels=list(channels),
            spans=merge_spans(() if spans is None else spans),
            meta=dict(meta),
        )

    def merged_with(self, other: RouteCache, *, allow_provenance_change: bool = False) -> RouteCache:
        """This cache with `other`'s rows added; `merging` says which row, span, meta and runtime survive.

        Raises:
            CacheInvalidError: another kind, uid or channel order, or the result breaks an invariant.
            ProvenanceMismatchError: other code_version or weights, unless `allow_provenance_change`.
        """
        same = {"channels": (list(self.channels), list(getattr(other, "channels", ())))}
        merging.check_mergeable(self, other, same, allow_provenance_change)
        keep = merging.surviving_rows(self.t, self.valid, other.t, other.valid)
        rows = {
            name: np.concatenate((getattr(self, name), getattr(other, name)))[keep]
            for name in ("t", "frame_idx", "box", "valid", "fail", "feat")
        }
        return RouteCache(
            uid=other.uid,
            **rows,
            channels=list(other.channels),
            spans=merging.merged_spans(self.spans, other.spans),
            meta=merging.merged_meta(self.meta, other.meta),
            runtime=merging.merged_runtime(self.runtime, other.runtime),
            moving=merging.merged_moving(self, other, keep),
        ).validate()


@dataclass(eq=False)
class WindowCache(_Cache):
    """A window cache: one row per window of `win_len` frames, named by its END time."""

    KIND: ClassVar[str] = WINDOWS

    uid: str
    win_t_end: NDArray[np.float32]
    emb: NDArray[np.float16]
    win_valid: NDArray[np.bool_]
    win_len: int
    spans: Spans
    meta: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)

    @property
    def m(self) -> int:
        """Windows."""
        return len(self.win_t_end)

    @property
    def D(self) -> int:  # noqa: N802 - the older module's name
        """Width of the embedding."""
        return int(self.emb.shape[1])

    def arrays(self) -> dict[str, Any]:
        """The members of this cache's file, in their order, with neighbouring spans joined."""
        return {
            "uid": np.array(self.uid),
            "win_t_end": self.win_t_end,
            "emb": self.emb,
            "win_valid": self.win_valid,
            "win_len": np.array(self.win_len, np.int64),
            **_texts(self),
        }

    @classmethod
    def empty(
        cls,
        uid: str,
        win_len: int,
        D: int,  # noqa: N803 - the older module's name
        meta: Mapping[str, Any],
        spans: ArrayLike | None = None,
    ) -> WindowCache:
        """A cache without windows; its spans are merged, its meta copied, and it is not validated."""
        return cls(
            uid=uid,
            win_t_end=np.zeros(0, np.float32),
            emb=np.zeros((0, D), np.float16),
            win_valid=np.zeros(0, bool),
            win_len=win_len,
            spans=merge_spans(() if spans is None else spans),
            meta=dict(meta),
        )

    def merged_with(self, other: WindowCache, *, allow_provenance_change: bool = False) -> WindowCache:
        """This cache with `other`'s windows added; `merging` says which window, span, meta and runtime survive.

        Raises:
            CacheInvalidError: another kind, uid, win_len or width, or the result breaks an invariant.
            ProvenanceMismatchError: other code_version or weights, unless `allow_provenance_change`.
        """
        same = {
            "win_len": (int(self.win_len), int(getattr(other, "win_len", 0))),
            "shape": (self.D, getattr(other, "D", 0)),
        }
        merging.check_mergeable(self, other, same, allow_provenance_change)
        keep = merging.surviving_rows(self.win_t_end, self.win_valid, other.win_t_end, other.win_valid)
        return WindowCache(
            uid=other.uid,
            win_t_end=np.concatenate((self.win_t_end, other.win_t_end))[keep],
            emb=np.concatenate((self.emb, other.emb))[keep],
            win_valid=np.concatenate((self.win_valid, other.win_valid))[keep],
            win_len=other.win_len,
            spans=merging.merged_spans(self.spans, other.spans),
            meta=merging.merged_meta(self.meta, other.meta),
            runtime=merging.merged_runtime(self.runtime, other.runtime),
        ).validate()


def from_raw(raw: Raw, *, writable: bool = True) -> RouteCache | WindowCache:
    """The cache of a file's values, not validated; `writable` copies the arrays out of the read buffer."""
    values: dict[str, Any] = {
        name: value.copy() if writable and isinstance(value, np.ndarray) else value
        for name, value in raw.arrays.items()
    }
    kind = RouteCache if raw.kind == FRAMES else WindowCache
    return kind(uid=raw.uid, meta=raw.meta, runtime=raw.runtime, **values)


def valid_from_raw(raw: Raw) -> RouteCache | WindowCache:
    """The cache of a file's values, held to the invariants of the contract's tables.

    Raises:
        CacheInvalidError: one is broken, or `kind` and the arrays disagree.
    """
    declared = raw.facts.declared_kind
    if declared not in (None, raw.kind):
        raise CacheInvalidError("kind", f"{raw.facts.where}: kind says {declared!r:.60}, the arrays are {raw.kind}")
    cache = from_raw(raw)
    validation.validate(cache, raw.facts)
    return cache


def _load(path: str | os.PathLike[str]) -> RouteCache | WindowCache:
    with opened(path) as box:
        return valid_from_raw(read_raw(box, where=Path(path).name))


def load_any(path: str | os.PathLike[str]) -> RouteCache | WindowCache:
    """The cache in a file, of whichever kind, validated. Raises what `RouteCache.load` raises."""
    return _load(path)


def cache_kind(path: str | os.PathLike[str]) -> str:
    """Either "route_frames" or "route_windows", as the file declares it; by its members in the oldest files.

    Raises:
        CacheUnreadableError: the container is damaged or is none.
        OSError: it can't be opened.
    """
    with opened(path, whole=False) as box:
        actual, declared = kind_of(box)
        return declared or actual


def synthetic_route_cache(
    uid: str = "synthetic__dev0__seg__route_0-1",
    t0: float = 0.0,
    t1: float = 60.0,
    channels: Sequence[str] = ("yaw_deg", "pitch_deg", "closed_p", "conf"),
    seed: int = 0,
    invalid_frac: float = 0.05,
    meta: Mapping[str, Any] | None = None,
) -> RouteCache:
    """A valid cache of random rows from `t0` to `t1`, both ends included. For tests only, never data."""
    rng = np.random.default_rng(seed)
    k = np.arange(round(t0 * HZ), round(t1 * HZ) + 1)
    n = len(k)
    fail = np.where(rng.random(n) < invalid_frac, rng.choice([1, 2, 3], n), 0).astype(np.uint8)
    valid = fail == 0
    feat = rng.normal(size=(n, len(channels))).astype(np.float16)
    feat[~valid] = np.nan
    box = (np.array([700, 300, 1100, 800]) + rng.normal(0, 3, (n, 4))).astype(np.float32)
    box[(fail == 1) | (fail == 2)] = np.nan
    return RouteCache(
        uid=uid,
        t=(k / HZ).astype(np.float32),
        frame_idx=2 * k,
        box=box,
        valid=valid,
        fail=fail,
        feat=feat,
        channels=list(channels),
        spans=merge_spans([[t0, t1]]),
        meta=dict(meta) if meta is not None else make_meta("synthetic", ["synthetic"], code_version="1"),
        runtime=make_runtime(rng.uniform(3, 6, n), rng.uniform(8, 12, n), n),
        moving=rng.random(n) < 0.8,
    ).validate()


if __name__ == "__main__":
    from dms_assets.cache_selftest import main

    sys.exit(main())
