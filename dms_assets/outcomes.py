"""What one route's partition yields: a cache, a summary, their metadata and checks. Assets and checks both come here.

Belongs here: the order of domain calls, and which number is shown. Does not belong here: Dagster definitions
(`assets`, `checks`), rules (`validation`, `judgement`), deciding on work (`plan`), the form of events
(`resources.events`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dms_assets import judgement, timeline, validation
from dms_assets.baselines import Baseline
from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.cache_store import Judgement
from dms_assets.contract import HZ, CacheInvalidError
from dms_assets.digest import content_digest
from dms_assets.extraction.boxes import BoxesError
from dms_assets.extraction.extractor import ExtractorError
from dms_assets.extraction.report import RouteReport
from dms_assets.extraction.run_route import run_route
from dms_assets.extraction.video import VideoFile, VideoMissingError, VideoRefusedError, find_video
from dms_assets.extraction.weights import WeightsError
from dms_assets.files import DmsFiles
from dms_assets.plan import Policy, RoutePlan, State, Work, plan_route, seen, stale, wanted_runs
from dms_assets.spans import as_lists, count_ticks, runs_of
from dms_assets.summary import row_counts, summarise, summary_path, write_summary
from dms_assets.unmet import beyond_now
from resources.disk import require_free
from resources.events import Checked, Happened, Materialised, PartitionFailedError
from resources.figures import picture
from resources.findings import Finding
from resources.metadata import table
from resources.results import plain

DRIVER_VIDEO = dg.AssetKey(["dms", "driver_video"])
DRIVER_BOXES = dg.AssetKey(["dms", "driver_boxes"])
ANCHOR_SPANS = dg.AssetKey(["dms", "anchor_spans"])

CACHE_VALID = "cache_valid"
SPAN_COVERAGE = "span_coverage"
ROWS_FILL_SPANS = "rows_fill_spans"
PROVENANCE_CURRENT = "provenance_current"
VALID_FRACTION = "valid_fraction"


def cache_key(baseline: str) -> dg.AssetKey:
    """The asset key of a baseline's route caches."""
    return dg.AssetKey(["dms", baseline, "route_cache"])


def summary_key(baseline: str) -> dg.AssetKey:
    """The asset key of a baseline's route summaries."""
    return dg.AssetKey(["dms", baseline, "route_summary"])


@dataclass(frozen=True, slots=True)
class Standing:
    """How a route stands: its plan, and the file as it was read for it (None: there is none)."""

    plan: RoutePlan
    judged: Judgement | None
    video: VideoFile | None

    @property
    def cache(self) -> RouteCache | WindowCache | None:
        """The cache, when its container could be read."""
        return self.judged.cache if self.judged else None


def standing(files: DmsFiles, baseline: Baseline, uid: str) -> Standing:
    """Read a route's file wholly, and compare it with what is wanted and declared.

    Raises:
        OSError: the file is there and can't be read, or a root can't.
        WantedTableError: the wanted-spans table can't be used.
    """
    try:
        judged = files.caches.judge(baseline.name, uid)
    except FileNotFoundError:
        judged = None
    try:
        video = find_video(files.videos, uid)
    except VideoMissingError:
        video = None
    policy = Policy(rebuild_stale=files.dms.rebuild_stale, settle_s=files.dms.settle_s)
    stored = seen(judged) if judged else None
    wanted = files.wanted().of(uid)
    return Standing(plan_route(baseline, uid, wanted=wanted, stored=stored, video=video, policy=policy), judged, video)


_KNOWN_FAILURES = (
    BoxesError,
    CacheInvalidError,
    ExtractorError,
    VideoMissingError,
    VideoRefusedError,
    WeightsError,
    OSError,
)


