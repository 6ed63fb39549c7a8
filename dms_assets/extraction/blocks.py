"""From decoded frames to blocks of rows: what is collected between two writes of a route's cache.

Belongs here: running the extractor on a frame, failure codes, windows with their lead-in, and building the block's
cache. Does not belong here: which ticks are wanted, decoding, writing (`run_route`).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dms_assets.cache_schema import RouteCache, WindowCache, make_runtime
from dms_assets.contract import FAIL_CODES, HZ
from dms_assets.extraction.boxes import PoseBoxes
from dms_assets.extraction.extractor import Box, FrameExtractor, Image, WindowExtractor
from dms_assets.spans import Ticks, expand, from_ticks

OK, NO_BOX, NO_FRAME, NO_FACE, NON_FINITE = FAIL_CODES


@dataclass(slots=True)
class Timing:
    """What one block cost: milliseconds per frame, since when."""

    decode_ms: list[float] = field(default_factory=list)
    infer_ms: list[float] = field(default_factory=list)
    since: float = field(default_factory=time.perf_counter)

    def runtime(self) -> dict[str, Any]:
        """The block's runtime, as the contract has it."""
        return make_runtime(self.decode_ms, self.infer_ms, len(self.infer_ms), wall_s=time.perf_counter() - self.since)


@dataclass(frozen=True, slots=True)
class BoxSource:
    """Where boxes come from: a pose cache, else the extractor's own detector, else the whole frame."""

    pose: PoseBoxes | None
    own_detector: bool

    @property
    def name(self) -> str:
        """What the cache's meta says."""
        return "pose_cache" if self.pose is not None else "detector" if self.own_detector else "frame"

    def known(self, frame: int) -> Box | None:
        """The box that is known without looking at the frame."""
        return self.pose.at(frame) if self.pose is not None else None

    def given(self, frame: int, image: Image) -> tuple[Box | None, bool]:
        """The box to extract from, and whether there is one; None when the extractor looks for it."""
        if self.pose is not None:
            box = self.pose.at(frame)
            return box, box is not None
        return (None, True) if self.own_detector else (whole(image), True)


def whole(image: Image) -> Box:
    """The box of the whole frame."""
    return np.array([0, 0, image.shape[1], image.shape[0]], np.float32)


class Block(Protocol):
    """Collects frames until it is cut. `ticks` are those added since the last cut."""

    ticks: list[int]
    timing: Timing
    native_wh: tuple[int, int] | None
    failed: Counter[str]
    rows: int

    def add(self, tick: int, image: Image | None) -> None:
        """Take one tick's frame, or None for one that could not be had."""
        ...

    def cut(self, meta: Mapping[str, Any]) -> RouteCache | WindowCache:
        """What was collected since the last cut, as a cache."""
        ...

    def empty(self, meta: Mapping[str, Any]) -> RouteCache | WindowCache:
        """A cache of this form without rows."""
        ...


def _to_f16(values: NDArray[np.floating]) -> NDArray[np.float16] | None:
    """float16, None when a value is not finite or does not fit."""
    with np.errstate(over="ignore"):
        small = np.asarray(values).astype(np.float16)
    return small if np.isfinite(small).all() else None


