"""Events per partition: single partition, range, a check executed alone and reports outside runs all tell the truth."""

from collections.abc import Iterator

import dagster as dg
import pytest

from resources.events import (
    Checked,
    Happened,
    Materialised,
    PartitionFailedError,
    record,
    report,
    run_checks,
    run_partitions,
)
from resources.findings import Finding, Severity
from resources.history import data_versions

UIDS = dg.DynamicPartitionsDefinition(name="uid")
CACHE, SUMMARY = dg.AssetKey(["dms", "toy", "route_cache"]), dg.AssetKey(["dms", "toy", "route_summary"])
RANGE = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "d"}


def checked(partition: str) -> Checked:
    return Checked(CACHE, "valid", partition, partition != "c")


@dg.multi_asset(
    name="toy",
    specs=[
        dg.AssetSpec(CACHE, skippable=True, partitions_def=UIDS),
        dg.AssetSpec(SUMMARY, deps=[CACHE], skippable=True, partitions_def=UIDS),
    ],
    can_subset=True,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def toy(context: dg.AssetExecutionContext) -> Iterator[dg.AssetMaterialization]:
    """a and d are healthy, b raises, c has a failing check and no summary."""

    def work(partition: str) -> Iterator[Happened]:
        if partition == "b":
            raise ZeroDivisionError("an extractor's own fault")
        yield Materialised(CACHE, partition, "version", {"n": 1, "x": float("nan")})
        yield checked(partition)
        if partition == "c":
            raise PartitionFailedError("cache_valid failed")
        yield Materialised(SUMMARY, partition, "version")

    yield from run_partitions(context, work)


@dg.asset_check(asset=CACHE, name="valid", partitions_def=UIDS)
def valid(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return run_checks(context, checked, CACHE, "valid")


DEFS = dg.Definitions(
    assets=[toy],
    asset_checks=[valid],
    executor=dg.in_process_executor,
    jobs=[
        dg.define_asset_job("routes", [CACHE, SUMMARY]),
        dg.define_asset_job("checks", dg.AssetSelection.checks(valid)),
    ],
)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions("uid", list("abcd"))
        yield instance


def run(instance: dg.DagsterInstance, job: str, tags: dict[str, str]) -> dg.ExecuteInProcessResult:
    return DEFS.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False, tags=tags)


def states(instance: dg.DagsterInstance) -> dict[str | None, str]:
    found = instance.event_log_storage.get_asset_check_partition_info([dg.AssetCheckKey(CACHE, "valid")])
    for info in found:
        if info.partition_key is not None and info.latest_execution_status.value in ("SUCCEEDED", "FAILED"):
            assert info.latest_target_materialization_storage_id == info.latest_materialization_storage_id
    return {info.partition_key: info.latest_execution_status.value for info in found}


def test_a_range_run_costs_the_bad_partitions_only_and_names_them(instance: dg.DagsterInstance) -> None:
    result = run(instance, "routes", RANGE)
    assert not result.success
    assert instance.get_materialized_partitions(CACHE) == {"a", "c", "d"}
    assert instance.get_materialized_partitions(SUMMARY) == {"a", "d"}
    assert states(instance) == {"a": "SUCCEEDED", "b": "PLANNED", "c": "FAILED", "d": "SUCCEEDED"}
    failure = result.failure_data_for_node("toy")
    assert failure is not None
    assert failure.user_failure_data is not None
    told = failure.user_failure_data.metadata["failed"].value
    assert told == {"b": "ZeroDivisionError: an extractor's own fault", "c": "cache_valid failed"}


def test_a_single_partition_run_records_the_same(instance: dg.DagsterInstance) -> None:
    assert run(instance, "routes", {"dagster/partition": "a"}).success
    assert not run(instance, "routes", {"dagster/partition": "c"}).success
    assert states(instance) == {"a": "SUCCEEDED", "c": "FAILED"}


def test_a_backfill_of_one_run_a_partition_records_the_same(instance: dg.DagsterInstance) -> None:
    """`BackfillPolicy.multi_run(1)` launches ranges of one partition, which are not tagged as a single one."""
    for partition in "abcd":
        ends = {f"dagster/asset_partition_range_{end}": partition for end in ("start", "end")}
        assert run(instance, "routes", ends).success == (partition in "ad")
    told = {"a": "SUCCEEDED", "b": "PLANNED", "c": "FAILED", "d": "SUCCEEDED"}
    assert states(instance) == told
    assert instance.get_materialized_partitions(CACHE) == {"a", "c", "d"}
    for partition in "bc":
        ends = {f"dagster/asset_partition_range_{end}": partition for end in ("start", "end")}
        assert run(instance, "checks", ends).success
    assert states(instance) == told | {"b": "SUCCEEDED", None: "FAILED"}


def test_a_check_executed_alone_lands_on_its_partitions(instance: dg.DagsterInstance) -> None:
    run(instance, "routes", RANGE)
    assert run(instance, "checks", {"dagster/partition": "c"}).success
    assert states(instance)["c"] == "FAILED"
    assert run(instance, "checks", RANGE).success
    assert states(instance) == {None: "FAILED", "a": "SUCCEEDED", "b": "SUCCEEDED", "c": "FAILED", "d": "SUCCEEDED"}


def test_what_other_programs_wrote_is_recorded_by_a_job_as_often_as_it_changes(instance: dg.DagsterInstance) -> None:
    finding = Finding("t_grid", Severity.WARN, "c.npz", "3 rows off the grid", "extract again", 3, ("row 1",))
    happened: list[Happened] = [
        Materialised(CACHE, "c", "digest", {"n": 5}),
        Checked.of_findings(CACHE, "valid", "c", [finding], {"tolerance_s": 0.001}),
    ]

    @dg.op(out={})
    def adopt(context: dg.OpExecutionContext) -> Iterator[dg.AssetMaterialization]:
        yield from record(context, happened)

    @dg.job
    def reconcile() -> None:
        adopt()

    for _ in range(2):
        assert reconcile.execute_in_process(instance=instance).success
    assert instance.get_materialized_partitions(CACHE) == {"c"}
    assert states(instance) == {"c": "FAILED"}
    row = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(CACHE, "valid"), 1)[0]
    assert row.event is not None
    assert row.event.dagster_event is not None
    data = row.event.dagster_event.asset_check_evaluation_data
    assert data.severity == dg.AssetCheckSeverity.WARN
    assert data.metadata["how_to_fix"].value == "- extract again"
    assert data.metadata["threshold_tolerance_s"].value == 0.001
    assert data.metadata["samples"].value == [{"code": "t_grid", "first": ["row 1"], "truncated": True}]


def test_a_materialisation_is_reported_outside_runs_too(instance: dg.DagsterInstance) -> None:
    for version in ("one", "two"):
        assert report(instance, [Materialised(CACHE, "c", version)]) == 1
    assert data_versions(instance, CACHE) == {"c": "two"}
