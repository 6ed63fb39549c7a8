"""What the VIN location does by itself: partitions in step with the disk, checks of changed stores, the nightly run.

Belongs here: sensors, schedules, and the jobs that only they and an operator launch. Does not belong here: which
stores changed and why (`changes`, `sync`), computing, and the alert sensor itself (`resources.alerting`).
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from resources import history
from resources.alerting import alert_sensor, digest_schedule
from resources.attempts import Work
from resources.belief import Belief, compare
from resources.config import Settings
from resources.events import Checked, materialisation
from resources.history import Outcome
from resources.launching import night_requests, range_requests, under_way
from resources.retention import retention_sensor
from resources.watching import Watched
from vin_assets import outcomes
from vin_assets.changes import reasons, store_version
from vin_assets.files import VinFiles
from vin_assets.jobs import store_results
from vin_assets.partitions import STORES
from vin_assets.sync import changed_stores

Job: TypeAlias = dg.JobDefinition | UnresolvedAssetJobDefinition

LOCATION = "vin_assets"
BELIEF = "belief_matches_disk"
_BATCH = 500  # partition keys added in one tick
_NAME = str(STORES.name)
_READABLE = dg.AssetCheckKey(outcomes.OFFLINE_STORE, outcomes.STORE_READABLE)
_INTEGRITY = dg.AssetCheckKey(outcomes.OFFLINE_STORE, outcomes.STORE_INTEGRITY)
_GENERATION = dg.AssetCheckKey(outcomes.STORE_STATS, outcomes.GENERATION_CURRENT)
_BELIEF = dg.AssetCheckKey(outcomes.OFFLINE_STORE, BELIEF)


class NoStoresError(Exception):
    """The store roots hold no store at all, which is an unmounted disk rather than a wish."""


def belief(files: VinFiles, instance: dg.DagsterInstance) -> Belief:
    """How recorded stores and those on the disk differ. Partitions that were retired are left out.

    Raises:
        OSError, StoreNameError: a root can't be read, or names collide.
    """
    keys = set(instance.get_dynamic_partitions(_NAME))
    recorded = {
        store: version
        for store, version in history.data_versions(instance, outcomes.OFFLINE_STORE).items()
        if store in keys
    }
    return compare(recorded, {store: store_version(files, store) for store in files.stores()})


@dg.asset_check(
    asset=outcomes.OFFLINE_STORE,
    name=BELIEF,
    description="Every store that Dagster knows is on the disk with the content it knows, and the other way round.",
)
def belief_matches_disk(
    context: dg.AssetCheckExecutionContext, vin_files: dg.ResourceParam[VinFiles]
) -> dg.AssetCheckResult:
    """Wraps `belief`; the names of the differing stores tell which alerts this one follows from."""
    found = belief(vin_files, context.op_execution_context.instance)
    roots = ", ".join(map(str, vin_files.vin.store_roots))
    told = {"partitions": found.partitions, "digest": found.digest}
    return Checked.of_findings(
        outcomes.OFFLINE_STORE, BELIEF, None, found.findings("store", roots), None, told
    ).result()


changed_checks = dg.define_asset_job(
    "vin_changed_store_checks",
    dg.AssetSelection.checks(_READABLE, _INTEGRITY, _GENERATION),
    description="Is a store that changed readable and whole, and are its statistics of what it is now?",
)
belief_job = dg.define_asset_job(
    "vin_belief",
    dg.AssetSelection.checks(_BELIEF),
    description="Compares the stores that Dagster knows with those on the disk.",
)


def _unanswered(
    instance: dg.DagsterInstance, keys: Sequence[str], versions: Mapping[str, str]
) -> dict[str, tuple[list[dg.AssetCheckKey], str]]:
    """Stores with the checks that have no answer about what is on the disk now, and the occasion to ask them.

    Each check is judged by what its own answer was about: a store may be replaced between the checks of one run, and
    a run that was requested before there were statistics answers nothing about them. An occasion is requested once. A
    check that raised is tried once more, and again when the store changes.
    """
    recorded = history.data_versions(instance, outcomes.OFFLINE_STORE)
    computed = history.latest_materialisations(instance, outcomes.STORE_STATS)
    rows = history.check_states(instance, [_READABLE, _INTEGRITY, _GENERATION])
    states = {(state.check, state.partition): state for state in rows}
    found: dict[str, tuple[list[dg.AssetCheckKey], str]] = {}
    for store in keys:
        if store not in recorded:
            continue  # its materialisation is on its way
        occasions: dict[dg.AssetCheckKey, str] = {}
        for check in [_READABLE, _INTEGRITY] + ([_GENERATION] if store in computed else []):
            state = states.get((check.name, store))
            if state is None:
                occasions[check] = "first"
            elif state.outcome is Outcome.PLANNED:
                occasions[check] = "again"
            else:
                answer = history.evaluations(instance, check, store)[0]
                if not state.current or answer.metadata.get(outcomes.STORE_VERSION) != versions[store]:
                    occasions[check] = str(state.storage_id)
        if occasions:
            found[store] = list(occasions), "/".join([versions[store], *occasions.values()])
    return found


def partition_sync(settings: Settings) -> dg.SensorDefinition:
    """The sensor that keeps partitions and recorded versions in step with the store roots."""

    @dg.sensor(
        name="vin_partition_sync",
        minimum_interval_seconds=settings.nightly.sync_interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        jobs=[changed_checks, belief_job],
        description="Adds a partition for each new store, records changed stores, and has changed ones checked. "
        "Never removes a partition: an operator retires one with the job vin_retire_stores.",
    )
    def vin_partition_sync(
        context: dg.SensorEvaluationContext, vin_files: dg.ResourceParam[VinFiles]
    ) -> dg.SensorResult | dg.SkipReason:
        """One look at the store roots.

        Raises:
            OSError, StoreNameError: a root can't be read, or names collide: the tick shows it.
            NoStoresError: there is no store at all.
        """
        instance = context.instance
        stores = vin_files.stores()
        if not stores:
            roots = ", ".join(map(str, vin_files.vin.store_roots))
            raise NoStoresError(
                f"no store below {roots}: is the disk mounted? Set [vin] store_roots if they lie elsewhere"
            )
        keys = instance.get_dynamic_partitions(_NAME)
        new = sorted(set(stores) - set(keys))[:_BATCH]
        versions = {store: store_version(vin_files, store) for store in {*stores, *keys}}
        changed = changed_stores(vin_files, history.data_versions(instance, outcomes.OFFLINE_STORE))
        changed = [item for item in changed if item.partition in keys or item.partition in new]
        requests = _check_requests(instance, keys, versions, {item.partition for item in changed})
        requests += _belief_requests(instance, belief(vin_files, instance))
        if not (new or changed or requests):
            return dg.SkipReason(f"{len(stores)} stores, nothing new")
        return dg.SensorResult(
            dynamic_partitions_requests=[STORES.build_add_request(new)] if new else [],
            asset_events=[materialisation(item) for item in changed],
            run_requests=requests,
        )

    return vin_partition_sync


def _check_requests(
    instance: dg.DagsterInstance, keys: Sequence[str], versions: Mapping[str, str], unsettled: set[str]
) -> list[dg.RunRequest]:
    """Requests of the checks whose answers are out of date; the statistics' too where there are any."""
    busy = under_way(instance, changed_checks.name, keys)
    requests = []
    for store, (checks, occasion) in _unanswered(instance, keys, versions).items():
        if store not in busy and store not in unsettled:
            requests += range_requests(changed_checks.name, keys, {store}, 1, occasion, checks=checks)
    return requests


