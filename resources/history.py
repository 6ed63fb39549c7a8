"""What Dagster's event log says: latest check states, evaluations, materialisations, per partition.

Belongs here: everything that touches `instance.event_log_storage`, or a private name of Dagster's, to read history.
Does not belong here: judging what is read, and writing events (`resources.events`). These calls work on SQLite and on
PostgreSQL, on the first tick and on every later one; `get_event_records` with a storage id as cursor does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import dagster as dg
from dagster import DagsterEventType
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

DATA_VERSION_TAG = "dagster/data_version"

_COMPLETED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}


class Outcome(StrEnum):
    """What the latest row of a check says. PLANNED in a finished run means that the check never answered."""

    PLANNED = "PLANNED"
    PASSED = "PASSED"
    FAILED = "FAILED"


_OUTCOMES = {
    AssetCheckExecutionRecordStatus.PLANNED: Outcome.PLANNED,
    AssetCheckExecutionRecordStatus.SUCCEEDED: Outcome.PASSED,
    AssetCheckExecutionRecordStatus.FAILED: Outcome.FAILED,
}


@dataclass(frozen=True, slots=True)
class CheckState:
    """The latest row of one check on one partition (None: the check has no partitions).

    `storage_id` is the event that the row stems from; `run_id` is "" for an event outside any run; `current` tells
    whether the row is about the partition's latest materialisation.
    """

    asset: str
    check: str
    partition: str | None
    outcome: Outcome
    run_id: str
    storage_id: int
    current: bool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One answer of a check. `metadata` holds plain values; `at` is seconds since 1970."""

    partition: str | None
    passed: bool
    severity: str
    description: str
    metadata: Mapping[str, Any]
    run_id: str
    at: float


def newest_event(instance: dg.DagsterInstance) -> int:
    """The storage id of the newest event that concerns assets, checks or the end of runs; 0 when there is none."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def check_states(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey], after: int | None = None
) -> list[CheckState]:
    """The latest row of every check and partition of `keys` whose row, or materialisation, is newer than `after`."""
    infos = instance.event_log_storage.get_asset_check_partition_info(list(keys), after_storage_id=after)
    return [
        CheckState(
            asset=info.check_key.asset_key.to_user_string(),
            check=info.check_key.name,
            partition=info.partition_key,
            outcome=_OUTCOMES[info.latest_execution_status],
            run_id=info.latest_planned_run_id or "",
            storage_id=info.latest_check_event_storage_id,
            current=info.is_current,
        )
        for info in infos
    ]


def evaluations(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey, partition: str | None, limit: int = 1
) -> list[Evaluation]:
    """The last `limit` answers of a check on a partition (None: without one), newest first."""
    records = instance.event_log_storage.get_asset_check_execution_history(
        key, limit=limit, status=_COMPLETED, partition_filter=PartitionKeyFilter(key=partition)
    )
    found = []
    for record in records:
        event = record.event.dagster_event if record.event else None
        if event is None or record.event is None:
            continue
        answer = event.asset_check_evaluation_data
        found.append(
            Evaluation(
                partition=record.partition,
                passed=answer.passed,
                severity=answer.severity.value,
                description=answer.description or "",
                metadata={name: value.value for name, value in answer.metadata.items()},
                run_id=record.run_id,
                at=record.event.timestamp,
            )
        )
    return found


def latest_materialisations(
    instance: dg.DagsterInstance, asset: dg.AssetKey, partitions: Iterable[str] | None = None
) -> Mapping[str, int]:
    """Storage id of the latest materialisation of each partition that has one."""
    wanted = None if partitions is None else set(partitions)
    if wanted is not None and not wanted:
        return {}
    return instance.get_latest_storage_id_by_partition(asset, DagsterEventType.ASSET_MATERIALIZATION, wanted)


def data_versions(
    instance: dg.DagsterInstance, asset: dg.AssetKey, partitions: Sequence[str] | None = None
) -> dict[str, str]:
    """The data version that the latest materialisation of each partition carries ("" where it carries none)."""
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        asset, DagsterEventType.ASSET_MATERIALIZATION, tag_keys=[DATA_VERSION_TAG], asset_partitions=partitions
    )
    known = dict.fromkeys(latest_materialisations(instance, asset, partitions), "")
    return known | {partition: found.get(DATA_VERSION_TAG, "") for partition, found in tags.items()}


def run_failure(instance: dg.DagsterInstance, run_id: str) -> str:
    """Why a run failed, in one short text: the messages of its failed steps, else that of the run; "" if none."""
    texts: list[str] = []
    for kind in (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE):
        for record in instance.get_records_for_run(run_id, of_type=kind, limit=3).records:
            event = record.event_log_entry.dagster_event
            if event is None:
                continue
            error = getattr(event.event_specific_data, "error", None)
            user = getattr(event.event_specific_data, "user_failure_data", None)
            if user is not None and user.description:
                texts.append(user.description)
            elif error is not None:
                inner = error
                while inner.cause is not None:
                    inner = inner.cause
                texts.append(inner.message.strip())
            elif event.message:
                texts.append(event.message)
        if texts:
            break
    return "; ".join(dict.fromkeys(texts))[:1000]


def failed_partitions(instance: dg.DagsterInstance, run_id: str, limit: int) -> dict[str, str]:
    """Why each partition failed, as the failed steps tell it in their metadata entry `failed`; at most `limit`."""
    texts: dict[str, str] = {}
    for record in instance.get_records_for_run(run_id, of_type=DagsterEventType.STEP_FAILURE, limit=5).records:
        event = record.event_log_entry.dagster_event
        user = getattr(event.event_specific_data, "user_failure_data", None) if event else None
        told = user.metadata.get("failed") if user else None
        if told is not None and isinstance(told.value, Mapping):
            texts |= {str(partition): str(text) for partition, text in told.value.items()}
    return dict(list(texts.items())[:limit])


def run_materialisations(instance: dg.DagsterInstance, run_id: str) -> set[tuple[dg.AssetKey, str | None]]:
    """The assets and partitions that a run recorded as materialised."""
    records = instance.get_records_for_run(run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION).records
    made = [record.event_log_entry.asset_materialization for record in records]
    return {(item.asset_key, item.partition) for item in made if item is not None}


def run_checks(
    instance: dg.DagsterInstance, run_id: str
) -> tuple[set[tuple[dg.AssetCheckKey, str | None]], set[dg.AssetCheckKey]]:
    """The checks that a run answered, with their partitions, and those that it was to answer."""
    kinds = {DagsterEventType.ASSET_CHECK_EVALUATION, DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED}
    answered, planned = set(), set()
    for record in instance.get_records_for_run(run_id, of_type=kinds).records:
        event = record.event_log_entry.dagster_event
        if event is None:
            continue
        if event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
            answer = event.asset_check_evaluation_data
            answered.add((answer.asset_check_key, answer.partition))
        else:
            planned.add(event.asset_check_planned_data.asset_check_key)
    return answered, planned


def read_value(instance: dg.DagsterInstance, key: str) -> str | None:
    """A value that `write_value` stored in the instance's own database; None when there is none."""
    return instance.daemon_cursor_storage.get_cursor_values({key}).get(key)


def write_value(instance: dg.DagsterInstance, key: str, value: str) -> None:
    """Store `value` under `key` in the instance's own database, committed when this returns."""
    instance.daemon_cursor_storage.set_cursor_values({key: value})
