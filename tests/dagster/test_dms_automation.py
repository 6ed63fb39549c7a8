"""The DMS location by itself: partitions, adoption of others' files, bounded nights, and events only for news."""

import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dms_assets import automation, outcomes
from dms_assets.automation import NoRoutesError, watched
from dms_assets.baselines import registry
from dms_assets.cache_schema import RouteCache
from dms_assets.definitions import build_defs
from dms_assets.files import DmsFiles
from dms_assets.plan import fingerprint
from dms_assets.reconcile import Entry, Ledger, pending
from resources import history
from resources.config import DmsSettings, NightlySettings, Settings
from resources.disk import LowDiskError
from resources.files import FileRoot
from resources.history import Outcome
from tests.builders.dms import frames
from tests.builders.video import encode, numbered
from tests.dagster.ticks import tick_schedule, tick_sensor

NIGHT = datetime.datetime(2026, 3, 1, 2, 30, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
OTHERS = "ext"
KEY = outcomes.cache_key(OTHERS)


def uid(number: int) -> str:
    return f"00aa11bb22cc33dd_{number:05}"


pytestmark = pytest.mark.usefixtures("third_party_extractors")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as made:
        yield made


def world(folder: Path, *extractors: str, **nightly: int) -> Settings:
    """An empty world below `folder`: caches of another program, and a baseline of each of `extractors`."""
    for name in ("caches", "videos"):
        (folder / name).mkdir()
    baselines: dict[str, object] = {OTHERS: {"extractor": "external", "channels": ["c0", "c1", "c2", "c3"]}}
    for name in extractors:
        baselines[name] = {"extractor": name, "channels": ["number", "left"], "code_version": "1"}
    roots = DmsSettings(
        cache_root=folder / "caches",
        video_root=folder / "videos",
        wanted_spans=folder / "wanted.csv",
        settle_s=0.0,
        min_free_gib=0.0,
        baselines=baselines,
    )
    return Settings(output_root=folder / "out", dms=roots, nightly=NightlySettings(**nightly))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return world(tmp_path, "numbers", "raises", range_size=50, attempts=3)


def want(settings: Settings, *rows: tuple[int, float, float]) -> None:
    lines = ["uid,t_start,t_end", *(f"{uid(number)},{start},{end}" for number, start, end in rows), ""]
    settings.dms.wanted_spans.write_text("\n".join(lines))


def put(settings: Settings, number: int, seconds: float = 5.0, baseline: str = OTHERS, seed: int = 0) -> Path:
    """A cache as another program writes it."""
    cache = frames(uid(number), 0, round(seconds * 10), baseline=baseline, seed=seed, fail={}, code_version="1")
    return cache.save(settings.dms.cache_root / "cache" / baseline / f"{uid(number)}.npz")


def answers(instance: dg.DagsterInstance, check: str, baseline: str = OTHERS) -> dict[str | None, Outcome]:
    states = history.check_states(instance, [dg.AssetCheckKey(outcomes.cache_key(baseline), check)])
    return {state.partition: state.outcome for state in states}


def reconcile(instance: dg.DagsterInstance, settings: Settings, day: int) -> int:
    """One tick of sync and one of the reconciliation; the number of runs."""
    defs = build_defs(settings)
    tick_sensor(instance, defs, "dms_partition_sync")
    return len(tick_schedule(instance, defs, "dms_reconcile_schedule", NIGHT + DAY * day))


def told(instance: dg.DagsterInstance) -> dict[str, list[str]]:
    """What the belief check says, by kind of difference."""
    check = dg.AssetCheckKey(dg.AssetKey(["dms", OTHERS, "coverage"]), automation.BELIEF)
    (answer,) = history.evaluations(instance, check, None)
    return {"partitions": list(answer.metadata["partitions"]), "passed": answer.passed}  # type: ignore[dict-item]


def test_foreign_files_are_adopted_with_their_checks_and_an_unchanged_store_costs_nothing(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    want(settings, (1, 0, 5), (2, 0, 9))
    for number in (1, 2, 3):
        put(settings, number)
    assert reconcile(instance, settings, 0) == 1
    assert instance.get_dynamic_partitions("uid") == [uid(1), uid(2), uid(3)]
    assert set(history.data_versions(instance, KEY)) == {uid(1), uid(2), uid(3)}
    assert answers(instance, "cache_valid") == dict.fromkeys([uid(1), uid(2), uid(3)], Outcome.PASSED)
    assert answers(instance, "span_coverage") == {
        uid(1): Outcome.PASSED,
        uid(2): Outcome.FAILED,
        uid(3): Outcome.PASSED,
    }
    assert set(history.latest_materialisations(instance, outcomes.summary_key(OTHERS))) == {uid(1), uid(2), uid(3)}
    assert told(instance) == {"partitions": [], "passed": True}
    assert reconcile(instance, settings, 1) == 0, "the wanted spans of the new routes are recorded, nothing else"
    newest = history.newest_event(instance)
    assert [reconcile(instance, settings, day) for day in (2, 3)] == [0, 0]
    assert history.newest_event(instance) == newest


def test_only_what_changed_is_told_a_touched_file_is_no_news_and_a_replaced_one_is(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    want(settings, (1, 0, 5), (2, 0, 5))
    file = put(settings, 1)
    put(settings, 2)
    reconcile(instance, settings, 0)
    newest, before = history.newest_event(instance), history.data_versions(instance, KEY)
    os.utime(file)
    assert reconcile(instance, settings, 1) == 1
    assert history.data_versions(instance, KEY) == before
    assert history.check_states(instance, watched([registry(settings.dms.baselines)[OTHERS]]).checks, newest) == []
    put(settings, 1, seed=7)
    reconcile(instance, settings, 2)
    after = history.data_versions(instance, KEY)
    assert [number for number in (1, 2) if before[uid(number)] != after[uid(number)]] == [1]


def test_a_file_that_vanished_or_broke_fails_on_its_partition_and_its_return_passes(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    want(settings, (1, 0, 5), (2, 0, 5))
    files = [put(settings, 1), put(settings, 2)]
    reconcile(instance, settings, 0)
    good = [file.read_bytes() for file in files]
    files[0].unlink()
    files[1].write_bytes(good[1][: len(good[1]) // 2])
    reconcile(instance, settings, 1)
    assert answers(instance, "span_coverage") == {uid(1): Outcome.FAILED, uid(2): Outcome.FAILED}
    assert answers(instance, "cache_valid") == {uid(1): Outcome.PASSED, uid(2): Outcome.FAILED}
    assert told(instance) == {"partitions": [uid(1)], "passed": False}
    for file, data in zip(files, good, strict=True):
        file.write_bytes(data)
    reconcile(instance, settings, 2)
    for check in ("span_coverage", "cache_valid"):
        assert set(answers(instance, check).values()) == {Outcome.PASSED}
    assert told(instance)["passed"]


def test_changed_wanted_spans_and_thresholds_are_judged_anew_on_unchanged_files(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    want(settings, (1, 0, 5))
    put(settings, 1)
    reconcile(instance, settings, 0)
    want(settings, (1, 0, 6))
    assert reconcile(instance, settings, 1) == 1
    assert answers(instance, "span_coverage") == {uid(1): Outcome.FAILED}
    stricter = settings.dms.baselines | {OTHERS: settings.dms.baselines[OTHERS] | {"valid_fraction_min": 1.0}}
    changed = settings.model_copy(update={"dms": settings.dms.model_copy(update={"baselines": stricter})})
    assert reconcile(instance, changed, 2) == 1
    assert reconcile(instance, changed, 3) == 0


def test_files_that_cannot_be_opened_or_are_being_copied_are_left(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    want(settings, (1, 0, 5), (2, 0, 5))
    put(settings, 1)
    copying = put(settings, 2)
    copying.write_bytes(copying.read_bytes()[:100])
    slow = settings.model_copy(update={"dms": settings.dms.model_copy(update={"settle_s": 3600.0})})
    judge = outcomes.standing

    def refused(files: DmsFiles, baseline: object, which: str) -> outcomes.Standing:
        if which == uid(1):
            raise PermissionError(13, "Permission denied")
        return judge(files, baseline, which)  # type: ignore[arg-type]

    monkeypatch.setattr(outcomes, "standing", refused)
    assert reconcile(instance, slow, 0) == 1
    assert answers(instance, "cache_valid") == {}
    assert copying.exists()
    monkeypatch.setattr(outcomes, "standing", judge)
    assert reconcile(instance, settings, 1) == 1
    assert answers(instance, "cache_valid") == {uid(1): Outcome.PASSED, uid(2): Outcome.FAILED}


def test_no_route_at_all_is_an_error_and_removes_nothing(instance: dg.DagsterInstance, settings: Settings) -> None:
    want(settings, (1, 0, 5))
    reconcile(instance, settings, 0)
    want(settings)
    with pytest.raises(NoRoutesError, match="mounted"):
        tick_sensor(instance, build_defs(settings), "dms_partition_sync")
    settings.dms.cache_root.rename(settings.dms.cache_root.parent / "away")
    with pytest.raises(OSError, match="caches"):
        tick_sensor(instance, build_defs(settings), "dms_partition_sync")
    assert instance.get_dynamic_partitions("uid") == [uid(1)]


def test_retiring_is_explicit_and_settles_the_belief(instance: dg.DagsterInstance, settings: Settings) -> None:
    want(settings, (1, 0, 5))
    put(settings, 1)
    lost = put(settings, 2)
    reconcile(instance, settings, 0)
    lost.unlink()
    reconcile(instance, settings, 1)
    assert told(instance) == {"partitions": [uid(2)], "passed": False}, "nobody wants it, but it is gone"
    job = build_defs(settings).resolve_job_def("dms_retire_routes")

    def retire(number: int) -> bool:
        config = {"ops": {"retire_routes": {"config": {"uids": [uid(number)]}}}}
        return job.execute_in_process(run_config=config, instance=instance, raise_on_error=False).success

    assert not retire(1)
    assert retire(2)
    assert instance.get_dynamic_partitions("uid") == [uid(1)]
    assert told(instance) == {"partitions": [], "passed": True}


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(numbered(240), tmp_path_factory.mktemp("video") / "numbers.hevc")


def test_a_night_touches_only_the_missing_routes_carries_over_the_rest_and_then_does_nothing(
    instance: dg.DagsterInstance, settings: Settings, video: Path
) -> None:
    missing = [number for number in range(30) if number % 7 == 3]
    want(settings, *((number, 0, 2) for number in range(30)))
    for number in range(30):
        if number in missing:
            os.link(video, settings.dms.video_root / f"{uid(number)}.hevc")
        else:
            put(settings, number, baseline="numbers")
    limited = settings.model_copy(update={"nightly": settings.nightly.model_copy(update={"max_routes": 3})})
    tick_sensor(instance, build_defs(settings), "dms_partition_sync")
    first = tick_schedule(instance, build_defs(limited), "dms_numbers_nightly", NIGHT)
    assert [request.tags["dagster/partition"] for request in first] == [uid(number) for number in missing[:3]]
    assert first[0].tags["carried_over"] == "1"
    second = tick_schedule(instance, build_defs(limited), "dms_numbers_nightly", NIGHT + DAY)
    assert [request.tags["dagster/partition"] for request in second] == [uid(missing[3])]
    done = history.latest_materialisations(instance, outcomes.cache_key("numbers"))
    assert set(done) == {uid(number) for number in missing}
    newest = history.newest_event(instance)
    assert tick_schedule(instance, build_defs(limited), "dms_numbers_nightly", NIGHT + 2 * DAY) == []
    assert history.newest_event(instance) == newest
    assert RouteCache.load(settings.dms.cache_root / "cache" / "numbers" / f"{uid(3)}.npz").covers([[0, 2]])


def test_a_route_that_always_fails_is_tried_three_nights_and_again_when_its_inputs_change(
    instance: dg.DagsterInstance, settings: Settings, video: Path
) -> None:
    want(settings, (1, 7, 8))  # frames 140 to 160: this extractor raises from 120 on
    os.link(video, settings.dms.video_root / f"{uid(1)}.hevc")
    tick_sensor(instance, build_defs(settings), "dms_partition_sync")

    def night(day: int) -> int:
        return len(tick_schedule(instance, build_defs(settings), "dms_raises_nightly", NIGHT + DAY * day))

    assert [night(day) for day in range(5)] == [1, 1, 1, 0, 0]
    want(settings, (1, 7, 9))
    assert [night(day) for day in range(5, 7)] == [1, 1]


def test_a_nearly_full_disk_stops_the_night_with_an_error(instance: dg.DagsterInstance, settings: Settings) -> None:
    want(settings, (1, 0, 1))
    full = settings.model_copy(update={"dms": settings.dms.model_copy(update={"min_free_gib": 1e9})})
    with pytest.raises(dg.DagsterError) as caught:
        tick_schedule(instance, build_defs(full), "dms_numbers_nightly", NIGHT)
    assert isinstance(caught.value.__cause__, LowDiskError)


def test_everything_the_alert_sensor_watches_exists_and_automation_is_on(settings: Settings) -> None:
    defs = build_defs(settings)
    baselines = list(registry(settings.dms.baselines).values())
    defined = {key for check in defs.asset_checks or [] for key in check.check_keys}
    assert set(watched(baselines).checks) == defined
    repository = defs.get_repository_def()
    assert {s.default_status for s in repository.sensor_defs} == {dg.DefaultSensorStatus.RUNNING}
    assert {s.default_status for s in repository.schedule_defs} == {dg.DefaultScheduleStatus.RUNNING}
    assert {"dms_ext_nightly"} & {s.name for s in repository.schedule_defs} == set()
    assert {s.execution_timezone for s in repository.schedule_defs} == {"UTC"}


def test_an_unchanged_sweep_opens_no_cache_and_writes_no_event(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(instance, settings, monkeypatch, 300)


@pytest.mark.soak
def test_an_unchanged_sweep_of_ten_thousand_routes_and_two_baselines_opens_no_cache_and_writes_no_event(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(instance, settings, monkeypatch, 10_000)


def sweep(instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Two baselines of `count` unchanged routes: one look at all of them."""
    want(settings, *((number, 0, 5) for number in range(count)))
    data = put(settings, 0).read_bytes()
    files = DmsFiles(settings)
    baselines = {name: b for name, b in registry(settings.dms.baselines).items() if name in (OTHERS, "numbers")}
    instance.add_dynamic_partitions("uid", [uid(number) for number in range(count)])
    for name, baseline in baselines.items():
        folder = settings.dms.cache_root / "cache" / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / f"{uid(number)}.npz").write_bytes(data)
        known = files.caches.listing(name).files
        ledger = Ledger(
            {u: Entry(fingerprint(baseline, i, None, files.wanted().of(u)), "digest") for u, i in known.items()}
        )
        automation._save(instance, name, ledger)
    opened: list[str] = []
    open_fd = FileRoot.open_fd

    def watching(self: FileRoot, path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
        opened.append(os.fspath(path))
        return open_fd(self, path, flags)

    monkeypatch.setattr(FileRoot, "open_fd", watching)
    newest = history.newest_event(instance)
    for baseline in baselines.values():
        keys = instance.get_dynamic_partitions("uid")
        assert pending(files, baseline, keys, automation.read_ledger(instance, baseline.name)) == []
    assert not [path for path in opened if path.endswith(".npz")]
    assert history.newest_event(instance) == newest