def route_cache(files: DmsFiles, baseline: Baseline, uid: str) -> Iterator[Happened]:
    """Extract what of the route is missing, and say how it stands.

    Raises:
        PartitionFailedError: nothing usable is stored afterwards, or the extraction failed; what happened was yielded
            before. An extractor may raise anything else.
    """
    stands = standing(files, baseline, uid)
    report = None
    if stands.plan.work is not Work.NONE:
        try:
            require_free(files.dms.cache_root, files.dms.min_free_gib, "[dms] min_free_gib")
            report = run_route(
                baseline,
                uid,
                files.wanted().of(uid),
                caches=files.caches,
                videos=files.videos,
                boxes=files.boxes,
                block_ticks=files.dms.block_ticks,
                rebuild=stands.plan.work is Work.REBUILD,
            )
        except Exception as error:
            # No materialisation, whatever blocks are stored: a route whose extraction failed counts as failed.
            known = isinstance(error, _KNOWN_FAILURES)
            failure = str(error) if known else f"{type(error).__name__}: {error}"
            yield from route_checks(baseline, uid, standing(files, baseline, uid), failure).values()
            if known:
                raise PartitionFailedError(failure) from error
            raise
        stands = standing(files, baseline, uid)
    yield from route_events(files, baseline, uid, stands, report)
    if stands.plan.state in _UNUSABLE or (stands.judged is None and stands.plan.wanted_ticks):
        raise PartitionFailedError(f"{stands.plan.state}: {stands.plan.why}")


_UNUSABLE = (State.INACCESSIBLE, State.SETTLING, State.UNREADABLE, State.INVALID)


def route_events(
    files: DmsFiles,
    baseline: Baseline,
    uid: str,
    stands: Standing,
    report: RouteReport | None = None,
) -> Iterator[Happened]:
    """How a route stands, as events: its materialisation with its timeline unless it is unusable, and every check."""
    key = cache_key(baseline.name)
    if stands.plan.state not in _UNUSABLE:
        if stands.cache is not None:
            told = _timeline(files, baseline, uid, stands) | _metadata(files, baseline, uid, stands, report)
            yield Materialised(key, uid, content_digest(stands.cache), told)
        elif not stands.plan.wanted_ticks:
            yield Materialised(key, uid, "absent", {"status": "nothing is wanted of this route, and nothing is stored"})
    yield from route_checks(baseline, uid, stands).values()


def route_checks(baseline: Baseline, uid: str, stands: Standing, failure: str = "") -> dict[str, Checked]:
    """Every check of a route's cache, by name. Where no cache is stored, what concerns the file passes.

    `failure` says why an extraction failed just now.
    """
    plan, cache = stands.plan, stands.cache
    findings = stands.judged.findings if stands.judged else ()
    rows = [finding for finding in findings if finding.code in validation.ROWS_CODES]
    rest = [finding for finding in findings if finding.code not in validation.ROWS_CODES]
    valid, total, failed = _within_the_video(cache)
    minimum = baseline.valid_fraction_min
    seconds = {"wanted_s": plan.wanted_ticks / HZ, "missing_s": count_ticks(plan.missing) / HZ}
    seconds["beyond_video_s"] = count_ticks(plan.beyond) / HZ
    gaps = {"missing_spans": as_lists(plan.missing_spans), "beyond_video_spans": as_lists(plan.beyond_spans)}
    share = {"valid_rows": valid, "rows_judged": total, "valid_fraction": valid / total if total else None}
    stale_by = stale(baseline, cache.meta) if cache is not None else []
    judged: dict[str, tuple[list[Finding], dict[str, Any], dict[str, Any]]] = {
        CACHE_VALID: (rest, {}, {}),
        SPAN_COVERAGE: (
            judgement.span_coverage(
                uid,
                plan.missing,
                plan.beyond,
                video=stands.video is not None,
                external=baseline.external,
                failure=failure,
            ),
            {},
            seconds | gaps,
        ),
        ROWS_FILL_SPANS: (rows, {}, {}),
        PROVENANCE_CURRENT: (judgement.provenance_current(uid, stale_by), {}, {"declared": baseline.code_version}),
        VALID_FRACTION: (
            judgement.valid_fraction(uid, valid, total, failed, minimum),
            {"valid_fraction_min": minimum},
            share | {"failed": failed},
        ),
    }
    key = cache_key(baseline.name)
    state = {"state": str(plan.state)}
    return {
        name: Checked.of_findings(key, name, uid, found, thresholds, state | extra)
        for name, (found, thresholds, extra) in judged.items()
    }


