"""Old runs go when nothing leans on them, and what the pages show stays, on SQLite and on PostgreSQL."""

import datetime

import dagster as dg
import pytest

from resources import history, retention
from resources.config import NightlySettings
from resources.liveness import LOCATION_TAG
from resources.retention import removable, remove_old_runs, retention_sensor
from tests.dagster.test_events import CACHE, DEFS, RANGE, SUMMARY, states

LOCATION = "dms_assets"
HOUR = datetime.timedelta(hours=1)


def run(instance: dg.DagsterInstance, job: str, tags: dict[str, str], location: str = LOCATION) -> str:
    tags = {LOCATION_TAG: location, **tags}
    return DEFS.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False, tags=tags).run_id


def old_runs_go(instance: dg.DagsterInstance) -> int:
    return remove_old_runs(instance, LOCATION, datetime.datetime.now(datetime.UTC) + HOUR)[0]


def test_a_run_goes_only_when_each_of_its_materialisations_and_answers_was_renewed(
    instance: dg.DagsterInstance,
) -> None:
    instance.add_dynamic_partitions("uid", list("abcd"))
    first = run(instance, "routes", RANGE)
    assert old_runs_go(instance) == 0
    singles = [run(instance, "routes", {"dagster/partition": partition}) for partition in "acd"]
    assert not removable(instance, first), "nothing was said of b since"
    singles.append(run(instance, "routes", {"dagster/partition": "b"}))
    before = states(instance), history.data_versions(instance, CACHE), history.data_versions(instance, SUMMARY)
    assert old_runs_go(instance) == 1
    assert {found.run_id for found in instance.get_runs()} == set(singles)
    assert (
        states(instance),
        history.data_versions(instance, CACHE),
        history.data_versions(instance, SUMMARY),
    ) == before
    assert instance.get_materialized_partitions(CACHE) == {"a", "c", "d"}
    again = run(instance, "checks", {"dagster/partition": "c"})
    assert not removable(instance, again)
    assert not removable(instance, singles[1]), "its materialisation is the latest still"
    assert old_runs_go(instance) == 0


def test_young_runs_and_those_of_the_other_location_stay_and_the_rest_waits_for_the_next_tick(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.add_dynamic_partitions("uid", list("abcd"))
    other = run(instance, "checks", {"dagster/partition": "a"}, "vin_assets")
    mine = [run(instance, "checks", {"dagster/partition": "a"}) for _ in range(4)]
    now = datetime.datetime.now(datetime.UTC)
    assert remove_old_runs(instance, LOCATION, now - HOUR) == (0, None)
    monkeypatch.setattr(retention, "_LOOKED_AT", 2)
    removed, place = remove_old_runs(instance, LOCATION, now + HOUR)
    assert (removed, place is not None) == (1, True), "the other location's, and the first of its own"
    while place is not None:
        more, place = remove_old_runs(instance, LOCATION, now + HOUR, place)
        removed += more
    assert removed == 3
    assert {found.run_id for found in instance.get_runs()} == {other, mine[-1]}


def test_the_sensor_is_on_by_default_and_says_what_it_did(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("uid", list("abcd"))
    for _ in range(2):
        run(instance, "checks", {"dagster/partition": "a"})
    kept = retention_sensor(LOCATION, NightlySettings())
    assert kept.default_status is dg.DefaultSensorStatus.RUNNING
    told = kept(dg.build_sensor_context(instance))
    assert isinstance(told, dg.SkipReason)
    assert told.skip_message == "0 old runs removed"
    short = retention_sensor(LOCATION, NightlySettings(keep_runs_days=1e-9))
    told = short(dg.build_sensor_context(instance))
    assert isinstance(told, dg.SkipReason)
    assert told.skip_message == "1 old runs removed"
