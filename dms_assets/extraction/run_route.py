"""Extraction of one route: exactly the missing ticks, stored block by block, so that a killed run goes on.

Belongs here: what is missing, the loop over decoded frames, merging and writing blocks, provenance, the report. Does
not belong here: deciding which routes deserve work (`plan`), decoding (`video`), models (`extractors`).
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import av
import numpy as np
from numpy.typing import ArrayLike

from dms_assets.baselines import Baseline
from dms_assets.cache_schema import RouteCache, WindowCache, code_sha256, make_meta
from dms_assets.cache_store import CacheStore
from dms_assets.contract import FRAMES, HZ, MAX_SECONDS
from dms_assets.extraction.blocks import Block, BoxSource, FrameBlock, WindowBlock
from dms_assets.extraction.boxes import PoseBoxes, load_boxes
from dms_assets.extraction.extractor import (
    ExtractorError,
    FrameExtractor,
    WindowExtractor,
    open_extractor,
)
from dms_assets.extraction.report import RouteReport
from dms_assets.extraction.video import Clock, Video, VideoFile, VideoMissingError, find_video
from dms_assets.extraction.weights import resolve_weights
from dms_assets.plan import spoiling, wanted_runs
from dms_assets.routes import check_uid
from dms_assets.spans import Ticks, count_ticks, expand, join_runs, minus, runs_of, runs_of_ticks, within
from dms_assets.unmet import NONE, beyond_now, both, to_retry, updated
from resources.files import FileRoot

Cache = RouteCache | WindowCache


@dataclass(frozen=True, slots=True)
class _Work:
    """Runs of ticks: to store anew, windows to embed, frames to decode for both."""

    missing: Ticks
    windows: Ticks
    decode: Ticks


def run_route(
    baseline: Baseline,
    uid: str,
    wanted_spans: ArrayLike,
    *,
    caches: CacheStore,
    videos: FileRoot,
    boxes: FileRoot | None = None,
    block_ticks: int = 600,
    rebuild: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RouteReport:
    """Extract what of `wanted_spans` (seconds, (S, 2)) is not stored yet, and store it.

    An unusable stored file is moved aside. With `rebuild` everything stored or wanted is extracted again and the file
    is replaced at the end. `progress` is told ticks done and ticks to do.

    Raises:
        RouteNameError: `uid` is unsafe.
        ValueError: a wanted span is not finite, ends before it starts, or lies outside 0 to MAX_SECONDS.
        ExtractorError, WeightsError, BoxesError: the model, its files or the pose cache can't be used.
        VideoMissingError, VideoRefusedError: there is no video, or its frame numbers can't be trusted.
        ProvenanceMismatchError: the stored cache is of another code version or other weights.
        CacheInvalidError: the stored cache has other channels or another kind.
        OSError: a file can't be read or written. Whatever blocks were stored before stay.
    """
    began = time.perf_counter()
    check_uid(uid)
    if baseline.external:
        raise ExtractorError(f"{baseline.name}: other programs write its caches; there is nothing to run")
    _check_wanted(uid, wanted_spans)
    wanted = wanted_runs(baseline, wanted_spans)
    stored = _stored(caches, baseline, uid)
    file = _video_file(videos, uid)
    work = _work(baseline, wanted, stored, file, rebuild)
    run = _Run(baseline, uid, caches, stored, rebuild)
    if count_ticks(work.decode):
        if file is None:
            find_video(videos, uid)  # raises, and says where it looked
        run.extract(cast(VideoFile, file), videos, boxes, work, block_ticks, progress)
    return run.report(runs_of(wanted_spans), work, file, time.perf_counter() - began)


def _check_wanted(uid: str, wanted_spans: ArrayLike) -> None:
    """Refuse spans that no video can hold: each of their ticks would become a row."""
    spans = np.asarray(wanted_spans, np.float64).reshape(-1, 2)
    bad = ~((spans[:, 0] >= 0) & (spans[:, 0] <= spans[:, 1]) & (spans[:, 1] <= MAX_SECONDS))
    if bad.any():
        start, end = spans[bad][0]
        raise ValueError(
            f"{uid}: the wanted span [{start:g}, {end:g}] is not finite, ends before it starts, or lies outside"
            f" 0 to {MAX_SECONDS:g} s; mend it in the wanted-spans table"
        )


def _stored(caches: CacheStore, baseline: Baseline, uid: str) -> Cache | None:
    if caches.identity(baseline.name, uid) is None:
        return None
    judgement = caches.judge(baseline.name, uid)
    cache = judgement.cache
    if cache is None or baseline.kind != cache.KIND or spoiling(judgement.findings):
        caches.move_aside(baseline.name, uid, judgement.identity)
        return None
    return cache


def _video_file(videos: FileRoot, uid: str) -> VideoFile | None:
    try:
        return find_video(videos, uid)
    except VideoMissingError:
        return None


def _stored_runs(stored: Cache) -> Ticks:
    """The ticks of the spans; of a frames cache only those that have their row."""
    runs = runs_of(stored.spans)
    if isinstance(stored, WindowCache):
        return both(runs, np.array([[0, MAX_SECONDS * HZ]], np.int64))  # a span of a strange file may claim an aeon
    return both(runs, runs_of_ticks(np.rint(stored.t.astype(np.float64) * HZ).astype(np.int64)))


def _work(baseline: Baseline, wanted: Ticks, stored: Cache | None, file: VideoFile | None, rebuild: bool) -> _Work:
    have = _stored_runs(stored) if stored is not None else NONE
    if rebuild:
        wanted, missing, have = join_runs(np.concatenate([wanted, have])), wanted, have[:0]
        missing = wanted
    else:
        retry = to_retry(stored.meta, file.as_meta if file else None) if stored is not None else have
        missing = join_runs(np.concatenate([minus(wanted, have), both(wanted, retry)]))
    if baseline.kind == FRAMES:
        return _Work(missing, missing[:0], missing)
    # A window is to do when a frame of it is new and all of them lie in one stored or wanted run.
    lead = np.array([baseline.lead_in, 0])
    runs = join_runs(np.concatenate([have, wanted]))
    windows = both(join_runs(missing + lead[::-1]), join_runs(runs + lead))
    return _Work(missing, windows, join_runs(np.concatenate([missing, windows - lead])))


def _merged(earlier: Cache, later: Cache) -> Cache:
    return earlier.merged_with(later)  # type: ignore[arg-type]  # another kind is refused by `merged_with`


def _continues(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    """Whether two metas differ only in what changes from block to block."""
    passing = {"written_utc", "partial", "unmet", "merged_from"}
    return all(earlier.get(key) == later.get(key) for key in {*earlier, *later} - passing)


class _Run:
    """One extraction: what it needs on the way, and what it counts."""

    def __init__(self, baseline: Baseline, uid: str, caches: CacheStore, stored: Cache | None, rebuild: bool) -> None:
        self._baseline, self._uid, self._caches = baseline, uid, caches
        self._stored, self._rebuild = stored, rebuild
        self._clock = Clock()
        self._block: Block | None = None
        self._rebuilt: Cache | None = None
        self._boxes = BoxSource(None, own_detector=False)
        self._code_sha = ""
        self._file: VideoFile | None = None
        self._beyond: list[int] = []
        self._damaged: list[int] = []
        self._all_beyond: list[int] = []
        self._blocks = self._decoded = 0

    def extract(
        self,
        file: VideoFile,
        videos: FileRoot,
        boxes: FileRoot | None,
        work: _Work,
        block_ticks: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Decode, extract and store everything of `work`."""
        self._file = file
        extractor = open_extractor(self._baseline, resolve_weights(self._baseline))
        pose = load_boxes(boxes, self._uid) if boxes is not None else None
        block = self._block = self._collector(extractor, pose, work)
        if self._stored is not None and not self._rebuild:
            _merged(self._stored, block.empty(self._meta(block, more=False)))  # refuses before any work is done
        ticks = expand(work.decode)
        # After a block, every window that its ticks made possible has to be stored; a stored tick that follows may
        # still end such windows.
        may_cut = np.zeros(len(ticks), np.bool_)
        may_cut[:-1] = (np.diff(ticks) > 1) | within(ticks[1:], work.missing)
        with Video(videos, file, self._clock) as video:
            self._file = video.file
            since = time.perf_counter()
            for done, (frame, image) in enumerate(video.frames((2 * ticks).tolist())):
                if image is None:
                    past = video.complete and frame >= video.n_frames
                    (self._beyond if past else self._damaged).append(frame // 2)
                else:
                    block.timing.decode_ms.append((time.perf_counter() - since) * 1e3)
                block.add(frame // 2, image)
                # Frames that can't be had cost nothing, so that no block is written for their sake.
                if image is not None and len(block.ticks) >= block_ticks and may_cut[done]:
                    self._store(block, more=True)
                if progress is not None:
                    progress(done + 1, len(ticks))
                since = time.perf_counter()
            self._decoded = video.decoded
        self._store(block, more=False)
        if self._rebuilt is not None:
            self._caches.save(self._baseline.name, self._rebuilt)

    def _collector(
        self, extractor: FrameExtractor | WindowExtractor, pose: PoseBoxes | None, work: _Work
    ) -> FrameBlock | WindowBlock:
        module = sys.modules[type(extractor).__module__].__file__
        self._code_sha = code_sha256([module]) if module else ""
        self._extractor = extractor
        if self._baseline.kind == FRAMES:
            frames = cast(FrameExtractor, extractor)
            self._boxes = BoxSource(pose, frames.own_detector)
            return FrameBlock(self._uid, frames, self._boxes)
        self._boxes = BoxSource(pose, own_detector=False)
        windows = cast(WindowExtractor, extractor)
        return WindowBlock(self._uid, windows, self._boxes, self._baseline.win_len, work.windows)

    def _meta(self, block: Block, *, more: bool) -> dict[str, Any]:
        assert self._file is not None
        extra: dict[str, Any] = {"partial": True} if more else {}
        return make_meta(
            self._baseline.name,
            self._extractor.model_ids,
            weight_sha256=self._baseline.weight_sha256,
            lib_versions={**self._extractor.lib_versions, "av": av.__version__, "numpy": np.__version__},
            decode_wh=block.native_wh,
            native_wh=block.native_wh,
            code_sha=self._code_sha,
            code_version=self._baseline.code_version,
            video=self._file.as_meta,
            box_source=self._boxes.name,
            **extra,
        )

    def _store(self, block: Block, *, more: bool) -> None:
        since = time.perf_counter()
        assert self._file is not None
        tried, video = runs_of_ticks(block.ticks), self._file.as_meta
        beyond, damaged = self._beyond, self._damaged
        self._beyond, self._damaged = [], []
        self._all_beyond += beyond
        self._clock.seconds["infer"] = self._clock.seconds.get("infer", 0.0) + sum(block.timing.infer_ms) / 1e3
        cache = block.cut(self._meta(block, more=more))

        def merge(stored: Cache | None) -> Cache:
            meta = {**cache.meta}
            unmet = updated(stored.meta if stored is not None else {}, video, tried, beyond, damaged)
            if unmet:
                meta["unmet"] = unmet
            if stored is None:
                return dataclasses.replace(cache, meta=meta)
            if meta["native_wh"] is None:  # no frame of this block could be decoded
                meta |= {key: stored.meta.get(key) for key in ("native_wh", "decode_wh")}
            merged = _merged(stored, dataclasses.replace(cache, meta=meta))
            if _continues(stored.meta, meta):
                # Blocks of one origin are one entry of the history, however often the run was interrupted.
                merged.meta = {**meta, **{key: stored.meta[key] for key in ("merged_from",) if key in stored.meta}}
            return merged

        if self._rebuild:
            self._rebuilt = merge(self._rebuilt)
        else:
            self._caches.update(self._baseline.name, self._uid, merge)
        self._blocks += 1
        self._clock.add("write", since)

    def report(self, wanted: Ticks, work: _Work, file: VideoFile | None, wall_s: float) -> RouteReport:
        """What was done."""
        rows = self._block.rows if self._block is not None else 0
        failed = {name: count for name, count in sorted(self._block.failed.items()) if count} if self._block else {}
        requested = count_ticks(work.decode)
        file = self._file or file
        earlier = beyond_now(self._stored.meta, file.as_meta if file else None) if self._stored is not None else NONE
        beyond = join_runs(np.concatenate([earlier, runs_of_ticks(self._all_beyond)]))
        return RouteReport(
            baseline=self._baseline.name,
            uid=self._uid,
            ticks_wanted=count_ticks(wanted),
            ticks_reused=count_ticks(minus(wanted, work.missing)),
            rows=rows,
            valid=rows - sum(failed.values()),
            failed=failed,
            frames_requested=requested,
            frames_decoded=self._decoded,
            blocks=self._blocks,
            ms_per_tick={stage: 1e3 * spent / max(requested, 1) for stage, spent in self._clock.seconds.items()},
            wall_s=wall_s,
            video=file.as_meta if file is not None else {},
            box_source=self._boxes.name if self._block is not None else "",
            beyond_video_s=count_ticks(both(wanted, beyond)) / HZ,
        )
