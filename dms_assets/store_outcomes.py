"""What a whole cache store yields: the sweep of a baseline, its coverage and statistics, and the overview of all.

Belongs here: the order of domain calls, and which number is shown. Does not belong here: one route (`outcomes`),
reading caches (`sweep`), deciding on states (`plan`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dms_assets import figures, judgement
from dms_assets.baselines import Baseline
from dms_assets.cache_file import Header
from dms_assets.contract import HZ
from dms_assets.files import DmsFiles
from dms_assets.plan import Policy, RoutePlan, State, Stored, plan
from dms_assets.spans import Ticks, count_ticks, from_runs
from dms_assets.sweep import sweep
from dms_assets.sweep_result import IDENTITY, SweepResult, SweepResultError, read_result
from resources.events import Checked
from resources.figures import markdown, svg
from resources.files import Identity
from resources.findings import Severity
from resources.metadata import MAX_ROWS, metadata, table
from resources.results import plain

OVERVIEW = dg.AssetKey(["dms", "overview"])
ROUTES_COVERED = "routes_covered"


def coverage_key(baseline: str) -> dg.AssetKey:
    """The asset key of a baseline's coverage."""
    return dg.AssetKey(["dms", baseline, "coverage"])


def stats_key(baseline: str) -> dg.AssetKey:
    """The asset key of a baseline's statistics."""
    return dg.AssetKey(["dms", baseline, "stats"])


def _swept(baseline: str) -> str:
    return f"dms/{baseline}/sweep"


def known_sweep(files: DmsFiles, baseline: str) -> SweepResult | None:
    """The result of the last sweep; None when there is none that can be used."""
    try:
        return read_result(files.output, _swept(baseline), baseline)
    except SweepResultError:
        return None


def swept(files: DmsFiles, baseline: Baseline) -> SweepResult:
    """Sweep a baseline's caches, opening only what changed since the last sweep, and keep the result.

    Raises:
        OSError, WantedTableError: the cache root or the wanted-spans table can't be read.
    """
    wanted = files.wanted()
    result = sweep(
        files.caches,
        baseline.name,
        wanted.spans,
        wanted_digest=wanted.digest,
        lead_in=0 if baseline.external else baseline.lead_in,
        known=known_sweep(files, baseline.name),
    )
    result.publish(files.output, _swept(baseline.name))
    return result


def planned(files: DmsFiles, baseline: Baseline, result: SweepResult) -> list[RoutePlan]:
    """The plan of every route, from what the sweep knows; only files that changed since are opened.

    Raises:
        OSError, WantedTableError: a root or the wanted-spans table can't be read.
    """
    return plan(
        baseline,
        files.wanted().spans,
        caches=files.caches,
        videos=None if baseline.external else files.videos,
        policy=Policy(rebuild_stale=files.dms.rebuild_stale, settle_s=files.dms.settle_s),
        known=_stored(result),
    )


def _stored(result: SweepResult) -> dict[str, Stored]:
    spans = result.table("spans")
    held = spans[spans["what"] == "stored"]
    runs: dict[str, Ticks] = {
        str(uid): part[["first", "last"]].to_numpy(np.int64) for uid, part in held.groupby("uid", sort=False)
    }
    errors = result.table("findings")
    errors = errors[errors["severity"] == Severity.ERROR]
    texts = {str(uid): str(part["text"].iloc[0]) for uid, part in errors.groupby("uid", sort=False)}
    codes = {str(uid): tuple(sorted(set(part["code"]))) for uid, part in errors.groupby("uid", sort=False)}
    found = {}
    for row in result.files.to_dict("records"):
        uid = str(row["uid"])
        identity = Identity(*(int(row[name]) for name in IDENTITY))
        match row["state"]:
            case "valid":
                header = Header(
                    uid,
                    row["kind"],
                    int(row["rows"]),
                    from_runs(runs.get(uid, np.zeros((0, 2), np.int64))),
                    json.loads(row["meta"]),
                )
                found[uid] = Stored(identity, header)
            case "invalid":
                found[uid] = Stored(identity, invalid=codes.get(uid, ()))
            case "unreadable":
                found[uid] = Stored(identity, unreadable=texts.get(uid, ""))
    return found


def coverage(files: DmsFiles, baseline: Baseline, result: SweepResult) -> dg.MaterializeResult[Any]:
    """Which wanted spans of which routes are stored, published and told."""
    rows = _coverage_rows(planned(files, baseline, result))
    totals = result.totals
    document = {"baseline": baseline.name, "wanted": result.wanted, "routes": rows}
    published = files.publish(f"{baseline.name}/coverage", document, {"routes": pd.DataFrame(rows)} if rows else {})
    wanted = [row for row in rows if row["wanted_s"]]
    uncovered = [row for row in wanted if not _is_covered(row)]
    told = {
        "routes_wanted": len(wanted),
        "routes_covered": len(wanted) - len(uncovered),
        "wanted_s": sum(row["wanted_s"] for row in rows),
        "missing_s": sum(row["missing_s"] for row in rows),
        "beyond_video_s": sum(row["beyond_video_s"] for row in rows),
        "files": totals["files"],
        "files_opened": result.read,
        "uncovered": table(uncovered),
        "files_by_state": totals["files_by_state"],
        "findings_by_code": totals["findings_by_code"],
        "result": published.folder,
    }
    return dg.MaterializeResult(
        asset_key=coverage_key(baseline.name), metadata=metadata(told), data_version=dg.DataVersion(published.version)
    )