def _belief_requests(instance: dg.DagsterInstance, found: Belief) -> list[dg.RunRequest]:
    """A request to compare anew when the last comparison told something else."""
    last = next(iter(history.evaluations(instance, _BELIEF, None)), None)
    if found.unrecorded or found.changed or (last is not None and last.metadata.get("digest") == found.digest):
        return []  # what is to be adopted is adopted first
    occasion = f"{found.digest}/{last.at if last else 0}"
    return [dg.RunRequest(run_key=f"{belief_job.name}/{occasion}", job_name=belief_job.name)]


class RetireConfig(dg.Config):
    """The stores to retire, by name."""

    stores: list[str]


@dg.op
def retire_stores(context: dg.OpExecutionContext, config: RetireConfig, vin_files: dg.ResourceParam[VinFiles]) -> None:
    """Remove partitions whose stores are gone for good; their history stays, and shows again if one comes back."""
    present = sorted(set(config.stores) & set(vin_files.stores()))
    unknown = sorted(set(config.stores) - set(context.instance.get_dynamic_partitions(_NAME)))
    if present or unknown:
        raise dg.Failure(
            f"nothing was retired: still on the disk (move them away first): {present}; no such partition: {unknown}",
            allow_retries=False,
        )
    for store in config.stores:
        context.instance.delete_dynamic_partition(_NAME, store)
        context.log.info(f"retired {store}")


