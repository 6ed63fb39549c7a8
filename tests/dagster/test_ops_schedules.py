"""Every schedule of both locations over both daylight-saving changes: one tick a day at its local hour, none lost."""

import datetime
import itertools
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._utils.schedules import schedule_execution_time_iterator

from dms_assets.definitions import build_defs as dms_definitions
from resources.config import AlertSettings, DmsSettings, NightlySettings, Settings
from tests.dagster.test_dms_automation import uid
from vin_assets.definitions import build_defs as vin_definitions

BERLIN = ZoneInfo("Europe/Berlin")
DAY = datetime.timedelta(days=1)
# The local hours of the daily schedules. In spring 02:00 and 02:30 do not exist, in autumn they come twice.
DAILY = {
    "vin_nightly": "02:00",
    "vin_configuration_nightly": "02:00",
    "vin_assets_alerts_digest": "07:00",
    "vin_report_schedule": "07:00",
    "dms_facemesh_nightly": "02:30",
    "dms_flow_nightly": "02:30",
    "dms_configuration_nightly": "02:30",
    "dms_stores_schedule": "06:30",
    "dms_assets_alerts_digest": "07:00",
    "dms_report_schedule": "07:00",
}
HOURLY = {"dms_reconcile_schedule"}
CHANGES = {"spring": datetime.date(2026, 3, 29), "autumn": datetime.date(2026, 10, 25)}


def schedules() -> dict[str, dg.ScheduleDefinition]:
    settings = Settings(nightly=NightlySettings(timezone="Europe/Berlin"), alerts=AlertSettings())
    found = {}
    for build in (vin_definitions, dms_definitions):
        for schedule in build(settings).get_repository_def().schedule_defs:
            found[schedule.name] = schedule
    return found


def ticks(schedule: dg.ScheduleDefinition, first: datetime.date, last: datetime.date, restarts: bool) -> list[float]:
    """The ticks (seconds since 1970) of the local days `first` to `last`, both included.

    `restarts`: the daemon begins anew after each tick, from the second after it, as it does when it was killed.
    """
    start, end = (datetime.datetime.combine(day, datetime.time(), BERLIN).timestamp() for day in (first, last + DAY))
    zone = schedule.execution_timezone

    def from_the_start(at: float) -> Iterator[float]:
        return (time.timestamp() for time in schedule_execution_time_iterator(at, schedule.cron_schedule, zone))

    if not restarts:
        return list(itertools.takewhile(lambda time: time < end, from_the_start(start)))
    found = [next(from_the_start(start))]
    while (after := next(from_the_start(found[-1] + 1))) < end:
        found.append(after)
    return found


def test_every_schedule_of_both_locations_is_in_the_configured_time_zone_and_in_this_file() -> None:
    found = schedules()
    assert set(found) == {*DAILY, *HOURLY}
    assert {schedule.execution_timezone for schedule in found.values()} == {"Europe/Berlin"}


@pytest.mark.parametrize("restarts", [False, True], ids=["daemon_runs_on", "daemon_begins_anew"])
@pytest.mark.parametrize("change", CHANGES)
def test_each_schedule_ticks_once_a_day_at_its_local_hour_over_the_clock_change(change: str, restarts: bool) -> None:
    changed = CHANGES[change]
    found = schedules()
    days = [changed + DAY * offset for offset in range(-2, 3)]
    for name, hour in DAILY.items():
        times = [datetime.datetime.fromtimestamp(at, BERLIN) for at in ticks(found[name], days[0], days[-1], restarts)]
        lost = change == "spring" and hour < "03:00"  # that hour is left out: the first moment after it
        expected = [f"{day} {'03:00' if lost and day == changed else hour}" for day in days]
        assert [time.strftime("%Y-%m-%d %H:%M") for time in times] == expected, name


@pytest.mark.parametrize("restarts", [False, True], ids=["daemon_runs_on", "daemon_begins_anew"])
@pytest.mark.parametrize(("change", "hours"), [("spring", 23), ("autumn", 25)])
def test_the_hourly_schedule_ticks_every_hour_that_passes_over_the_clock_change(
    change: str, hours: int, restarts: bool
) -> None:
    found = schedules()
    for name in HOURLY:
        times = ticks(found[name], CHANGES[change], CHANGES[change], restarts)
        assert len(times) == hours
        assert {later - earlier for earlier, later in itertools.pairwise(times)} == {3600.0}


def test_both_of_the_two_hours_that_autumn_calls_two_ask_for_a_run_of_their_own(tmp_path: Path) -> None:
    for folder in ("caches", "videos"):
        (tmp_path / folder).mkdir()
    (tmp_path / "wanted.csv").write_text(f"uid,t_start,t_end\n{uid(1)},0,5\n")
    roots = DmsSettings(
        cache_root=tmp_path / "caches", video_root=tmp_path / "videos", wanted_spans=tmp_path / "wanted.csv"
    )
    night = NightlySettings(timezone="Europe/Berlin", dms_cron="0 * * * *")
    repository = dms_definitions(Settings(output_root=tmp_path, dms=roots, nightly=night)).get_repository_def()
    twice = [datetime.datetime(2026, 10, 25, 2, fold=fold, tzinfo=BERLIN) for fold in (0, 1)]
    assert twice[0].timestamp() + 3600 == twice[1].timestamp()
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        instance.add_dynamic_partitions("uid", [uid(1)])
        for name in ("dms_reconcile_schedule", "dms_stores_schedule"):
            keys = []
            for at in twice:
                context = dg.build_schedule_context(
                    instance,
                    scheduled_execution_time=at,
                    repository_def=repository,
                    resources=repository.get_top_level_resources(),
                )
                requests = repository.get_schedule_def(name).evaluate_tick(context).run_requests or []
                keys += [request.run_key for request in requests]
            assert len(set(keys)) == 2, name
