"""What one code location's alert sensor sees in an instance: failed checks, runs, sensors, the other location.

Belongs here: looking, and turning what is seen into problems. Does not belong here: what of it is news
(`resources.alert_state`), telling it (`resources.alerting`), reading history (`resources.history`).
"""

import datetime
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import dagster as dg

from resources import history, liveness
from resources.alert_state import MAX_TEXT, Incidents, Kind, Problem
from resources.config import AlertSettings
from resources.delivery import Outbox
from resources.findings import Severity
from resources.history import CheckState, Outcome
from resources.liveness import EndedRun, Instigator

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)
_OVERLAP = 200  # event ids read again: on PostgreSQL a lower id may be committed after a higher one
_RUN_OVERLAP_S = 10.0
_FAILED_TEXTS = 50  # per run: why each partition failed


@dataclass(frozen=True)
class Watched:
    """What one location's sensor watches.

    `checks` are given in causal order: an earlier one is nearer to the cause. While a `blocking` one fails, anything
    else on the same partition and family follows from it. `whole` are those without partitions: what a run over
    several partitions says in sum of the others is no answer of its own. `partitions` is the name of the dynamic
    partitions whose keys are watched. `neighbour` is the other location, whose alert sensor is expected to tick.
    """

    location: str
    checks: Sequence[dg.AssetCheckKey]
    blocking: Collection[dg.AssetCheckKey] = ()
    whole: Collection[dg.AssetCheckKey] = ()
    partitions: str | None = None
    neighbour: str | None = None


@dataclass(slots=True)
class Memory:
    """What a sensor remembers from tick to tick. Times are seconds since 1970."""

    incidents: Incidents = field(default_factory=Incidents)
    outbox: Outbox = field(default_factory=Outbox)
    cursor: int = 0
    unanswered: dict[str, int] = field(default_factory=dict)  # run id -> event id of its first open check
    runs_after: float = 0.0
    failed_runs: dict[str, EndedRun] = field(default_factory=dict)  # by problem key
    awake_since: float = 0.0
    ticked: float = 0.0
    digest_asked: str = ""


def sensor_name(location: str) -> str:
    """The alert sensor of a location, such as `vin_assets_alerts` of `vin_assets.definitions`."""
    return f"{location.removesuffix('.definitions').replace('.', '_')}_alerts"


@dataclass
class Found:
    """What a look at the instance brought: problems, keys that are fine, keys that are watched no longer."""

    seen: dict[str, Problem] = field(default_factory=dict)
    cleared: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def problem(self, problem: Problem) -> None:
        """Note a problem; it is no longer counted as fine."""
        self.seen[problem.key] = problem
        self.cleared.discard(problem.key)


