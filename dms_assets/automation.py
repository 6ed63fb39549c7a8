"""What the DMS location does by itself: partitions in step with the disk and the table, adoption, the nightly runs.

Belongs here: sensors, schedules, and the jobs that only they and an operator launch. Does not belong here: what
deserves work (`plan`), what has to be judged again (`reconcile`), judging (`outcomes`), the alert sensor itself
(`resources.alerting`).
"""

import hashlib
import itertools
from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from dms_assets import outcomes, store_outcomes, sync
from dms_assets.baselines import Baseline
from dms_assets.extraction.video import list_videos
from dms_assets.files import DmsFiles
from dms_assets.news import ABSENT, known_answers, news, without_empty_passes
from dms_assets.partitions import UIDS
from dms_assets.plan import Policy, State, Work, fingerprint
from dms_assets.plan import plan as plans
from dms_assets.reconcile import Ledger, entry_of, on_disk, pending
from resources import attempts, history
from resources.alerting import alert_sensor, digest_schedule
from resources.belief import Belief, compare
from resources.config import Settings
from resources.disk import require_free
from resources.events import Checked, Happened, Materialised, materialisation, record
from resources.launching import is_done_or_running, is_running, night_requests
from resources.retention import retention_sensor
from resources.watching import Watched

LOCATION = "dms_assets"
BELIEF = "belief_matches_disk"
_BATCH = 500  # partition keys, and events on inputs, of one tick
_SAVE_EVERY = 200  # routes between two savings of the ledger
_NAME = str(UIDS.name)
_LEDGER = TypeAdapter(Ledger)
_INPUTS = {key.path[-1]: key for key in (outcomes.DRIVER_VIDEO, outcomes.DRIVER_BOXES, outcomes.ANCHOR_SPANS)}


class NoRoutesError(Exception):
    """Neither the table nor the cache store names a route, which is an unmounted disk rather than a wish."""


def read_ledger(instance: dg.DagsterInstance, baseline: str) -> Ledger:
    """The ledger of a baseline; empty when nothing usable is stored, and everything is judged again."""
    text = history.read_value(instance, f"ledger/{baseline}")
    try:
        return _LEDGER.validate_json(text) if text else Ledger()
    except ValidationError:
        return Ledger()


def _save(instance: dg.DagsterInstance, baseline: str, ledger: Ledger) -> None:
    history.write_value(instance, f"ledger/{baseline}", _LEDGER.dump_json(ledger).decode())


def belief(files: DmsFiles, baseline: Baseline, instance: dg.DagsterInstance) -> Belief:
    """How recorded caches and those on the disk differ. Partitions that were retired are left out.

    Raises:
        OSError, WantedTableError: a root or the table can't be read.
    """
    keys = set(instance.get_dynamic_partitions(_NAME))
    versions = history.data_versions(instance, outcomes.cache_key(baseline.name))
    recorded = {uid: version for uid, version in versions.items() if uid in keys and version != ABSENT}
    ledger = read_ledger(instance, baseline.name)
    changed = pending(files, baseline, keys, ledger)
    return compare(recorded, *on_disk(files, baseline, keys, ledger, changed))


def _believed(files: DmsFiles, baseline: Baseline, instance: dg.DagsterInstance) -> Checked:
    found = belief(files, baseline, instance)
    where = str(files.caches.root.path / files.caches.folder(baseline.name))
    told = {"partitions": found.partitions, "digest": found.digest}
    return Checked.of_findings(
        store_outcomes.coverage_key(baseline.name), BELIEF, None, found.findings("cache", where), None, told
    )


def belief_check(baseline: Baseline) -> dg.AssetChecksDefinition:
    """The check of one baseline; the names of the differing routes tell which alerts it follows from."""

    @dg.asset_check(
        asset=store_outcomes.coverage_key(baseline.name),
        name=BELIEF,
        description="Every cache that Dagster knows is on the disk with the content it knows, and the other way round; "
        "and each of them can be opened.",
    )
    def belief_matches_disk(
        context: dg.AssetCheckExecutionContext, dms_files: dg.ResourceParam[DmsFiles]
    ) -> dg.AssetCheckResult:
        return _believed(dms_files, baseline, context.op_execution_context.instance).result()

    return belief_matches_disk


