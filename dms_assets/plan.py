"""What deserves work: one answer per baseline and route, and why.

Belongs here: comparing what is wanted, what is stored and what the registry declares. Does not belong here: doing it
(`extraction`), schedules, Dagster. Planning changes nothing on disk; `plan_route` does not even look at it.

Every caller (nightly job, sensor, checks, command line, overview) asks here, so that they can't disagree.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dms_assets import rules, spans, validation
from dms_assets.baselines import Baseline
from dms_assets.cache_file import Header
from dms_assets.cache_schema import RouteCache, code_sha256
from dms_assets.cache_store import CacheStore, Judgement
from dms_assets.contract import FRAMES, HZ, CacheInvalidError, CacheUnreadableError
from dms_assets.extraction.video import VideoFile, list_videos
from dms_assets.merging import provenance_differences
from dms_assets.spans import Spans, Ticks, count_ticks, from_runs, join_runs, minus, runs_of
from dms_assets.unmet import NONE, beyond_now, both, to_retry
from resources.files import FileRoot, Identity
from resources.findings import Finding, Severity


class State(StrEnum):
    """How a route stands. The first that applies is given, in this order.

    `inaccessible` and `settling` are files of which nothing can be said: they can't be opened, or may still be being
    copied.
    """

    INACCESSIBLE = "inaccessible"
    SETTLING = "settling"
    UNREADABLE = "unreadable"
    INVALID = "invalid"
    STALE = "stale"
    COVERED = "covered"
    UNMEETABLE = "unmeetable"
    NO_VIDEO = "no_video"
    PARTIAL = "partial"
    ABSENT = "absent"


class Work(StrEnum):
    """What would be done: nothing, the missing ticks, or everything anew."""

    NONE = "none"
    EXTRACT = "extract"
    REBUILD = "rebuild"


@dataclass(frozen=True, slots=True)
class Stored:
    """A cache file as planning sees it: its identity, and its header or the reason why there is none.

    `invalid` names the rules that a full reading found broken (`spoiling`); empty when none was, or none was made.
    """

    identity: Identity
    header: Header | None = None
    unreadable: str = ""
    inaccessible: str = ""
    invalid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What a plan does about stale caches, about being told to, and about files that may still be being copied."""

    rebuild_stale: bool = False
    force: bool = False
    settle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The answer for one baseline and route. `missing` and `beyond` are runs of wanted ticks (R, 2).

    `missing` ticks are not stored, or another video could not give them; `beyond` ticks lie past the end of the video.
    `move_aside` says that the stored file can't be used and would be renamed first. `why` is for people.
    """

    baseline: str
    uid: str
    state: State
    external: bool
    work: Work
    move_aside: bool
    missing: Ticks
    beyond: Ticks
    wanted_ticks: int
    why: str

    @property
    def missing_spans(self) -> Spans:
        """The missing ticks as spans in seconds, float32 (S, 2)."""
        return from_runs(self.missing)

    @property
    def beyond_spans(self) -> Spans:
        """The ticks past the video's end as spans in seconds, float32 (S, 2)."""
        return from_runs(self.beyond)


def wanted_runs(baseline: Baseline, wanted_spans: ArrayLike) -> Ticks:
    """The ticks that have to be stored for wanted spans (seconds, (S, 2)): for windows, their lead-in as well.

    Raises:
        ValueError: a wanted span is not finite.
    """
    runs = spans.missing_runs(wanted_spans, [])
    if not baseline.lead_in or baseline.external:
        return runs
    return join_runs(np.column_stack((np.maximum(runs[:, 0] - baseline.lead_in, 0), runs[:, 1])))


