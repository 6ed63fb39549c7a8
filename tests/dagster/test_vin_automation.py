"""The VIN location by itself: partitions follow the disk, changed stores are checked, the night computes only them."""

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._utils.schedules import schedule_execution_time_iterator

from resources import history
from resources.config import NightlySettings, Settings
from resources.events import report
from resources.findings import Finding
from resources.history import Outcome
from resources.launching import range_requests
from tests.builders.vin import golden_settings
from tests.dagster.ticks import run_requested, tick_schedule, tick_sensor
from vin_assets import outcomes
from vin_assets.automation import NoStoresError
from vin_assets.definitions import build_defs
from vin_assets.files import VinFiles
from vin_assets.sync import changed_stores
from vin_assets.vin_store import integrity
from vin_assets.vin_store.store import VinOfflineStoreConfig

STORES = ["tiny_v11", "tiny_v7", "tiny_v8"]
NIGHT = datetime.datetime(2026, 3, 1, 2, tzinfo=datetime.UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return golden_settings(tmp_path)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is another file's to test."""
    monkeypatch.setattr("vin_assets.figures.statistics_figures", lambda *_: {})


def answers(instance: dg.DagsterInstance, asset: dg.AssetKey, check: str) -> dict[str | None, Outcome]:
    states = history.check_states(instance, [dg.AssetCheckKey(asset, check)])
    return {state.partition: state.outcome for state in states}


def settle(instance: dg.DagsterInstance, settings: Settings, launched: set[str]) -> int:
    """Ticks until nothing is asked for any more; the number of runs."""
    runs = 0
    for _ in range(6):
        requests = tick_sensor(instance, build_defs(settings), "vin_partition_sync", launched)
        runs += len(requests)
    return runs


def test_new_stores_become_partitions_are_checked_once_and_then_nothing_happens(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    launched: set[str] = set()
    assert tick_sensor(instance, build_defs(settings), "vin_partition_sync", launched) == []
    assert instance.get_dynamic_partitions("store") == STORES
    assert set(history.data_versions(instance, outcomes.OFFLINE_STORE)) == set(STORES)
    requests = tick_sensor(instance, build_defs(settings), "vin_partition_sync", launched)
    assert sorted(r.job_name or "" for r in requests) == ["vin_belief"] + ["vin_changed_store_checks"] * 3
    assert answers(instance, outcomes.OFFLINE_STORE, outcomes.STORE_READABLE) == dict.fromkeys(STORES, Outcome.PASSED)
    assert answers(instance, outcomes.OFFLINE_STORE, "belief_matches_disk") == {None: Outcome.PASSED}
    newest = history.newest_event(instance)
    assert settle(instance, settings, launched) == 0
    assert history.newest_event(instance) == newest


def test_an_empty_or_unreadable_root_is_an_error_and_removes_nothing(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    settle(instance, settings, set())
    root = settings.vin.store_roots[0]
    root.rename(root.parent / "elsewhere")
    with pytest.raises(FileNotFoundError):
        tick_sensor(instance, build_defs(settings), "vin_partition_sync")
    root.mkdir()
    with pytest.raises(NoStoresError, match="mounted"):
        tick_sensor(instance, build_defs(settings), "vin_partition_sync")
    assert instance.get_dynamic_partitions("store") == STORES


def test_a_store_that_vanished_fails_on_its_partition_and_passes_when_it_is_back(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    launched: set[str] = set()
    settle(instance, settings, launched)
    store = settings.vin.store_roots[0] / "tiny_v7"
    for _ in range(2):  # as often as it happens
        store.rename(store.parent.parent / "away")
        assert settle(instance, settings, launched) == 2
        readable = answers(instance, outcomes.OFFLINE_STORE, outcomes.STORE_READABLE)
        assert readable == dict.fromkeys(STORES, Outcome.PASSED) | {"tiny_v7": Outcome.FAILED}
        (told,) = history.evaluations(instance, dg.AssetCheckKey(outcomes.OFFLINE_STORE, "belief_matches_disk"), None)
        assert (told.passed, told.metadata["partitions"]) == (False, ["tiny_v7"])
        (store.parent.parent / "away").rename(store)
        assert settle(instance, settings, launched) == 2
        assert answers(instance, outcomes.OFFLINE_STORE, outcomes.STORE_READABLE)["tiny_v7"] is Outcome.PASSED
        assert answers(instance, outcomes.OFFLINE_STORE, "belief_matches_disk") == {None: Outcome.PASSED}


def test_a_swapped_store_is_recorded_checked_and_computed_the_next_night_alone(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    launched: set[str] = set()
    settle(instance, settings, launched)
    assert len(tick_schedule(instance, build_defs(settings), "vin_nightly", NIGHT)) == 1
    assert answers(instance, outcomes.STORE_STATS, outcomes.GENERATION_CURRENT) == dict.fromkeys(STORES, Outcome.PASSED)
    newest = history.newest_event(instance)
    assert tick_schedule(instance, build_defs(settings), "vin_nightly", NIGHT + datetime.timedelta(days=1)) == []
    assert history.newest_event(instance) == newest
    root = settings.vin.store_roots[0]
    before = history.data_versions(instance, outcomes.OFFLINE_STORE)
    shutil.rmtree(root / "tiny_v8")
    shutil.copytree(root / "tiny_v7", root / "tiny_v8")
    settle(instance, settings, launched)
    after = history.data_versions(instance, outcomes.OFFLINE_STORE)
    assert [store for store in STORES if before[store] != after[store]] == ["tiny_v8"]
    current = answers(instance, outcomes.STORE_STATS, outcomes.GENERATION_CURRENT)
    assert current == dict.fromkeys(STORES, Outcome.PASSED) | {"tiny_v8": Outcome.FAILED}
    (request,) = tick_schedule(instance, build_defs(settings), "vin_nightly", NIGHT + datetime.timedelta(days=2))
    assert request.tags["dagster/partition"] == "tiny_v8"
    assert answers(instance, outcomes.STORE_STATS, outcomes.GENERATION_CURRENT)["tiny_v8"] is Outcome.PASSED


def swap(store: Path, other: Path) -> None:
    shutil.copytree(other, store.parent / ".new")
    store.rename(store.parent.parent / f"old_{store.stat().st_ino}")
    (store.parent / ".new").rename(store)


def test_statistics_are_asked_about_although_a_run_without_them_saw_the_new_store_first(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    launched: set[str] = set()
    settle(instance, settings, launched)
    tick_schedule(instance, build_defs(settings), "vin_nightly", NIGHT)
    root, defs = settings.vin.store_roots[0], build_defs(settings)
    swap(root / "tiny_v8", root / "tiny_v7")
    report(instance, changed_stores(VinFiles(settings), history.data_versions(instance, outcomes.OFFLINE_STORE)))
    late = [dg.AssetCheckKey(outcomes.OFFLINE_STORE, name) for name in ("store_readable", "store_integrity")]
    (request,) = range_requests("vin_changed_store_checks", STORES, {"tiny_v8"}, 1, "late", checks=late)
    run_requested(instance, defs, request, "")
    assert answers(instance, outcomes.STORE_STATS, outcomes.GENERATION_CURRENT)["tiny_v8"] is Outcome.PASSED
    assert settle(instance, settings, launched) == 1
    assert answers(instance, outcomes.STORE_STATS, outcomes.GENERATION_CURRENT)["tiny_v8"] is Outcome.FAILED


def test_a_store_replaced_while_it_is_checked_is_checked_again(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, check_store = settings.vin.store_roots[0], integrity.check_store
    swaps = iter([None])

    def meanwhile(config: VinOfflineStoreConfig) -> list[Finding]:
        if config.store_dir.name == "tiny_v8":
            for _ in swaps:
                swap(root / "tiny_v8", root / "tiny_v7")
        return check_store(config)

    monkeypatch.setattr(integrity, "check_store", meanwhile)
    settle(instance, settings, set())
    now = history.data_versions(instance, outcomes.OFFLINE_STORE)["tiny_v8"]
    key = dg.AssetCheckKey(outcomes.OFFLINE_STORE, outcomes.STORE_INTEGRITY)
    versions = [answer.metadata["store_version"] for answer in history.evaluations(instance, key, "tiny_v8", 3)]
    assert (versions[0], versions[1] == now, len(versions)) == (now, False, 2)


def test_statistics_of_a_store_that_is_gone_are_not_current_and_nothing_raises(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    launched: set[str] = set()
    settle(instance, settings, launched)
    tick_schedule(instance, build_defs(settings), "vin_nightly", NIGHT)
    settings.vin.store_roots[0].joinpath("tiny_v8").rename(settings.vin.store_roots[0].parent / "away")
    assert settle(instance, settings, launched) == 2  # its checks, and belief_matches_disk
    current = answers(instance, outcomes.STORE_STATS, outcomes.GENERATION_CURRENT)
    assert current == dict.fromkeys(STORES, Outcome.PASSED) | {"tiny_v8": Outcome.FAILED}
    (told,) = history.evaluations(
        instance, dg.AssetCheckKey(outcomes.STORE_STATS, outcomes.GENERATION_CURRENT), "tiny_v8"
    )
    assert "the store can't be read now" in told.description


def test_a_store_that_can_never_be_computed_is_tried_as_often_as_configured(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    broken = settings.vin.store_roots[0] / "tiny_v7" / "manifest.json"
    good = broken.read_bytes()
    broken.write_bytes(good[: len(good) // 2])
    settle(instance, settings, set())
    runs = [
        len(tick_schedule(instance, build_defs(settings), "vin_nightly", NIGHT + datetime.timedelta(days=day)))
        for day in range(6)
    ]
    assert runs == [1, 1, 1, 0, 0, 0]
    broken.write_bytes(good)
    settle(instance, settings, set())
    assert len(tick_schedule(instance, build_defs(settings), "vin_nightly", NIGHT + datetime.timedelta(days=9))) == 1
    assert "tiny_v7" in history.latest_materialisations(instance, outcomes.STORE_STATS)


def test_retiring_is_explicit_and_refuses_what_is_still_there(instance: dg.DagsterInstance, settings: Settings) -> None:
    settle(instance, settings, set())
    job = build_defs(settings).resolve_job_def("vin_retire_stores")

    def retire(*stores: str) -> bool:
        config = {"ops": {"retire_stores": {"config": {"stores": list(stores)}}}}
        return job.execute_in_process(run_config=config, instance=instance, raise_on_error=False).success

    assert not retire("tiny_v7")
    assert not retire("never_was")
    shutil.rmtree(settings.vin.store_roots[0] / "tiny_v7")
    assert retire("tiny_v7")
    assert instance.get_dynamic_partitions("store") == ["tiny_v11", "tiny_v8"]
    settle(instance, settings, set())
    assert answers(instance, outcomes.OFFLINE_STORE, "belief_matches_disk") == {None: Outcome.PASSED}


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        # Clocks go from 02:00 to 03:00: half past two does not exist, and the night's run comes all the same, once.
        ("2026-03-28", ["03-28 02:30", "03-29 03:00", "03-30 02:30"]),
        # Clocks go from 03:00 back to 02:00: half past two comes twice, the run once.
        ("2026-10-24", ["10-24 02:30", "10-25 02:30", "10-26 02:30"]),
    ],
)
def test_a_nightly_schedule_runs_once_a_night_across_both_clock_changes(first: str, expected: list[str]) -> None:
    zone = ZoneInfo("Europe/Berlin")
    nightly = NightlySettings(timezone="Europe/Berlin", vin_cron="30 2 * * *", dms_cron="30 2 * * *")
    schedules = build_defs(Settings(nightly=nightly)).get_repository_def().schedule_defs
    start = datetime.datetime.fromisoformat(first).replace(tzinfo=zone).timestamp()
    (schedule,) = [item for item in schedules if item.name == "vin_nightly"]
    assert schedule.execution_timezone == "Europe/Berlin"
    times = schedule_execution_time_iterator(start, schedule.cron_schedule, schedule.execution_timezone)
    found = [next(times).astimezone(zone).strftime("%m-%d %H:%M") for _ in range(3)]
    assert found == expected


def test_alert_sensor_partition_sync_and_nightly_are_on_by_default(settings: Settings) -> None:
    repository = build_defs(settings).get_repository_def()
    assert {s.name for s in repository.sensor_defs if s.default_status is dg.DefaultSensorStatus.RUNNING} == {
        "vin_assets_alerts",
        "vin_assets_retention",
        "vin_partition_sync",
    }
    assert {s.name for s in repository.schedule_defs if s.default_status is dg.DefaultScheduleStatus.RUNNING} == {
        "vin_nightly",
        "vin_assets_alerts_digest",
        "vin_configuration_nightly",
        "vin_report_schedule",
    }


def test_everything_the_alert_sensor_watches_exists(settings: Settings) -> None:
    from vin_assets.automation import watched

    defined = {key for check in build_defs(settings).asset_checks or [] for key in check.check_keys}
    assert set(watched().checks) == defined
    assert set(watched().blocking) | set(watched().whole) <= defined