def reconcile(context: dg.OpExecutionContext, files: DmsFiles, baseline: Baseline) -> Iterator[Happened]:
    """Judge what changed of one baseline and yield what is news.

    Files that can't be opened now, or may still be being copied, are left. The former fail the check on the belief.
    """
    instance = context.instance
    ledger = read_ledger(instance, baseline.name)
    keys = instance.get_dynamic_partitions(_NAME)
    ledger.routes = {uid: entry for uid, entry in ledger.routes.items() if uid in set(keys)}
    todo = pending(files, baseline, keys, ledger)
    key = outcomes.cache_key(baseline.name)
    versions = history.data_versions(instance, key)
    states = known_answers(instance, baseline, BELIEF)
    left = []
    for number, uid in enumerate(todo, start=1):
        try:
            stands = outcomes.standing(files, baseline, uid)
        except OSError as error:
            left.append(f"{uid}: {error.strerror or error}")
            continue
        if stands.plan.state in (State.SETTLING, State.INACCESSIBLE):
            left.append(f"{uid}: {stands.plan.why}")
            continue
        happened = list(outcomes.route_events(files, baseline, uid, stands))
        if stands.judged is None:
            happened = without_empty_passes(happened, states)
        digest = next((item.data_version for item in happened if isinstance(item, Materialised)), "")
        told = list(news(instance, happened, versions.get(uid), states))
        yield from told
        if digest and any(isinstance(item, Materialised) for item in told):
            yield from outcomes.route_summary(files, baseline, uid)
        ledger.routes[uid] = entry_of(files, baseline, uid, stands, "" if digest == ABSENT else digest)
        if number % _SAVE_EVERY == 0:
            context.log.info(f"{baseline.name}: {number} of {len(todo)} routes judged")
            _save(instance, baseline.name, ledger)
    _save(instance, baseline.name, ledger)
    if left:
        more = f" and {len(left) - 20} more" if len(left) > 20 else ""
        context.log.warning(f"{baseline.name}: {len(left)} files left for another time: {'; '.join(left[:20])}{more}")
    yield from news(instance, [_believed(files, baseline, instance)], None, states)
    removed = files.caches.clean(baseline.name, files.dms.keep_aside_days * 86400)
    if removed:
        context.log.info(f"{baseline.name}: removed {len(removed)} files that were kept aside long enough")


class RetireConfig(dg.Config):
    """The routes to retire, by uid."""

    uids: list[str]


def jobs(baselines: Sequence[Baseline]) -> list[dg.JobDefinition]:
    """Reconciliation, and the explicit retiring of routes."""

    @dg.op(out={})
    def reconcile_routes(
        context: dg.OpExecutionContext, dms_files: dg.ResourceParam[DmsFiles]
    ) -> Iterator[dg.AssetMaterialization]:
        for baseline in baselines:
            yield from record(context, reconcile(context, dms_files, baseline))

    @dg.job(
        name="dms_reconcile",
        description="Judges every route whose file, video, rules, thresholds or wanted spans changed since it was "
        "judged, records what other programs wrote, and compares what Dagster believes with the disk.",
    )
    def reconcile_job() -> None:
        reconcile_routes()

    @dg.op(out={})
    def retire_routes(
        context: dg.OpExecutionContext, config: RetireConfig, dms_files: dg.ResourceParam[DmsFiles]
    ) -> Iterator[dg.AssetMaterialization]:
        found = set(sync.routes(dms_files, [baseline.name for baseline in baselines]))
        present = sorted(set(config.uids) & found)
        unknown = sorted(set(config.uids) - set(context.instance.get_dynamic_partitions(_NAME)))
        if present or unknown:
            raise dg.Failure(
                f"nothing was retired: still wanted or stored: {present}; no such partition: {unknown}",
                allow_retries=False,
            )
        for uid in config.uids:
            context.instance.delete_dynamic_partition(_NAME, uid)
            context.log.info(f"retired {uid}")
        for baseline in baselines:
            yield from record(context, reconcile(context, dms_files, baseline))

    @dg.job(name="dms_retire_routes", description="Retires the partitions of routes that are gone for good.")
    def retire_job() -> None:
        retire_routes()

    return [reconcile_job, retire_job]


