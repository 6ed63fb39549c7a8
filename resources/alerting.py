"""The alert sensors: what one code location watches in the instance, turned into problems, told and delivered.

Belongs here: the Dagster side. What is news is `resources.alert_state`'s part, wording `resources.alert_text`'s,
addresses and masking `resources.delivery`'s, reading history `resources.history`'s.

What was told and what still waits is stored in the instance's database under one key, after every delivery, so that a
message comes twice only when the process dies between the two. The sensor's own cursor is not used.
"""

import datetime
import time
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from resources import history, liveness
from resources.alert_state import MAX_TEXT, Incidents, Kind, Mute, News, Policy, Problem, muted_and_not
from resources.alert_text import compose, digest
from resources.config import AlertSettings
from resources.delivery import Outbox, targets_for
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


_MEMORY = TypeAdapter(Memory)


def sensor_name(location: str) -> str:
    """The alert sensor of a location, such as `vin_assets_alerts` of `vin_assets.definitions`."""
    return f"{location.removesuffix('.definitions').replace('.', '_')}_alerts"


def _key(location: str, word: str = "state") -> str:
    return f"alerts/{location}/{word}"


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


def policy(settings: AlertSettings) -> Policy:
    """The configured policy as the domain takes it."""
    mutes = tuple(Mute(m.until, m.asset, m.check, m.partition, m.reason) for m in settings.mutes)
    return Policy(settings.repeat_hours * 3600.0, settings.settle_s, mutes)


def tick(
    instance: dg.DagsterInstance,
    watched: Watched,
    settings: AlertSettings,
    timezone: str = "UTC",
    now: float | None = None,
) -> str:
    """One evaluation: look, decide, store, deliver. Returns a line on what was done.

    Raises:
        DeliveryError: an address failed; what waits for it is stored and sent at a later tick.
    """
    now = time.time() if now is None else now
    key = _key(watched.location)
    before = history.read_value(instance, key)
    memory = _read(before)
    rules = policy(settings)
    today = datetime.datetime.fromtimestamp(now, ZoneInfo(timezone)).date()
    targets = targets_for([url.get_secret_value() for url in settings.urls], settings.file)
    found = Watcher(instance, watched, settings, memory).look(now)
    alerts = memory.incidents.step(now, today, rules, found.seen.values(), found.cleared, found.gone)
    page = f"All of them: {settings.webserver_url.rstrip('/')}/deployment/locations"
    if alerts:
        memory.outbox.put(compose(watched.location, alerts, now, settings.max_items, page), targets)
    ended = [alert for alert in alerts if alert.news in (News.GONE, News.RECOVERED)]
    over = {problem.key for alert in ended for problem in (alert.root, *alert.followers)}
    memory.failed_runs = {key: run for key, run in memory.failed_runs.items() if key not in over}
    asked = history.read_value(instance, _key(watched.location, "digest")) or ""
    if asked != memory.digest_asked:
        memory.digest_asked = asked
        failing, muted = muted_and_not(memory.incidents, rules, today)
        memory.outbox.put(digest(watched.location, failing, muted, now, settings.max_items, page), targets)

    def save() -> None:
        history.write_value(instance, key, _MEMORY.dump_json(memory).decode())

    save()
    memory.outbox.deliver(targets, save)
    failing, muted = muted_and_not(memory.incidents, rules, today)
    return f"{len(alerts)} alerts told; {len(failing)} failing, {len(muted)} muted"


def _read(text: str | None) -> Memory:
    """The stored memory; one that an incompatible version wrote is left behind, and everything is told anew."""
    if text is None:
        return Memory()
    try:
        return _MEMORY.validate_json(text)
    except ValidationError:
        return Memory()


def alert_sensor(watched: Watched, settings: AlertSettings, timezone: str = "UTC") -> dg.SensorDefinition:
    """The sensor, on by default, that tells of everything that fails in one location."""

    @dg.sensor(
        name=sensor_name(watched.location),
        minimum_interval_seconds=settings.interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells of failed checks, runs, sensors and schedules of this location, of their recovery, and of "
        "the other location when it is down. Switched off, failures are visible on the pages only.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return dg.SkipReason(tick(context.instance, watched, settings, timezone))

    return alerts


def digest_schedule(watched: Watched, settings: AlertSettings, timezone: str) -> dg.ScheduleDefinition:
    """The schedule that asks the alert sensor for a morning digest; it launches no run."""

    @dg.op(name=f"{sensor_name(watched.location)}_digest_op")
    def ask(context: dg.OpExecutionContext) -> None:
        history.write_value(context.instance, _key(watched.location, "digest"), context.run_id)

    @dg.job(
        name=f"{sensor_name(watched.location)}_digest_job",
        description="Asks for a digest of what is failing now; the alert sensor sends it at its next tick.",
    )
    def digest_job() -> None:
        ask()

    @dg.schedule(
        name=f"{sensor_name(watched.location)}_digest",
        cron_schedule=settings.digest_cron,
        execution_timezone=timezone,
        job=digest_job,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Every morning: what is failing, and what is muted until when.",
    )
    def digest_due(context: dg.ScheduleEvaluationContext) -> dg.SkipReason:
        due = context.scheduled_execution_time.isoformat()
        history.write_value(context.instance, _key(watched.location, "digest"), due)
        return dg.SkipReason("the alert sensor sends the digest at its next tick")

    return digest_due