class FrameBlock:
    """Rows of a frame extractor. `rows` and `failed` count over all blocks."""

    def __init__(self, uid: str, extractor: FrameExtractor, boxes: BoxSource) -> None:
        self._uid, self._extractor, self._boxes = uid, extractor, boxes
        self.native_wh: tuple[int, int] | None = None
        self.failed: Counter[str] = Counter()
        self.rows = 0
        self._start()

    def _start(self) -> None:
        self.ticks: list[int] = []
        self.timing = Timing()
        self._fail: list[int] = []
        self._box: list[Box | None] = []
        self._feat: list[NDArray[np.float16] | None] = []

    def add(self, tick: int, image: Image | None) -> None:
        """Extract one tick's row; an image of None is a frame that could not be had."""
        code, box, feat = NO_FRAME, self._boxes.known(2 * tick), None
        if image is not None:
            self.native_wh = image.shape[1], image.shape[0]
            code, box, feat = self._extract(tick, image)
        self.ticks.append(tick)
        self._fail.append(code)
        self._box.append(box)
        self._feat.append(feat)
        self.rows += 1
        self.failed[FAIL_CODES[code]] += code != OK

    def _extract(self, tick: int, image: Image) -> tuple[int, Box | None, NDArray[np.float16] | None]:
        box, known = self._boxes.given(2 * tick, image)
        if not known:
            return NO_BOX, None, None
        since = time.perf_counter()
        row = self._extractor.row(image, box)
        self.timing.infer_ms.append((time.perf_counter() - since) * 1e3)
        box = box if box is not None else row.box
        if row.feat is None:
            return NO_FACE, box, None
        feat = _to_f16(row.feat)
        return (OK if feat is not None else NON_FINITE), box, feat

    def cut(self, meta: Mapping[str, Any]) -> RouteCache:
        """The rows since the last cut, as a cache."""
        ticks = np.array(self.ticks, np.int64)
        fail = np.array(self._fail, np.uint8)
        feat = np.full((len(ticks), len(self._extractor.channels)), np.nan, np.float16)
        box = np.full((len(ticks), 4), np.nan, np.float32)
        for row, (one_feat, one_box) in enumerate(zip(self._feat, self._box, strict=True)):
            if one_feat is not None:
                feat[row] = one_feat
            if one_box is not None:
                box[row] = one_box
        pose = self._boxes.pose
        cache = RouteCache(
            uid=self._uid,
            t=(ticks / HZ).astype(np.float32),
            frame_idx=2 * ticks,
            box=box,
            valid=fail == OK,
            fail=fail,
            feat=feat,
            channels=self._extractor.channels,
            spans=from_ticks(ticks),
            meta=dict(meta),
            runtime=self.timing.runtime(),
            moving=pose.moving_at(2 * ticks) if pose is not None else None,
        )
        self._start()
        return cache

    def empty(self, meta: Mapping[str, Any]) -> RouteCache:
        """A cache of this form without rows."""
        return RouteCache.empty(self._uid, self._extractor.channels, meta)


class WindowBlock:
    """Windows of a window extractor, ending at the ticks of `todo`. `rows` and `failed` count over all blocks."""

    def __init__(self, uid: str, extractor: WindowExtractor, boxes: BoxSource, win_len: int, todo: Ticks) -> None:
        self._uid, self._extractor, self._boxes, self._len = uid, extractor, boxes, win_len
        self._todo = set(expand(todo).tolist())
        self._recent: deque[tuple[int, int, Any]] = deque(maxlen=win_len)  # tick, code, prepared frame
        self.native_wh: tuple[int, int] | None = None
        self.failed: Counter[str] = Counter()
        self.rows = 0
        self._start()

    def _start(self) -> None:
        self.ticks: list[int] = []
        self._before = [tick for tick, _, _ in self._recent]
        self.timing = Timing()
        self._ends: list[int] = []
        self._emb: list[NDArray[np.float16] | None] = []

    def add(self, tick: int, image: Image | None) -> None:
        """Prepare one tick's frame, and embed the window that ends with it if it is one to do."""
        if self._recent and self._recent[-1][0] != tick - 1:
            self._recent.clear()
        code, prepared = NO_FRAME, None
        since = time.perf_counter()
        if image is not None:
            self.native_wh = image.shape[1], image.shape[0]
            box, _ = self._boxes.given(2 * tick, image)
            code = NO_BOX
            if box is not None:
                previous = self._recent[-1][2] if self._recent else None
                code, prepared = OK, self._extractor.prepare(image, box, previous)
        self._recent.append((tick, code, prepared))
        self.ticks.append(tick)
        if tick in self._todo:
            self._embed(tick)
        if image is not None:
            self.timing.infer_ms.append((time.perf_counter() - since) * 1e3)

    def _embed(self, tick: int) -> None:
        code = next((code for _, code, _ in self._recent if code != OK), OK)
        emb = None
        if code == OK:
            emb = _to_f16(self._extractor.window([prepared for _, _, prepared in self._recent]))
            code = OK if emb is not None else NON_FINITE
        self._ends.append(tick)
        self._emb.append(emb)
        self.rows += 1
        self.failed[FAIL_CODES[code]] += code != OK

    def cut(self, meta: Mapping[str, Any]) -> WindowCache:
        """The windows since the last cut, as a cache; its spans reach back to the first frame of the first window."""
        emb = np.full((len(self._ends), self._extractor.dim), np.nan, np.float16)
        for row, one in enumerate(self._emb):
            if one is not None:
                emb[row] = one
        cache = WindowCache(
            uid=self._uid,
            win_t_end=(np.array(self._ends, np.int64) / HZ).astype(np.float32),
            emb=emb,
            win_valid=np.array([one is not None for one in self._emb], np.bool_),
            win_len=self._len,
            spans=from_ticks(np.array([*self._before, *self.ticks], np.int64)),
            meta=dict(meta),
            runtime=self.timing.runtime(),
        )
        self._start()
        return cache

    def empty(self, meta: Mapping[str, Any]) -> WindowCache:
        """A cache of this form without windows."""
        return WindowCache.empty(self._uid, self._len, self._extractor.dim, meta)