def _partition_sync(settings: Settings, baselines: Sequence[Baseline]) -> dg.SensorDefinition:
    @dg.sensor(
        name="dms_partition_sync",
        minimum_interval_seconds=settings.nightly.sync_interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Adds a partition for each route that is wanted or stored, and records changed inputs. "
        "Never removes a partition: an operator retires one with the job dms_retire_routes.",
    )
    def dms_partition_sync(
        context: dg.SensorEvaluationContext, dms_files: dg.ResourceParam[DmsFiles]
    ) -> dg.SensorResult | dg.SkipReason:
        instance = context.instance
        found = sync.routes(dms_files, [baseline.name for baseline in baselines])
        if not found:
            raise NoRoutesError(
                f"neither {dms_files.dms.wanted_spans} nor {dms_files.caches.root.path} names a route: is the disk"
                " mounted? Set [dms] wanted_spans and cache_root if they lie elsewhere"
            )
        known = set(instance.get_dynamic_partitions(_NAME))
        new = [uid for uid in found if uid not in known][:_BATCH]
        versions = {name: history.data_versions(instance, key) for name, key in _INPUTS.items()}
        changed = sync.changed_inputs(dms_files, known, versions)
        if not (new or changed):
            return dg.SkipReason(f"{len(found)} routes, nothing new")
        return dg.SensorResult(
            dynamic_partitions_requests=[UIDS.build_add_request(new)] if new else [],
            asset_events=[materialisation(item) for item in itertools.islice(changed, _BATCH)],
        )

    return dms_partition_sync


def _reconcile_schedule(
    settings: Settings, job: dg.JobDefinition, baselines: Sequence[Baseline]
) -> dg.ScheduleDefinition:
    @dg.schedule(
        name="dms_reconcile_schedule",
        cron_schedule=settings.nightly.reconcile_cron,
        execution_timezone=settings.nightly.timezone,
        job=job,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Launches dms_reconcile when something on the disk or in the table changed; else nothing.",
    )
    def dms_reconcile_schedule(
        context: dg.ScheduleEvaluationContext, dms_files: dg.ResourceParam[DmsFiles]
    ) -> dg.RunRequest | dg.SkipReason:
        instance = context.instance
        keys = instance.get_dynamic_partitions(_NAME)
        changed = {b.name: pending(dms_files, b, keys, read_ledger(instance, b.name)) for b in baselines}
        if not any(changed.values()):
            return dg.SkipReason(f"{len(keys)} routes, nothing changed")
        if is_running(instance, job.name):
            return dg.SkipReason("the last reconciliation is still running")
        context.log.info("; ".join(f"{name}: {len(uids)} routes changed" for name, uids in changed.items()))
        return dg.RunRequest(run_key=context.scheduled_execution_time.isoformat())

    return dms_reconcile_schedule


def _stores_schedule(settings: Settings, baselines: Sequence[Baseline]) -> dg.ScheduleDefinition:
    job = "dms_stores"

    @dg.schedule(
        name="dms_stores_schedule",
        cron_schedule=settings.nightly.stores_cron,
        execution_timezone=settings.nightly.timezone,
        job_name=job,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Coverage, statistics and overview of the cache stores, when any route was judged anew since.",
    )
    def dms_stores_schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        instance = context.instance
        ledgers = [history.read_value(instance, f"ledger/{baseline.name}") or "" for baseline in baselines]
        judged = {"judged": hashlib.sha256("\0".join(ledgers).encode()).hexdigest()[:16]}
        if is_done_or_running(instance, job, judged):
            return dg.SkipReason("no route was judged anew")
        return dg.RunRequest(run_key=context.scheduled_execution_time.isoformat(), tags=judged)

    return dms_stores_schedule


