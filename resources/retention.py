"""Old runs that nothing leans on any more are removed, so that an instance that works every night is bounded.

Belongs here: which runs may go, and the sensor that removes a few at a time. Does not belong here: the retention of
ticks (the instance's own configuration), of results (`resources.results`) and of files moved aside (the cache store).

Dagster forgets what a partition holds when the run that recorded it is deleted. So a run stays, however old, while any
of its materialisations or check answers is the latest one of its partition.
"""

import datetime

import dagster as dg

from resources import history
from resources.config import NightlySettings
from resources.liveness import location_of

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_LOOKED_AT = 50  # runs of one tick, which may take a minute


def removable(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether all that a run recorded was recorded anew since, so that nothing is lost with it."""
    for asset, partition in history.run_materialisations(instance, run_id):
        wanted = dg.AssetRecordsFilter(asset, asset_partitions=None if partition is None else [partition])
        latest = instance.fetch_materializations(wanted, limit=1).records
        if not latest or latest[0].run_id == run_id:
            return False
    answered, planned = history.run_checks(instance, run_id)
    for check, partition in answered:
        if any(answer.run_id == run_id for answer in history.evaluations(instance, check, partition)):
            return False
    return all(state.run_id != run_id for state in history.check_states(instance, planned))


def remove_old_runs(
    instance: dg.DagsterInstance, location: str, before: datetime.datetime, after: datetime.datetime | None = None
) -> tuple[int, datetime.datetime | None]:
    """Look at some of the location's runs that were made between `after` and `before`, oldest first.

    Returns how many were removed, and where to go on the next time (None: from the beginning).
    """
    filters = dg.RunsFilter(statuses=_ENDED, created_before=before, created_after=after)
    records = instance.get_run_records(filters, limit=_LOOKED_AT, ascending=True)
    removed = 0
    for record in records:
        run = record.dagster_run
        if location_of(run) in (location, None) and removable(instance, run.run_id):
            instance.delete_run(run.run_id)
            removed += 1
    whole = len(records) < _LOOKED_AT
    return removed, None if whole else records[-1].create_timestamp.replace(tzinfo=datetime.UTC)


def retention_sensor(location: str, settings: NightlySettings) -> dg.SensorDefinition:
    """The sensor, on by default, that removes what is older than configured."""

    @dg.sensor(
        name=f"{location}_retention",
        minimum_interval_seconds=3600,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Removes runs of this location that are older than {settings.keep_runs_days:g} days, and whose "
        "materialisations and check answers were all renewed since. What a partition shows is never removed.",
    )
    def retention(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=settings.keep_runs_days)
        after = datetime.datetime.fromisoformat(context.cursor) if context.cursor else None
        removed, place = remove_old_runs(context.instance, location, before, after)
        context.update_cursor(place.isoformat() if place else "")
        return dg.SkipReason(f"{removed} old runs removed")

    return retention
