"""The alert sensors and the morning digest: look, decide what is news, store it, deliver it.

Belongs here: the order of these steps, and their Dagster definitions. What is seen is `resources.watching`'s part,
what is news `resources.alert_state`'s, wording `resources.alert_text`'s, addresses `resources.delivery`'s.

What was told and what still waits is stored in the instance's database under one key, after every delivery, so that a
message comes twice only when the process dies between the two. The sensor's own cursor is not used.
"""

import datetime
import time
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from resources import history
from resources.alert_state import Mute, News, Policy, muted_and_not
from resources.alert_text import compose, digest
from resources.config import AlertSettings
from resources.delivery import targets_for
from resources.watching import Memory, Watched, Watcher, sensor_name

_MEMORY = TypeAdapter(Memory)


def _key(location: str, word: str = "state") -> str:
    return f"alerts/{location}/{word}"


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