def _nightly(settings: Settings, baseline: Baseline) -> dg.ScheduleDefinition:
    job = f"dms_{baseline.name}_routes"
    night = settings.nightly

    @dg.schedule(
        name=f"dms_{baseline.name}_nightly",
        cron_schedule=night.dms_cron,
        execution_timezone=night.timezone,
        job_name=job,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Extracts what the plan says is missing, oldest first, a bounded number of routes a night.",
    )
    def dms_nightly(
        context: dg.ScheduleEvaluationContext, dms_files: dg.ResourceParam[DmsFiles]
    ) -> list[dg.RunRequest] | dg.SkipReason:
        require_free(dms_files.dms.cache_root, dms_files.dms.min_free_gib, "[dms] min_free_gib")
        policy = Policy(rebuild_stale=dms_files.dms.rebuild_stale, settle_s=dms_files.dms.settle_s)
        wanted = dms_files.wanted()
        found = plans(baseline, wanted.spans, caches=dms_files.caches, videos=dms_files.videos, policy=policy)
        stored = dms_files.caches.listing(baseline.name).files
        videos = list_videos(dms_files.videos)
        work = []
        for plan in found:
            if plan.work is not Work.NONE:
                video = videos[plan.uid][0] if videos.get(plan.uid) else None
                inputs = fingerprint(baseline, stored.get(plan.uid), video, wanted.of(plan.uid))
                work.append(attempts.Work(plan.uid, inputs))
        keys = context.instance.get_dynamic_partitions(_NAME)
        requests, choice = night_requests(context, job, keys, work, night.max_routes, night.range_size, night.attempts)
        return requests or dg.SkipReason(f"no route needs work; {len(choice.given_up)} given up")

    return dms_nightly


def watched(baselines: Sequence[Baseline]) -> Watched:
    """The location's checks from cause to consequence, baseline by baseline."""
    order = (
        outcomes.CACHE_VALID,
        outcomes.ROWS_FILL_SPANS,
        outcomes.SPAN_COVERAGE,
        outcomes.PROVENANCE_CURRENT,
        outcomes.VALID_FRACTION,
    )
    keys = [outcomes.cache_key(baseline.name) for baseline in baselines]
    whole = [
        dg.AssetCheckKey(store_outcomes.coverage_key(baseline.name), name)
        for name in (BELIEF, store_outcomes.ROUTES_COVERED)
        for baseline in baselines
    ]
    whole.append(dg.AssetCheckKey(outcomes.ANCHOR_SPANS, "configuration"))
    return Watched(
        location=LOCATION,
        checks=[*(dg.AssetCheckKey(key, name) for name in order for key in keys), *whole],
        blocking=[dg.AssetCheckKey(key, outcomes.CACHE_VALID) for key in keys],
        whole=whole,
        partitions=_NAME,
        neighbour="vin_assets",
    )


def sensors(settings: Settings, baselines: Sequence[Baseline]) -> list[dg.SensorDefinition]:
    """The location's sensors."""
    alerts = alert_sensor(watched(baselines), settings.alerts, settings.nightly.timezone)
    return [_partition_sync(settings, baselines), alerts, retention_sensor(LOCATION, settings.nightly)]


def schedules(
    settings: Settings, baselines: Sequence[Baseline], reconcile_job: dg.JobDefinition
) -> list[dg.ScheduleDefinition]:
    """The location's schedules: a nightly per baseline with an extractor, reconciliation, the morning digest."""
    return [
        *(_nightly(settings, baseline) for baseline in baselines if not baseline.external),
        _reconcile_schedule(settings, reconcile_job, baselines),
        _stores_schedule(settings, baselines),
        digest_schedule(watched(baselines), settings.alerts, settings.nightly.timezone),
    ]
