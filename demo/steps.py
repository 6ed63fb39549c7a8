"""Running one job over some partitions of a location, in this process, on the persistent instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from resources import history
from resources.liveness import LOCATION_TAG
from resources.partitions import ranges

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True, slots=True)
class Step:
    """One job over some partitions (none: it has no partitions), and why it has to run."""

    job: str
    partitions: Sequence[str]
    why: str


def whole_steps(
    instance: dg.DagsterInstance, before: Sequence[Step], checks: Sequence[dg.AssetCheckKey], jobs: Sequence[str]
) -> list[Step]:
    """The jobs without partitions, which are needed after other steps and while one of `checks` has no answer."""
    answered = {
        (state.asset, state.check)
        for state in history.check_states(instance, checks)
        if state.outcome is not history.Outcome.PLANNED
    }
    if before:
        return [Step(job, (), "after the steps before") for job in jobs]
    if any((key.asset_key.to_user_string(), key.name) not in answered for key in checks):
        return [Step(job, (), "not looked at yet") for job in jobs]
    return []


def execute(instance: dg.DagsterInstance, defs: dg.Definitions, step: Step, keys: Sequence[str]) -> int:
    """Run one step, a run per range of neighbouring keys; the number of runs that failed."""
    job = defs.resolve_job_def(step.job)
    location = {LOCATION_TAG: f"{step.job.split('_')[0]}_assets"}
    tags: list[Mapping[str, str]] = [location]
    if step.partitions:
        tags = [
            {**location, "dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
            for first, last in ranges(keys, step.partitions)
        ]
    failed = 0
    for run_tags in tags:
        result = job.execute_in_process(instance=instance, tags=run_tags, run_config=_QUIET, raise_on_error=False)
        failed += not result.success
    return failed