@dg.job(name="vin_retire_stores", description="Retires the partitions of stores that are gone for good.")
def retire_job() -> None:
    """The only way in which a store's partition goes."""
    retire_stores()


def nightly(settings: Settings) -> dg.ScheduleDefinition:
    """The schedule that computes stores whose generation or raw tars changed."""

    @dg.schedule(
        name="vin_nightly",
        cron_schedule=settings.nightly.vin_cron,
        execution_timezone=settings.nightly.timezone,
        job=store_results,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Computes stores whose generation or raw tars changed since their last result, and no other.",
    )
    def vin_nightly(
        context: dg.ScheduleEvaluationContext, vin_files: dg.ResourceParam[VinFiles]
    ) -> list[dg.RunRequest] | dg.SkipReason:
        instance = context.instance
        computed = set(history.latest_materialisations(instance, outcomes.STORE_STATS))
        computed &= set(history.latest_materialisations(instance, outcomes.STORE_COVERAGE))
        why = reasons(vin_files, computed)
        work = [Work(store, f"{store_version(vin_files, store)}/{'; '.join(text)}") for store, text in why.items()]
        night = settings.nightly
        keys = instance.get_dynamic_partitions(_NAME)
        requests, choice = night_requests(
            context, store_results.name, keys, work, night.max_routes, night.range_size, night.attempts
        )
        return requests or dg.SkipReason(f"nothing to compute; {len(choice.given_up)} given up")

    return vin_nightly


def watched() -> Watched:
    """The location's checks from cause to consequence."""
    stats, coverage = outcomes.STORE_STATS, outcomes.STORE_COVERAGE
    return Watched(
        location=LOCATION,
        checks=[
            _READABLE,
            _INTEGRITY,
            _GENERATION,
            dg.AssetCheckKey(stats, outcomes.LABELS_USABLE),
            dg.AssetCheckKey(stats, outcomes.DRIFT),
            dg.AssetCheckKey(coverage, outcomes.TARS_READABLE),
            dg.AssetCheckKey(coverage, outcomes.RAW_COVERAGE),
            _BELIEF,
            dg.AssetCheckKey(outcomes.OFFLINE_STORE, "configuration"),
        ],
        blocking=[_READABLE],
        whole=[_BELIEF, dg.AssetCheckKey(outcomes.OFFLINE_STORE, "configuration")],
        partitions=_NAME,
        neighbour="dms_assets",
    )


CHECKS = [belief_matches_disk]
JOBS: list[Job] = [changed_checks, belief_job, retire_job]


def sensors(settings: Settings) -> list[dg.SensorDefinition]:
    """The location's sensors."""
    return [
        partition_sync(settings),
        alert_sensor(watched(), settings.alerts, settings.nightly.timezone),
        retention_sensor(LOCATION, settings.nightly),
    ]


def schedules(settings: Settings) -> list[dg.ScheduleDefinition]:
    """The location's schedules."""
    return [nightly(settings), digest_schedule(watched(), settings.alerts, settings.nightly.timezone)]
