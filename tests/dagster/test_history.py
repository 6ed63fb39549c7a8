"""History reads the same on SQLite and PostgreSQL, on the first tick and on later ones."""

from __future__ import annotations

import uuid

import dagster as dg
import pytest
import sqlalchemy.exc
from dagster import AssetCheckEvaluation
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.events import DagsterEvent

from resources import history
from resources.history import Outcome

ASSET = dg.AssetKey(["toy", "route_cache"])
CHECK = dg.AssetCheckKey(ASSET, "cache_valid")


def evaluate(instance: dg.DagsterInstance, partition: str | None, passed: bool, text: str = "") -> None:
    """One answer as a run records it: Dagster keeps one row per check, partition and run."""
    answer = AssetCheckEvaluation(
        asset_key=ASSET,
        check_name="cache_valid",
        passed=passed,
        partition=partition,
        severity=dg.AssetCheckSeverity.ERROR,
        description=text,
        metadata={"how_to_fix": dg.MetadataValue.text("copy it again")},
    )
    event = DagsterEvent(dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, "toy", event_specific_data=answer)
    instance.report_dagster_event(event, run_id=str(uuid.uuid4()))


def materialise(instance: dg.DagsterInstance, partition: str, version: str) -> None:
    instance.report_runless_asset_event(
        dg.AssetMaterialization(ASSET, partition=partition, tags={history.DATA_VERSION_TAG: version})
    )


def test_three_ticks_each_see_only_what_is_new(instance: dg.DagsterInstance) -> None:
    assert history.newest_event(instance) == 0
    seen = []
    cursor = 0
    for step in ({"a": False, "b": True}, {"a": True}, {"c": False}):
        for partition, passed in step.items():
            evaluate(instance, partition, passed)
        newest = history.newest_event(instance)
        states = history.check_states(instance, [CHECK], after=cursor)
        seen.append({state.partition: state.outcome for state in states})
        assert all(cursor < state.storage_id <= newest for state in states)
        cursor = newest
    assert seen == [
        {"a": Outcome.FAILED, "b": Outcome.PASSED},
        {"a": Outcome.PASSED},
        {"c": Outcome.FAILED},
    ]
    assert history.check_states(instance, [CHECK], after=cursor) == []
    everything = {state.partition: state.outcome for state in history.check_states(instance, [CHECK])}
    assert everything == {"a": Outcome.PASSED, "b": Outcome.PASSED, "c": Outcome.FAILED}


def test_an_evaluation_comes_back_with_its_text_and_remedy_for_its_partition_alone(
    instance: dg.DagsterInstance,
) -> None:
    evaluate(instance, "a", False, "first")
    evaluate(instance, "b", False, "other")
    evaluate(instance, "a", False, "second")
    evaluate(instance, None, True, "whole")
    found = history.evaluations(instance, CHECK, "a", limit=5)
    assert [item.description for item in found] == ["second", "first"]
    assert found[0].metadata["how_to_fix"] == "copy it again"
    assert found[0].severity == "ERROR"
    assert [item.description for item in history.evaluations(instance, CHECK, None)] == ["whole"]


def test_a_check_row_is_current_only_for_the_latest_materialisation(instance: dg.DagsterInstance) -> None:
    materialise(instance, "a", "v1")
    target = history.latest_materialisations(instance, ASSET, ["a"])["a"]
    instance.report_runless_asset_event(
        AssetCheckEvaluation(
            asset_key=ASSET,
            check_name="cache_valid",
            passed=True,
            partition="a",
            metadata={},
            target_materialization_data=AssetCheckEvaluationTargetMaterializationData(
                storage_id=target, run_id="", timestamp=0.0
            ),
        )
    )
    assert [state.current for state in history.check_states(instance, [CHECK])] == [True]
    materialise(instance, "a", "v2")
    assert [state.current for state in history.check_states(instance, [CHECK])] == [False]


def test_dagster_takes_only_one_evaluation_of_a_partition_outside_runs(instance: dg.DagsterInstance) -> None:
    """Why what is found outside runs is recorded by a job: the second answer would be refused by the database."""
    answer = AssetCheckEvaluation(asset_key=ASSET, check_name="cache_valid", passed=False, partition="a", metadata={})
    instance.report_runless_asset_event(answer)
    with pytest.raises(sqlalchemy.exc.IntegrityError):
        instance.report_runless_asset_event(answer)


def test_data_versions_are_those_of_the_latest_materialisations(instance: dg.DagsterInstance) -> None:
    for partition, version in (("a", "v1"), ("b", "v1"), ("a", "v2")):
        materialise(instance, partition, version)
    instance.report_runless_asset_event(dg.AssetMaterialization(ASSET, partition="c"))
    assert history.data_versions(instance, ASSET) == {"a": "v2", "b": "v1", "c": ""}
    assert history.data_versions(instance, ASSET, ["b"]) == {"b": "v1"}
    assert set(history.latest_materialisations(instance, ASSET)) == {"a", "b", "c"}
    assert history.latest_materialisations(instance, ASSET, []) == {}


def test_a_check_that_raises_leaves_a_planned_row_and_the_run_says_why(instance: dg.DagsterInstance) -> None:
    @dg.asset(key=ASSET)
    def route_cache() -> None:
        return None

    @dg.asset_check(asset=route_cache)
    def cache_valid() -> dg.AssetCheckResult:
        raise OSError("the disk went away")

    result = dg.materialize([route_cache, cache_valid], instance=instance, raise_on_error=False)
    (state,) = history.check_states(instance, [CHECK])
    assert (state.outcome, state.run_id) == (Outcome.PLANNED, result.run_id)
    assert "the disk went away" in history.run_failure(instance, result.run_id)


def test_a_stored_value_is_read_back_and_replaced(instance: dg.DagsterInstance) -> None:
    assert history.read_value(instance, "alerts:toy") is None
    for value in ("one", "two"):
        history.write_value(instance, "alerts:toy", value)
        assert history.read_value(instance, "alerts:toy") == value