class Watcher:
    """Looks at one instance for one location."""

    def __init__(self, instance: dg.DagsterInstance, watched: Watched, settings: AlertSettings, memory: Memory) -> None:
        self._instance = instance
        self._watched = watched
        self._settings = settings
        self._memory = memory
        self._rank = {key: rank for rank, key in enumerate(watched.checks, start=1)}
        self._names = {(key.asset_key.to_user_string(), key.name): key for key in watched.checks}
        self._base = settings.webserver_url.rstrip("/")
        self._why: dict[str, tuple[str, Mapping[str, str]]] = {}
        self._known = {problem.key: problem for problem in memory.incidents.problems()}

    def look(self, now: float) -> Found:
        """Everything since the last look. Raises what the storage raises; then nothing of it counts as seen."""
        found = Found()
        self._checks(found)
        self._runs(found, now)
        self._instigators(found, now)
        return found

    def _link(self, *parts: str, **query: str) -> str:
        path = "/".join(urllib.parse.quote(part, safe="/@") for part in parts)
        return f"{self._base}/{path}" + ("?" + urllib.parse.urlencode(query) if query else "")

    # Checks

    def _checks(self, found: Found) -> None:
        memory, watched = self._memory, self._watched
        newest = history.newest_event(self._instance)
        known = None if watched.partitions is None else set(self._instance.get_dynamic_partitions(watched.partitions))
        for problem in self._known.values():
            retired = problem.partition and known is not None and problem.partition not in known
            if problem.check and (retired or (problem.asset, problem.check) not in self._names):
                found.gone.add(problem.key)
        if newest == memory.cursor and not memory.unanswered:
            return
        after = min([memory.cursor - _OVERLAP, *(first - 1 for first in memory.unanswered.values())])
        states = history.check_states(self._instance, watched.checks, after=max(after, 0))
        whole = {(key.asset_key.to_user_string(), key.name) for key in watched.whole}
        states = [s for s in states if (s.partition is None) == ((s.asset, s.check) in whole)]
        if known is not None:
            states = [state for state in states if state.partition is None or state.partition in known]
        planned = {state.run_id for state in states if state.outcome is Outcome.PLANNED}
        statuses = liveness.run_statuses(self._instance, sorted(planned))
        unanswered: dict[str, int] = {}
        for state in states:
            status = statuses.get(state.run_id)
            if state.outcome is not Outcome.PLANNED or status in _ENDED:
                self._check(state, found)
            elif status is not None and status is not dg.DagsterRunStatus.CANCELED:
                unanswered[state.run_id] = min(unanswered.get(state.run_id, state.storage_id), state.storage_id)
        memory.cursor, memory.unanswered = newest, unanswered

    def _check(self, state: CheckState, found: Found) -> None:
        key = f"check:{state.asset}:{state.check}:{state.partition or ''}"
        if state.outcome is Outcome.PASSED:
            found.cleared.add(key)
            return
        before = self._known.get(key)
        if before is not None and before.version == state.storage_id:
            return
        check = self._names[(state.asset, state.check)]
        partition = state.partition or ""
        family = state.asset.rpartition("/")[0] or state.asset
        problem = Problem(
            key=key,
            kind=Kind.COULD_NOT_RUN,
            subject=partition or family,
            family=family,
            asset=state.asset,
            check=state.check,
            partition=partition,
            rank=self._rank[check],
            version=state.storage_id,
            run_id=state.run_id,
        )
        if state.outcome is Outcome.PLANNED:
            text, by_partition = self._failure(state.run_id)
            found.problem(
                replace(
                    problem,
                    cause=True,
                    text=(by_partition.get(partition) or text or "its run ended without an answer")[:MAX_TEXT],
                    how_to_fix="Read the run's log, remove the cause, then launch the partition again.",
                    link=self._link("runs", state.run_id),
                )
            )
            return
        answers = history.evaluations(self._instance, check, state.partition)
        if not answers or answers[0].passed:
            return
        answer = answers[0]
        fix = answer.metadata.get("how_to_fix")
        about = answer.metadata.get("partitions")
        found.problem(
            replace(
                problem,
                kind=Kind.CHECK,
                severity=Severity.WARN if answer.severity == "WARN" else Severity.ERROR,
                cause=check in self._watched.blocking,
                text=answer.description[:MAX_TEXT],
                how_to_fix=" ".join(str(fix).replace("\n- ", "; ").removeprefix("- ").split())[:MAX_TEXT]
                if fix
                else "",
                link=self._link("assets", state.asset, view="checks", checkDetail=state.check),
                about=tuple(map(str, about[:50])) if isinstance(about, (list, tuple)) else (),
            )
        )

    def _failure(self, run_id: str) -> tuple[str, Mapping[str, str]]:
        if run_id not in self._why:
            self._why[run_id] = (
                history.run_failure(self._instance, run_id),
                history.failed_partitions(self._instance, run_id, _FAILED_TEXTS),
            )
        return self._why[run_id]

    # Runs

    def _runs(self, found: Found, now: float) -> None:
        memory = self._memory
        if not memory.runs_after:
            memory.runs_after = now - 24 * 3600.0  # older failures are history, not news
        explained = {p.run_id for p in (*found.seen.values(), *self._known.values()) if p.cause}
        ended = liveness.ended_runs(self._instance, self._watched.location, memory.runs_after - _RUN_OVERLAP_S)
        for run in ended:
            memory.runs_after = max(memory.runs_after, run.ended_at)
            if run.succeeded:
                for key in [key for key, failed in memory.failed_runs.items() if _later(run, failed)]:
                    found.cleared.add(key)
                    found.seen.pop(key, None)
                    del memory.failed_runs[key]
                continue
            key = f"run:{run.job}:{','.join(run.assets)[:200]}:{run.first}:{run.last}"
            known = memory.failed_runs.get(key)
            if run.run_id in explained or (known and known.ended_at >= run.ended_at):
                continue
            memory.failed_runs[key] = run
            name = f"{run.first} to {run.last}" if run.last != run.first else run.first
            text, by_partition = self._failure(run.run_id)
            reasons = "; ".join(f"{key}: {reason}" for key, reason in list(by_partition.items())[:3])
            found.problem(
                Problem(
                    key=key,
                    kind=Kind.RUN,
                    subject=run.first if run.first and run.first == run.last else key,
                    family=run.assets[0].rpartition("/")[0] if run.assets else "",
                    asset=", ".join(run.assets[:3]) or run.job,
                    partition=name,
                    text=(reasons or text)[:MAX_TEXT],
                    how_to_fix="Read the run's log, remove the cause, then launch it again.",
                    link=self._link("runs", run.run_id),
                    run_id=run.run_id,
                    about=tuple(by_partition)[:50],
                )
            )

    # Sensors, schedules, the other location

    def _instigators(self, found: Found, now: float) -> None:
        memory, watched = self._memory, self._watched
        if now - memory.ticked > self._settings.watch_s:
            memory.awake_since = now  # everything was down, not only the neighbour
        memory.ticked = now
        own = sensor_name(watched.location)
        neighbour = None
        for item in liveness.instigators(self._instance):
            if watched.neighbour and (item.location, item.name) == (watched.neighbour, sensor_name(watched.neighbour)):
                neighbour = item
            if item.location != watched.location or item.name == own:
                continue
            key = f"{item.kind}:{item.location}:{item.name}"
            if not (item.running and item.failed):
                found.cleared.add(key)
                continue
            kinds = "schedules" if item.kind == "schedule" else "sensors"
            found.problem(
                Problem(
                    key=key,
                    kind=Kind.INSTIGATOR,
                    subject=key,
                    asset=f"{item.kind} {item.name}",
                    text=item.error,
                    how_to_fix="Its page shows the ticks with their errors; what it does not do is not done by others.",
                    link=self._link("locations", f"__repository__@{item.location}", kinds, item.name),
                )
            )
        if watched.neighbour:
            self._neighbour(watched.neighbour, neighbour, found, now)

    def _neighbour(self, location: str, sensor: Instigator | None, found: Found, now: float) -> None:
        key = f"location:{location}"
        good_at = sensor.good_at if sensor else None
        seen = max(self._memory.awake_since, good_at or 0.0)
        error = (liveness.location_errors(self._base) or {}).get(location, "")
        if sensor is not None and not sensor.running:
            text = f"its alert sensor {sensor.name} is switched off, so nothing tells of its failures"
        elif now - seen > self._settings.watch_s:
            since = _utc(good_at) if good_at else "it was first expected"
            text = (
                f"no good tick of its alert sensor since {since}. {error or (sensor.error if sensor else '')}".strip()
            )
        elif error:
            text = f"it does not load in the webserver: {error}"
        else:
            if good_at and now - good_at <= self._settings.watch_s:
                found.cleared.add(key)
            return
        found.problem(
            Problem(
                key=key,
                kind=Kind.LOCATION,
                subject=key,
                asset=location,
                text=text[:MAX_TEXT],
                how_to_fix="Repair what its error names, then reload the location; `make health` shows what is alive.",
                link=self._link("deployment", "locations"),
            )
        )


def _later(run: EndedRun, failed: EndedRun) -> bool:
    return run.ended_at >= failed.ended_at and run.covers(failed)


def _utc(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
