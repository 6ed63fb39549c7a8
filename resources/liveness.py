"""Who is alive: daemons, sensors, schedules, code locations, and the runs that ended. It reads and judges nothing.

Shared by the alert sensors (`resources.watching`) and the health command (`resources.health`). The event log is
`resources.history`'s part.
"""

from __future__ import annotations

import datetime
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorState, InstigatorTick, TickStatus
from dagster._core.storage.tags import WILL_RETRY_TAG

_PARTITION = "dagster/partition"
_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")

LOCATION_TAG = "launched_for"  # names the code location of a run that is launched outside the webserver and daemon


@dataclass(frozen=True, slots=True)
class Instigator:
    """A sensor or schedule that the daemon has seen. Times are seconds since 1970; None: never.

    `failed` tells whether its last finished tick ended in an error, which `error` holds; `good_at` is its last tick
    that did not.
    """

    location: str
    name: str
    kind: str
    running: bool
    tick_at: float | None
    good_at: float | None
    failed: bool
    error: str


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run of one location that ended. `assets` are the keys it was asked for; `first` and `last` its partitions.

    `last` equals `first` for one partition; both are "" without partitions.
    """

    run_id: str
    job: str
    assets: tuple[str, ...]
    first: str
    last: str
    succeeded: bool
    ended_at: float

    def covers(self, other: EndedRun) -> bool:
        """Whether this run did again what `other` was to do: the same job or its assets, and some of its partitions."""
        same = set(other.assets) <= set(self.assets) if other.assets else self.job == other.job
        if not other.first:
            return same and not self.first
        return same and bool(self.first) and self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Daemon:
    """One of the daemon's loops; `age_s` is None when it never gave a sign of life."""

    name: str
    healthy: bool
    age_s: float | None
    errors: tuple[str, ...]


def _last(instance: dg.DagsterInstance, state: InstigatorState, *statuses: TickStatus) -> InstigatorTick | None:
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1, statuses=list(statuses))
    return ticks[0] if ticks else None


def instigators(instance: dg.DagsterInstance) -> list[Instigator]:
    """Every sensor and schedule that the daemon has seen, sorted by location and name."""
    found = []
    for state in instance.all_instigator_state():
        good = _last(instance, state, TickStatus.SUCCESS, TickStatus.SKIPPED)
        bad = _last(instance, state, TickStatus.FAILURE)
        failed = bad is not None and (good is None or bad.timestamp > good.timestamp)
        times = [tick.timestamp for tick in (good, bad) if tick]
        error = bad.tick_data.error if failed and bad else None
        found.append(
            Instigator(
                location=state.origin.location_name,
                name=state.instigator_name,
                kind=state.instigator_type.value.lower(),
                running=state.is_running,
                tick_at=max(times) if times else None,
                good_at=good.timestamp if good else None,
                failed=failed,
                error=" ".join(error.message.split())[:500] if error else "",
            )
        )
    return sorted(found, key=lambda item: (item.location, item.name))


def daemons(instance: dg.DagsterInstance, now: float) -> list[Daemon]:
    """The loops of the daemon that this instance needs."""
    found = []
    for name, status in sorted(instance.get_daemon_statuses().items()):
        if not status.required:
            continue
        beat = status.last_heartbeat
        errors = tuple(" ".join(error.message.split())[:300] for error in (beat.errors or ())) if beat else ()
        age = None if beat is None else now - beat.timestamp
        found.append(Daemon(name, bool(status.healthy), age, errors))
    return found


def _ended(record: dg.RunRecord) -> EndedRun:
    run = record.dagster_run
    tags = run.tags
    single = tags.get(_PARTITION, "")
    return EndedRun(
        run_id=run.run_id,
        job=run.job_name,
        assets=tuple(sorted(key.to_user_string() for key in run.asset_selection or ())),
        first=tags.get(_RANGE[0], single),
        last=tags.get(_RANGE[1], single),
        succeeded=run.status is dg.DagsterRunStatus.SUCCESS,
        ended_at=record.update_timestamp.replace(tzinfo=datetime.UTC).timestamp(),
    )


def location_of(run: dg.DagsterRun) -> str | None:
    """The code location that a run belongs to; None when nothing says so."""
    origin = run.remote_job_origin
    return origin.location_name if origin is not None else run.tags.get(LOCATION_TAG)


def ended_runs(instance: dg.DagsterInstance, location: str, after: float, limit: int = 500) -> list[EndedRun]:
    """Runs of `location` that succeeded, or failed for good (no retry is coming), since `after`; oldest first.

    Runs that were launched without a code location, as `dagster.materialize` does, count as everybody's unless they
    carry LOCATION_TAG.
    """
    filters = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE],
        updated_after=datetime.datetime.fromtimestamp(max(after, 0.0), datetime.UTC),
    )
    records = instance.get_run_records(filters, limit=limit, order_by="update_timestamp", ascending=True)
    found = []
    for record in records:
        if location_of(record.dagster_run) not in (location, None):
            continue
        if record.dagster_run.tags.get(WILL_RETRY_TAG) == "true":
            continue
        found.append(_ended(record))
    return found


def run_statuses(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> dict[str, dg.DagsterRunStatus]:
    """The status of each of these runs that exists."""
    wanted = list(run_ids)
    found: dict[str, dg.DagsterRunStatus] = {}
    for start in range(0, len(wanted), 100):
        runs = instance.get_runs(dg.RunsFilter(run_ids=wanted[start : start + 100]))
        found |= {run.run_id: run.status for run in runs}
    return found


_LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries {
    name loadStatus locationOrLoadError { __typename ... on PythonError { message } } } } } }"""


def location_errors(webserver: str, timeout: float = 5.0) -> dict[str, str] | None:
    """What the webserver says of each code location: "" when it is loaded, else why not. None: it does not answer."""
    request = urllib.request.Request(
        webserver.rstrip("/") + "/graphql",
        json.dumps({"query": _LOCATIONS}).encode(),
        {"Content-Type": "application/json"},
    )
    if request.type not in ("http", "https"):
        return None
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            entries = json.load(answer)["data"]["workspaceOrError"]["locationEntries"]
    except (OSError, ValueError, KeyError, TypeError):  # unreachable, or no Dagster webserver
        return None
    found = {}
    for entry in entries:
        loaded = entry["locationOrLoadError"] or {}
        broken = loaded.get("__typename") == "PythonError"
        found[str(entry["name"])] = " ".join(str(loaded.get("message")).split())[-500:] if broken else ""
    return found
