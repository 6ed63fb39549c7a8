"""Rules on a route's cache as a whole: coverage of what is wanted, provenance, share of valid rows.

Belongs here: judging what is stored against what is wanted and declared; pure functions that return findings. Does not
belong here: the invariants of the file itself (`validation`), deciding on work (`plan`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dms_assets.contract import HZ
from dms_assets.spans import Ticks, count_ticks, from_runs
from resources.findings import MAX_SAMPLES, Finding, Severity


def span_text(span: ArrayLike) -> str:
    """One span as people read it: `12.0-15.3 s`, both ends included."""
    start, end = np.asarray(span, np.float64)
    return f"{start:.1f}-{end:.1f} s"


def _gaps(runs: Ticks) -> tuple[str, ...]:
    return tuple(span_text(span) for span in from_runs(runs)[:MAX_SAMPLES])


def _listed(texts: Sequence[str], total: int) -> str:
    return ", ".join(texts[:5]) + (f" and {total - 5} more" if total > 5 else "")


def span_coverage(
    uid: str, missing: Ticks, beyond: Ticks, *, video: bool, external: bool, failure: str = ""
) -> list[Finding]:
    """Findings on wanted ticks that are not stored, or that the video can't give.

    Args:
        uid: the route.
        missing: runs of wanted ticks without a stored row.
        beyond: runs of wanted ticks past the video's end.
        video: whether there is a driver video.
        external: whether other programs write this baseline's caches.
        failure: why their extraction failed just now; the remedy begins with it.
    """
    found = []
    if count := count_ticks(missing):
        gaps = _gaps(missing)
        if external:
            remedy = "let the program that writes this baseline extract these spans, and put its file into the cache"
        elif video and failure:
            remedy = f"the extraction failed: {failure}; once that is mended, materialise the route's cache again"
        elif video:
            remedy = "materialise the route's cache: exactly these spans are extracted"
        else:
            remedy = (
                f"put the driver video {uid}.hevc, .mp4 or .mkv into the video root, or take the spans off the table"
            )
        found.append(
            Finding(
                "span_missing" if video or external else "no_video",
                Severity.ERROR,
                uid,
                f"{count / HZ:.1f} s of the wanted spans are not stored: {_listed(gaps, len(missing))}"
                + ("" if video or external else "; there is no driver video"),
                remedy,
                count,
                gaps,
            )
        )
    if count := count_ticks(beyond):
        gaps = _gaps(beyond)
        found.append(
            Finding(
                "beyond_video",
                Severity.ERROR,
                uid,
                f"{count / HZ:.1f} s of the wanted spans lie past the end of the video: {_listed(gaps, len(beyond))}",
                "fetch the rest of the video (it is tried again once the file changes), or mend the wanted spans",
                count,
                gaps,
            )
        )
    return found


def provenance_current(uid: str, differences: Sequence[str]) -> list[Finding]:
    """A finding when a cache was made with another code version or other weights than the registry declares."""
    if not differences:
        return []
    return [
        Finding(
            "stale",
            Severity.WARN,
            uid,
            f"made with {'; '.join(differences)}",
            "rebuild it (set rebuild_stale under [dms], or force the route), or keep it knowingly",
            len(differences),
            tuple(differences[:MAX_SAMPLES]),
        )
    ]


def valid_fraction(uid: str, valid: int, rows: int, failed: Mapping[str, int], minimum: float) -> list[Finding]:
    """A finding when the share of valid rows is below `minimum` (0..1). `failed` counts the others by code name."""
    if not rows or valid / rows >= minimum:
        return []
    reasons = ", ".join(f"{count} {name}" for name, count in failed.items() if count)
    return [
        Finding(
            "few_valid_rows",
            Severity.WARN,
            uid,
            f"{valid} of {rows} rows are valid ({valid / rows:.1%} < {minimum:.1%}); the rest: {reasons or 'unknown'}",
            "look at the driver video and boxes of this route, or lower valid_fraction_min of the baseline",
            rows - valid,
        )
    ]


def routes_covered(covered: int, uncovered: Sequence[str], minimum: float) -> list[Finding]:
    """A finding when the share of wanted routes whose spans are all stored is below `minimum` (0..1)."""
    total = covered + len(uncovered)
    if not total or covered / total >= minimum:
        return []
    return [
        Finding(
            "routes_uncovered",
            Severity.ERROR,
            "the cache store",
            f"{covered} of {total} wanted routes are covered ({covered / total:.1%} < {minimum:.1%})",
            "see the route_cache of the listed routes: span_coverage names the gaps",
            len(uncovered),
            tuple(uncovered[:MAX_SAMPLES]),
        )
    ]
