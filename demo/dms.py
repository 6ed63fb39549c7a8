"""The DMS half of `make run`: partitions, what Dagster is told of the inputs, and the steps that are needed."""

from __future__ import annotations

import dagster as dg

from demo.steps import Step, whole_steps
from dms_assets import automation, outcomes, store_outcomes, sync
from dms_assets.baselines import registry
from dms_assets.files import DmsFiles
from dms_assets.partitions import UIDS
from dms_assets.plan import Policy, Work
from dms_assets.plan import plan as plans
from dms_assets.reconcile import pending
from resources import history
from resources.config import Settings
from resources.configuration_check import NAME
from resources.events import report

INPUTS = {key.path[-1]: key for key in (outcomes.DRIVER_VIDEO, outcomes.DRIVER_BOXES, outcomes.ANCHOR_SPANS)}


def update(instance: dg.DagsterInstance, settings: Settings) -> int:
    """Register new routes and report changed inputs; the number of events written."""
    files = DmsFiles(settings)
    names = list(registry(settings.dms.baselines))
    known = set(instance.get_dynamic_partitions(UIDS.name or ""))
    found = sync.routes(files, names)
    instance.add_dynamic_partitions(UIDS.name or "", [uid for uid in found if uid not in known])
    versions = {name: history.data_versions(instance, key) for name, key in INPUTS.items()}
    return report(instance, sync.changed_inputs(files, found, versions))


def steps(instance: dg.DagsterInstance, settings: Settings) -> list[Step]:
    """The jobs that have to run, and over which routes: work by the plan, and routes that Dagster knows nothing of."""
    files = DmsFiles(settings)
    wanted = files.wanted().spans
    policy = Policy(rebuild_stale=settings.dms.rebuild_stale, settle_s=settings.dms.settle_s)
    found = []
    for baseline in registry(settings.dms.baselines).values():
        keys = outcomes.cache_key(baseline.name), outcomes.summary_key(baseline.name)
        told = instance.get_materialized_partitions(keys[0]) & instance.get_materialized_partitions(keys[1])
        judged = {
            state.partition
            for state in history.check_states(instance, [dg.AssetCheckKey(keys[0], outcomes.SPAN_COVERAGE)])
            if state.outcome is not history.Outcome.PLANNED
        }
        why = {}
        for plan in plans(baseline, wanted, caches=files.caches, videos=files.videos, policy=policy):
            if plan.work is not Work.NONE:
                why[plan.uid] = f"{plan.state}: {plan.why}"
            elif plan.uid not in told and plan.uid not in judged:
                why[plan.uid] = "not looked at yet"
        if why:
            found.append(Step(f"dms_{baseline.name}_routes", list(why), "; ".join(sorted(set(why.values())))))
    names = list(registry(settings.dms.baselines))
    whole = [
        dg.AssetCheckKey(outcomes.ANCHOR_SPANS, NAME),
        *(dg.AssetCheckKey(store_outcomes.coverage_key(name), store_outcomes.ROUTES_COVERED) for name in names),
        *(dg.AssetCheckKey(store_outcomes.coverage_key(name), automation.BELIEF) for name in names),
    ]
    needed = found + whole_steps(
        instance, found, whole, ["dms_stores", "dms_reconcile", "dms_configuration", "dms_report"]
    )
    if not needed and _to_judge(instance, files):
        changed = "a file, a video or the wanted spans changed"
        needed = [Step("dms_reconcile", (), changed), Step("dms_stores", (), changed)]
    return needed


def _to_judge(instance: dg.DagsterInstance, files: DmsFiles) -> bool:
    """Whether a route's last judgement no longer holds, although nothing has to be extracted."""
    keys = instance.get_dynamic_partitions(UIDS.name or "")
    baselines = registry(files.dms.baselines)
    return any(pending(files, one, keys, automation.read_ledger(instance, name)) for name, one in baselines.items())