def _coverage_rows(found: Sequence[RoutePlan]) -> list[dict[str, Any]]:
    return [
        {
            "uid": one.uid,
            "state": str(one.state),
            "wanted_s": one.wanted_ticks / HZ,
            "missing_s": count_ticks(one.missing) / HZ,
            "beyond_video_s": count_ticks(one.beyond) / HZ,
            "why": one.why,
        }
        for one in found
    ]


def _is_covered(row: Mapping[str, Any]) -> bool:
    """Whether everything wanted is stored, be it of another code version."""
    return row["state"] in (State.COVERED, State.STALE) and not row["missing_s"] and not row["beyond_video_s"]


def routes_covered(files: DmsFiles, baseline: Baseline) -> Checked:
    """The check on the share of wanted routes whose spans are all stored; reads the last published coverage.

    Raises:
        LookupError: none was published yet.
    """
    document = files.latest(f"{baseline.name}/coverage")
    if document is None:
        raise LookupError(f"dms/{baseline.name}/coverage was never materialised; materialise it first")
    wanted = [row for row in document["routes"] if row["wanted_s"]]
    uncovered = [row for row in wanted if not _is_covered(row)]
    minimum = files.dms.routes_covered_min
    found = judgement.routes_covered(len(wanted) - len(uncovered), [row["uid"] for row in uncovered], minimum)
    routes = [row["uid"] for row in uncovered]
    told = {"routes_wanted": len(wanted), "uncovered": table(uncovered), "partitions": routes[:MAX_ROWS]}
    return Checked.of_findings(
        coverage_key(baseline.name), ROUTES_COVERED, None, found, {"routes_covered_min": minimum}, told
    )


def stats(files: DmsFiles, baseline: Baseline, result: SweepResult) -> dg.MaterializeResult[Any]:
    """Failure codes, channels and runtime over every file of a baseline, published and told."""
    totals = result.totals
    before = files.latest(f"{baseline.name}/stats")
    channels = sorted(set(result.table("channels")["channel"]))
    drawn: dict[str, figures.ChannelHistogram] = {}
    histograms = {}
    for name in channels[:64]:
        if (found := result.histogram(name)) is not None:
            counts, edges = found
            histograms[name] = {"counts": counts.tolist(), "edges": edges.tolist()}
            drawn[name] = figures.ChannelHistogram(counts, edges, _previous(before, name, edges))
    failed = {**totals["failures"], "ok": totals["rows"] - sum(totals["failures"].values())}
    pictures = {
        "failure_codes": figures.failure_codes({baseline.name: failed}),
        "channels": figures.channel_histograms(baseline.name, drawn),
    }
    document = {"totals": totals, "histograms": histograms}
    published = files.publish(
        f"{baseline.name}/stats", document, {}, {f"{name}.svg": svg(figure) for name, figure in pictures.items()}
    )
    told = {
        "figures": dg.MetadataValue.md(markdown(list(pictures.values()))),
        "files": totals["files"],
        "rows": totals["rows"],
        "valid_fraction": totals["valid_fraction"],
        "failures": totals["failures"],
        "runtime_ms": totals["runtime_ms"],
        "result": published.folder,
    }
    return dg.MaterializeResult(
        asset_key=stats_key(baseline.name), metadata=metadata(told), data_version=dg.DataVersion(published.version)
    )


def _previous(document: Mapping[str, Any] | None, channel: str, edges: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """The counts of the result before between the present edges, values taken to lie evenly within its own bins."""
    before = (document or {}).get("histograms", {}).get(channel)
    if before is None:
        return None
    cumulated = np.concatenate([[0.0], np.cumsum(before["counts"])])
    counts: NDArray[np.int64] = np.rint(np.diff(np.interp(edges, before["edges"], cumulated))).astype(np.int64)
    return counts


def overview(files: DmsFiles, baselines: Sequence[Baseline]) -> dg.MaterializeResult[Any]:
    """Every baseline and route in one picture and one table, from the coverage published last."""
    states: dict[str, dict[str, str]] = {}
    covered: dict[str, dict[str, float]] = {}
    for baseline in baselines:
        document = files.latest(f"{baseline.name}/coverage") or {"routes": []}
        states[baseline.name] = {row["uid"]: row["state"] for row in document["routes"]}
        covered[baseline.name] = {row["uid"]: _share(row) for row in document["routes"]}
    rows = [
        {"uid": uid, **{name: found.get(uid, "") for name, found in states.items()}}
        for uid in sorted({uid for found in states.values() for uid in found})
    ]
    picture = figures.coverage_matrix(states, covered)
    tables = {"routes": pd.DataFrame(rows)} if rows else {}
    published = files.publish(
        "overview", plain({"states": states, "covered": covered}), tables, {"matrix.svg": svg(picture)}
    )
    open_rows = [row for row in rows if any(row[name] not in ("", State.COVERED) for name in states)]
    told = {
        "figures": dg.MetadataValue.md(markdown([picture])),
        "routes": len(rows),
        "baselines": len(states),
        "not_covered": table(open_rows),
        "result": published.folder,
    }
    return dg.MaterializeResult(
        asset_key=OVERVIEW, metadata=metadata(told), data_version=dg.DataVersion(published.version)
    )


def _share(row: Mapping[str, Any]) -> float:
    unmet = row["missing_s"] + row["beyond_video_s"]
    return 1.0 - unmet / row["wanted_s"] if row["wanted_s"] else 1.0
