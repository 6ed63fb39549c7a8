"""Sensors and schedules evaluated as the daemon does it, and their requests run in this process."""

import datetime
from collections.abc import Sequence
from typing import Any

import dagster as dg
from dagster import AssetMaterialization


def run_requested(instance: dg.DagsterInstance, defs: dg.Definitions, request: dg.RunRequest, job: str) -> bool:
    definition = defs.resolve_job_def(request.job_name or job)
    if request.asset_selection is not None or request.asset_check_keys is not None:
        definition = definition.get_subset(
            asset_selection=set(request.asset_selection or ()),
            asset_check_selection=None if request.asset_check_keys is None else set(request.asset_check_keys),
        )
    tags = {**request.tags, **({"dagster/partition": request.partition_key} if request.partition_key else {})}
    return definition.execute_in_process(
        instance=instance, tags=tags, run_config=request.run_config, raise_on_error=False
    ).success


def tick_sensor(
    instance: dg.DagsterInstance, defs: dg.Definitions, name: str, launched: set[str] | None = None
) -> list[dg.RunRequest]:
    """One tick of a sensor and all that it asks for; the requests whose run key is new. Raises what it raises."""
    launched = set() if launched is None else launched
    repository = defs.get_repository_def()
    sensor = repository.get_sensor_def(name)
    context: Any = dg.build_sensor_context(
        instance, repository_def=repository, resources=repository.get_top_level_resources()
    )
    data = sensor.evaluate_tick(context)
    for change in data.dynamic_partitions_requests or ():
        if isinstance(change, dg.AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(change.partitions_def_name, list(change.partition_keys))
    for event in data.asset_events:
        assert isinstance(event, AssetMaterialization)
        instance.report_runless_asset_event(event)
    requests = [item for item in data.run_requests or () if item.run_key not in launched]
    for request in requests:
        launched.add(str(request.run_key))
        run_requested(instance, defs, request, "")
    return requests


def tick_schedule(
    instance: dg.DagsterInstance, defs: dg.Definitions, name: str, at: datetime.datetime
) -> Sequence[dg.RunRequest]:
    """One tick of a schedule and the runs it asks for."""
    repository = defs.get_repository_def()
    schedule = repository.get_schedule_def(name)
    context = dg.build_schedule_context(
        instance, scheduled_execution_time=at, repository_def=repository, resources=repository.get_top_level_resources()
    )
    requests = schedule.evaluate_tick(context).run_requests or []
    for request in requests:
        run_requested(instance, defs, request, schedule.job_name)
    return requests