def _within_the_video(cache: RouteCache | WindowCache | None) -> tuple[int, int, dict[str, int]]:
    """`row_counts` without the rows past the video's end: that they failed is `span_coverage`'s to say."""
    valid, total, failed = row_counts(cache)
    name = "invalid_windows" if isinstance(cache, WindowCache) else "no_frame"
    past = min(count_ticks(beyond_now(cache.meta, None)), failed.get(name, 0)) if cache is not None else 0
    return valid, total - past, {code: count - past * (code == name) for code, count in failed.items()}


def _timeline(files: DmsFiles, baseline: Baseline, uid: str, stands: Standing) -> dict[str, Any]:
    wanted = wanted_runs(baseline, files.wanted().of(uid))
    route = timeline.RouteTimeline.of(stands.plan, wanted, stands.cache)
    return {"figures": dg.MetadataValue.md(picture(route.title, timeline.svg(route)))}


def _metadata(
    files: DmsFiles, baseline: Baseline, uid: str, stands: Standing, report: RouteReport | None
) -> dict[str, Any]:
    plan, cache = stands.plan, stands.cache
    assert cache is not None
    valid, total, failed = row_counts(cache)
    told: dict[str, Any] = {
        "status": f"{plan.state}: {plan.why}",
        "rows": total,
        "valid_fraction": valid / total if total else None,
        "stored_s": count_ticks(runs_of(cache.spans)) / HZ,
        "wanted_s": plan.wanted_ticks / HZ,
        "missing_s": count_ticks(plan.missing) / HZ,
        "beyond_video_s": count_ticks(plan.beyond) / HZ,
        "failed": failed,
        "spans": table([{"start_s": start, "end_s": end} for start, end in as_lists(cache.spans)]),
        "file": files.caches.root.path / files.caches.path(baseline.name, uid),
        "written_utc": str(cache.meta.get("written_utc", "")),
        "video": stands.video.name if stands.video else "none",
    }
    if report is None:
        return told | {"decoded": "nothing: what is stored was kept"}
    return told | {
        "ticks_extracted": report.rows,
        "ticks_reused": report.ticks_reused,
        "frames_decoded": report.frames_decoded,
        "ms_per_tick": dict(report.ms_per_tick),
        "wall_s": report.wall_s,
        "box_source": report.box_source,
        "blocks": report.blocks,
    }


def route_summary(files: DmsFiles, baseline: Baseline, uid: str) -> Iterator[Happened]:
    """Summarise the stored cache of a route.

    Raises:
        PartitionFailedError: there is no usable cache although something is wanted.
    """
    stands = standing(files, baseline, uid)
    key = summary_key(baseline.name)
    if stands.plan.state in _UNUSABLE or (stands.cache is None and stands.plan.wanted_ticks):
        raise PartitionFailedError(f"no summary: {stands.plan.state}: {stands.plan.why}")
    if stands.cache is None:
        yield Materialised(key, uid, "absent", {"status": "nothing is wanted of this route, and nothing is stored"})
        return
    document = summarise(stands.cache, stands.plan)
    root = files.caches.root
    write_summary(root, document)
    shown = ("n", "valid", "wanted_s", "covered_s", "missing_s", "beyond_video_s", "failed")
    told: dict[str, Any] = {name: document[name] for name in shown}
    told["channels"] = table([{"channel": name, **entry} for name, entry in document["channels"].items()])
    told["file"] = root.path / summary_path(baseline.name, uid)
    digest = hashlib.sha256(json.dumps(plain(document), sort_keys=True).encode()).hexdigest()
    yield Materialised(key, uid, digest, told)
