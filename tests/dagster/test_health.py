"""The health command tells the living from the dead, by exit code too."""

import json
import time

import dagster as dg
import pytest
from typer.testing import CliRunner

from resources import health
from resources.watching import sensor_name
from tests.dagster.test_alerting import put_tick

NOWHERE = "http://127.0.0.1:9"


def beat(instance: dg.DagsterInstance, at: float) -> None:
    from dagster._daemon.types import DaemonHeartbeat

    for name in instance.get_required_daemon_types():
        instance.add_daemon_heartbeat(DaemonHeartbeat(at, name, "one"))


def bad(found: list[health.Sign]) -> set[str]:
    return {sign.name for sign in found if not sign.ok}


def test_a_living_instance_is_well_and_a_silent_one_names_what_is_down(instance: dg.DagsterInstance) -> None:
    now = time.time()
    beat(instance, now)
    for location in health.LOCATIONS:
        put_tick(instance, location, sensor_name(location), now - 10, None)
    found = health.signs(instance, now, NOWHERE, 300)
    assert bad(found) == set()
    assert {sign.name: sign.age_s for sign in found if sign.kind == "location"} == pytest.approx(
        {"vin_assets": 10, "dms_assets": 10}
    )
    late = health.signs(instance, now + 1000, NOWHERE, 300)
    assert {"vin_assets", "dms_assets", "SENSOR", "SCHEDULER"} <= bad(late)


def test_a_location_that_never_ticked_and_a_sensor_in_error_are_named(instance: dg.DagsterInstance) -> None:
    now = time.time()
    beat(instance, now)
    put_tick(instance, "vin_assets", sensor_name("vin_assets"), now, None)
    put_tick(instance, "vin_assets", "vin_partition_sync", now, "the root is empty")
    found = health.signs(instance, now, NOWHERE, 300)
    assert bad(found) == {"dms_assets", "vin_assets: vin_partition_sync"}
    assert [sign.text for sign in found if sign.name == "vin_assets: vin_partition_sync"] == ["the root is empty"]


def test_the_command_prints_json_and_exits_with_one_when_something_is_down(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    monkeypatch.setenv("VIN_DMS_ALERTS__WEBSERVER_URL", NOWHERE)
    result = CliRunner().invoke(health.app, ["--json"])
    assert result.exit_code == 1, result.output
    assert {"location", "webserver", "daemon"} == {sign["kind"] for sign in json.loads(result.stdout)}
    assert "are not." in CliRunner().invoke(health.app, []).stdout
    monkeypatch.delenv("DAGSTER_HOME")
    assert CliRunner().invoke(health.app, []).exit_code == 2