def spoiling(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The codes that make a cache unusable: errors other than rows that don't fill their spans, which can be added."""
    codes = {f.code for f in findings if f.severity is Severity.ERROR and f.code not in validation.ROWS_CODES}
    return tuple(sorted(codes))


def plan_route(
    baseline: Baseline,
    uid: str,
    *,
    wanted: ArrayLike,
    stored: Stored | None,
    video: VideoFile | None,
    policy: Policy = Policy(),
    now: float | None = None,
) -> RoutePlan:
    """The state of one route and what would be done about it.

    Args:
        baseline: the registry's entry.
        uid: the route.
        wanted: wanted spans in seconds, (S, 2).
        stored: what is known of its cache file, None when there is none.
        video: its driver video, None when there is none.
        policy: what to do in doubtful cases.
        now: seconds since 1970, for the settle time; the clock by default.

    Raises:
        ValueError: a wanted span is not finite.
    """
    want = wanted_runs(baseline, wanted)
    header = stored.header if stored is not None else None
    meta = header.meta if header is not None else {}
    identity = video.as_meta if video is not None else None
    have = runs_of(header.spans) if header is not None else NONE
    missing = join_runs(np.concatenate([minus(want, have), both(want, to_retry(meta, identity))]))
    beyond = minus(both(want, beyond_now(meta, identity)), missing)
    state, why = _state(baseline, uid, stored, missing, beyond, video)
    if state in (State.UNREADABLE, State.INVALID) and stored is not None:
        age = (time.time() if now is None else now) - stored.identity.mtime_ns / 1e9
        if age < policy.settle_s:
            state, why = State.SETTLING, f"{why}; written {max(age, 0):.0f} s ago, perhaps still being copied"
        else:
            missing, beyond = want, NONE
    work, because = _work(baseline, state, policy, wanted=count_ticks(want) > 0, video=video)
    return RoutePlan(
        baseline=baseline.name,
        uid=uid,
        state=state,
        external=baseline.external,
        work=work,
        move_aside=work is not Work.NONE and state in (State.UNREADABLE, State.INVALID),
        missing=missing,
        beyond=beyond,
        wanted_ticks=count_ticks(want),
        why=f"{why}; {because}" if because else why,
    )


def _seconds(runs: Ticks) -> str:
    return f"{count_ticks(runs) / HZ:.1f} s"


def _state(
    baseline: Baseline, uid: str, stored: Stored | None, missing: Ticks, beyond: Ticks, video: VideoFile | None
) -> tuple[State, str]:
    if stored is not None:
        if stored.inaccessible:
            return State.INACCESSIBLE, stored.inaccessible
        if stored.header is None and not stored.invalid:
            return State.UNREADABLE, stored.unreadable
        if stored.header is None or stored.invalid:
            return State.INVALID, f"breaks {', '.join(stored.invalid)}"
        if stored.header.uid != uid:
            return State.INVALID, f"holds the route {stored.header.uid}"
        if (name := stored.header.meta.get("baseline")) != baseline.name:
            return State.INVALID, f"holds the baseline {name!r:.60}"
        if stored.header.kind != baseline.kind:
            return State.INVALID, f"holds {stored.header.kind}, but the baseline makes {baseline.kind}"
        if differences := stale(baseline, stored.header.meta):
            return State.STALE, f"made with {'; '.join(differences)}"
        if rows_lacking := _rows_lacking(stored.header):
            return State.PARTIAL, f"{rows_lacking} ticks of its spans have no row"
    if not len(missing):
        if len(beyond):
            return State.UNMEETABLE, f"{_seconds(beyond)} wanted lie past the end of the video"
        return State.COVERED, "everything wanted is stored"
    if video is None and not baseline.external:
        return State.NO_VIDEO, f"{_seconds(missing)} are missing and there is no video"
    if stored is not None:
        return State.PARTIAL, f"{_seconds(missing)} are missing"
    return State.ABSENT, f"no cache; {_seconds(missing)} are wanted"


def stale(baseline: Baseline, meta: Mapping[str, Any]) -> list[str]:
    """How the stored provenance differs from what the registry declares; what it does not declare is not compared."""
    declared: dict[str, Any] = {"code_version": baseline.code_version or None, "weight_sha256": baseline.weight_sha256}
    if baseline.external and not baseline.weights:
        declared["weight_sha256"] = meta.get("weight_sha256")
    return provenance_differences(dict(meta), declared)


def _rows_lacking(header: Header) -> int:
    if header.kind != FRAMES:
        return 0
    return max(count_ticks(runs_of(header.spans)) - header.n, 0)


_DUE = {
    State.PARTIAL: Work.EXTRACT,
    State.ABSENT: Work.EXTRACT,
    State.INVALID: Work.EXTRACT,
    State.UNREADABLE: Work.EXTRACT,
}


def _work(
    baseline: Baseline, state: State, policy: Policy, *, wanted: bool, video: VideoFile | None
) -> tuple[Work, str]:
    """What would be done, and why not more."""
    if baseline.external:
        return Work.NONE, "" if state is State.COVERED else "other programs write these caches"
    if state in (State.INACCESSIBLE, State.SETTLING):
        return Work.NONE, "left alone"
    due = _DUE.get(state, Work.NONE)
    if state is State.STALE:
        due = Work.REBUILD if policy.rebuild_stale else Work.NONE
    if policy.force and wanted:
        due = due if due is Work.EXTRACT and state is not State.PARTIAL else Work.REBUILD
    if due is Work.NONE:
        return due, "rebuilt only when asked" if state is State.STALE else ""
    if not wanted and state is not State.STALE:
        return Work.NONE, "nothing is wanted"
    if video is None:
        return Work.NONE, "there is no video" if state is not State.NO_VIDEO else ""
    return due, ""


def seen(judged: Judgement) -> Stored:
    """What a full reading of a cache file means for planning."""
    cache = judged.cache
    if cache is None:
        return Stored(judged.identity, unreadable=judged.findings[0].text)
    if invalid := spoiling(judged.findings):
        return Stored(judged.identity, invalid=invalid)
    rows = len(cache.valid) if isinstance(cache, RouteCache) else len(cache.win_valid)
    return Stored(judged.identity, Header(cache.uid, cache.KIND, rows, cache.spans, cache.meta))


def look(caches: CacheStore, baseline: str, uid: str, identity: Identity, *, whole: bool = False) -> Stored:
    """What there is to know of a cache file: its header, or with `whole` every rule's verdict as well."""
    try:
        if whole:
            return seen(caches.judge(baseline, uid))
        return Stored(identity, caches.header(baseline, uid))
    except CacheUnreadableError as error:
        return Stored(identity, unreadable=str(error))
    except CacheInvalidError as error:
        return Stored(identity, invalid=(error.code,))
    except OSError as error:
        return Stored(identity, inaccessible=f"can't be opened: {error.strerror or error}")


def plan(
    baseline: Baseline,
    wanted: Mapping[str, ArrayLike],
    *,
    caches: CacheStore,
    videos: FileRoot | None,
    policy: Policy = Policy(),
    known: Mapping[str, Stored] = {},
    whole: bool = False,
) -> list[RoutePlan]:
    """The plan of one baseline over every route that is wanted or stored, sorted by uid.

    `known` are earlier looks by uid, reused while the file's identity is the same; with `whole` new looks read files
    completely.

    Raises:
        OSError: a root is missing or can't be read: that is no empty answer.
        ValueError: a wanted span is not finite.
    """
    files = caches.listing(baseline.name).files
    found = list_videos(videos) if videos is not None else {}
    plans = []
    for uid in sorted({*wanted, *files}):
        stored = None
        if (identity := files.get(uid)) is not None:
            earlier = known.get(uid)
            reusable = earlier is not None and earlier.identity == identity
            stored = earlier if reusable else look(caches, baseline.name, uid, identity, whole=whole)
        video = found[uid][0] if found.get(uid) else None
        plans.append(plan_route(baseline, uid, wanted=wanted.get(uid, ()), stored=stored, video=video, policy=policy))
    return plans


@lru_cache(maxsize=1)
def _rules_digest() -> str:
    modules: Sequence[Any] = (rules, spans, validation)
    return code_sha256([*(module.__file__ for module in modules), Path(__file__)])


def fingerprint(baseline: Baseline, file: Identity | None, video: VideoFile | None, wanted: ArrayLike) -> str:
    """A digest of everything an earlier judgement of a route depends on: file, video, rules, thresholds, wanted spans.

    While it is the same, the judgement may be reused.
    """
    entry = {
        "file": asdict(file) if file is not None else None,
        "video": video.as_meta if video is not None else None,
        "rules": _rules_digest(),
        "baseline": [
            baseline.name,
            baseline.extractor,
            baseline.kind,
            list(baseline.channels),
            baseline.code_version,
            baseline.weight_sha256,
            baseline.valid_fraction_min,
            baseline.win_len,
        ],
        "wanted": runs_of(wanted).tolist(),
    }
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
