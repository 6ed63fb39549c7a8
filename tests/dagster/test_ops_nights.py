"""Nights at scale: how many runs and events they take, and what they leave alone. Counts, never seconds."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEventType
from matplotlib.figure import Figure

from dms_assets import automation, outcomes, store_outcomes
from dms_assets.automation import BELIEF, watched
from dms_assets.baselines import registry
from dms_assets.definitions import build_defs
from dms_assets.extraction.video import list_videos
from dms_assets.files import DmsFiles
from dms_assets.plan import fingerprint
from dms_assets.reconcile import Entry, Ledger
from resources import history
from resources.alerting import tick
from resources.config import AlertSettings, NightlySettings, Settings
from resources.events import Materialised, report
from resources.files import FileRoot
from resources.launching import partition_tags
from tests.builders.video import encode, numbered
from tests.dagster.test_dms_automation import DAY, NIGHT, OTHERS, put, uid, want, world
from tests.dagster.ticks import tick_schedule, tick_sensor

BASELINE = "numbers"
CACHE, COVERAGE = outcomes.cache_key(BASELINE), store_outcomes.coverage_key(BASELINE)


pytestmark = pytest.mark.usefixtures("third_party_extractors")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(numbered(60), tmp_path_factory.mktemp("video") / "numbers.hevc")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as made:
        yield made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return world(tmp_path, BASELINE)


def events(instance: dg.DagsterInstance) -> int:
    """Every event of every run, and the newest of those outside runs."""
    runs = instance.get_run_records()
    return sum(len(instance.all_logs(record.dagster_run.run_id)) for record in runs) + history.newest_event(instance)


def stored(settings: Settings) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of every cache, by route."""
    folder = settings.dms.cache_root / "cache" / BASELINE
    found = {path.stem: path.stat() for path in folder.glob("*.npz")}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def a_night(instance: dg.DagsterInstance, settings: Settings, day: int) -> dict[str, list[dg.RunRequest]]:
    """Everything that the location does by itself in a night, in the order of its clock; the runs it asked for."""
    defs, at = build_defs(settings), NIGHT + DAY * day
    before = None
    while before != (now := (history.newest_event(instance), len(instance.get_dynamic_partitions("uid")))):
        before = now  # partitions and events on inputs come in batches
        tick_sensor(instance, defs, "dms_partition_sync")
    names = ("dms_reconcile_schedule", f"dms_{BASELINE}_nightly", "dms_reconcile_schedule", "dms_stores_schedule")
    asked: dict[str, list[dg.RunRequest]] = {name: [] for name in names}
    for hour, name in enumerate(names):
        asked[name] += tick_schedule(instance, defs, name, at + hour * DAY / 24)
    return asked


def adopt(instance: dg.DagsterInstance, settings: Settings, routes: list[str], missing: set[str]) -> None:
    """What earlier nights left behind, without their thousands of events: every route but the `missing` is judged."""
    files = DmsFiles(settings)
    instance.add_dynamic_partitions("uid", routes)
    videos = list_videos(files.videos)
    for name, baseline in registry(settings.dms.baselines).items():
        stored = files.caches.listing(name).files
        judged: dict[str, Entry] = {}
        for route in routes:
            if name != BASELINE or route not in missing:
                found = None if baseline.external or not videos.get(route) else videos[route][0]
                inputs = fingerprint(baseline, stored.get(route), found, files.wanted().of(route))
                judged[route] = Entry(inputs, files.caches.digest(name, route) if route in stored else "")
        automation._save(instance, name, Ledger(judged))
        made = ((route, entry.digest) for route, entry in judged.items() if entry.digest)
        report(instance, (Materialised(outcomes.cache_key(name), route, digest) for route, digest in made))


def scattered(
    instance: dg.DagsterInstance,
    settings: Settings,
    video: Path,
    count: int,
    missing: list[int],
    most: int,
    adopted: bool = False,
) -> None:
    """`count` routes of which the `missing` ones have no cache: a first night, and a second one.

    `adopted`: the other routes were adopted on earlier nights; else the first night does so.
    """
    want(settings, *((number, 0, 2) for number in range(count)))
    for number in range(count):
        if number in missing:
            os.link(video, settings.dms.video_root / f"{uid(number)}.hevc")
        else:
            put(settings, number, baseline=BASELINE)
    before = stored(settings)
    if adopted:
        adopt(instance, settings, [uid(number) for number in range(count)], {uid(number) for number in missing})
    first = a_night(instance, settings, 0)
    assert instance.get_dynamic_partitions("uid") == [uid(number) for number in range(count)], "added in order"

    requests = first[f"dms_{BASELINE}_nightly"]
    assert len(requests) <= most
    gone = {uid(number) for number in missing}
    touched = [request.tags["dagster/partition"] for request in requests if "dagster/partition" in request.tags]
    for request in requests:
        if "dagster/partition" not in request.tags:
            ends = (request.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end"))
            low, high = (int(end.rpartition("_")[2]) for end in ends)
            touched += [uid(number) for number in range(low, high + 1)]
    assert sorted(touched) == sorted(gone), "each missing route in exactly one run, and no other route in any"
    after = stored(settings)
    assert set(after) == {uid(number) for number in range(count)}
    assert {name: after[name] for name in before} == before, "no other file was touched"
    night_runs = {run.run_id for run in instance.get_runs() if run.job_name == f"dms_{BASELINE}_routes"}
    assert len(night_runs) == len(requests)
    told: Counter[str] = Counter()
    for run_id in night_runs:
        for kind in (DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_CHECK_EVALUATION):
            for record in instance.get_records_for_run(run_id, of_type=kind).records:
                assert record.event_log_entry.dagster_event is not None
                told[str(record.partition_key or record.event_log_entry.dagster_event.partition)] += 1
    assert set(told) <= gone | {"None"}
    assert {told[name] for name in gone} >= {2}
    assert instance.get_materialized_partitions(CACHE) == {uid(number) for number in range(count)}

    runs, so_far = len(instance.get_runs()), events(instance)
    assert history.evaluations(instance, dg.AssetCheckKey(COVERAGE, BELIEF), None)[0].passed
    assert a_night(instance, settings, 1) == {name: [] for name in first}
    assert len(instance.get_runs()) == runs
    assert events(instance) == so_far
    assert stored(settings) == after


def test_scattered_missing_routes_are_all_that_a_night_touches(
    instance: dg.DagsterInstance, settings: Settings, video: Path
) -> None:
    scattered(instance, settings, video, 20, [3, 4, 11], 2)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_of_a_thousand_routes_forty_scattered_ones_take_at_most_45_runs_and_the_second_night_does_nothing(
    instance: dg.DagsterInstance, settings: Settings, video: Path
) -> None:
    missing = sorted(random.Random(6).sample(range(1000), 40))
    scattered(instance, settings, video, 1000, missing, 45, adopted=True)


def test_a_file_that_cannot_be_opened_is_left_told_on_its_check_and_in_an_alert_and_so_is_its_return(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    want(settings, (1, 0, 5), (2, 0, 5))
    put(settings, 1)
    refused = put(settings, 2)
    watching = watched([registry(settings.dms.baselines)[OTHERS]])
    alerts = AlertSettings(file=tmp_path / "alerts.jsonl", settle_s=0.0, watch_s=1e9)
    clock = [1e9]

    def told() -> list[str]:
        """Ticks of the alert sensor, a minute apart; the messages they sent."""
        for _ in range(2):
            clock[0] += 60
            tick(instance, watching, alerts, now=clock[0])
        lines = alerts.file.read_text().splitlines() if alerts.file.exists() else []
        return [json.loads(line)["body"] for line in lines]

    open_fd = FileRoot.open_fd

    def guarded(self: FileRoot, path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
        if os.fspath(path).endswith(refused.name):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return open_fd(self, path, flags)

    def reconcile(day: int) -> int:
        tick_sensor(instance, build_defs(settings), "dms_partition_sync")
        return len(tick_schedule(instance, build_defs(settings), "dms_reconcile_schedule", NIGHT + DAY * day))

    data = refused.read_bytes()
    with monkeypatch.context() as guard:
        guard.setattr(FileRoot, "open_fd", guarded)
        assert [reconcile(day) for day in range(3)] == [1, 1, 1], "it is looked at again every time"
    check = dg.AssetCheckKey(dg.AssetKey(["dms", OTHERS, "coverage"]), BELIEF)
    (answer,) = history.evaluations(instance, check, None, limit=5)
    assert not answer.passed
    assert answer.description.endswith(f"can't be opened and were left as they are: {uid(2)}: Permission denied")
    assert "read access" in answer.metadata["how_to_fix"]
    states = history.check_states(instance, [dg.AssetCheckKey(outcomes.cache_key(OTHERS), "cache_valid")])
    assert [state.partition for state in states] == [uid(1)], "nothing is said of the content of the other"
    assert refused.read_bytes() == data
    (message,) = told()
    assert message.startswith(f"NEW\nERROR  dms/{OTHERS}/coverage {BELIEF}")
    assert f"{uid(2)}: Permission denied" in message

    assert reconcile(4) == 1
    assert history.evaluations(instance, check, None)[0].passed
    assert [one.splitlines()[0] for one in told()] == ["NEW", "RECOVERED"]
    assert instance.get_materialized_partitions(outcomes.cache_key(OTHERS)) == {uid(1), uid(2)}


def test_a_span_wanted_of_a_route_without_a_cache_is_one_answer_and_not_five(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    def answers() -> dict[str, list[tuple[str | None, str]]]:
        keys = [check for check in watched([registry(settings.dms.baselines)[OTHERS]]).checks if check.name != BELIEF]
        found: dict[str, list[tuple[str | None, str]]] = {}
        for state in history.check_states(instance, keys):
            found.setdefault(state.check, []).append((state.partition, state.outcome.value))
        return {check: sorted(entries, key=str) for check, entries in found.items()}

    want(settings, (1, 0, 5), (2, 0, 5))
    a_night(instance, settings, 0)
    missing = [(uid(number), "FAILED") for number in (1, 2)]
    assert answers() == {"span_coverage": missing, "routes_covered": [(None, "FAILED")]}
    file = put(settings, 1)
    file.write_bytes(file.read_bytes()[:100])
    a_night(instance, settings, 1)
    assert answers()["cache_valid"] == [(uid(1), "FAILED")]
    file.unlink()
    a_night(instance, settings, 2)
    assert answers()["cache_valid"] == [(uid(1), "PASSED")], "what failed before has its answer"


def test_a_schedule_whose_tick_was_killed_asks_for_the_same_runs_when_it_is_evaluated_again(
    instance: dg.DagsterInstance, settings: Settings, video: Path
) -> None:
    once = settings.model_copy(update={"nightly": NightlySettings(attempts=1, max_routes=2)})
    want(once, *((number, 0, 2) for number in range(3)))
    for number in range(3):
        os.link(video, once.dms.video_root / f"{uid(number)}.hevc")
    defs = build_defs(once)
    for _ in range(3):
        tick_sensor(instance, defs, "dms_partition_sync")
    repository = defs.get_repository_def()

    def asked(name: str) -> list[dg.RunRequest]:
        """An evaluation after which the daemon is killed: what it asks for is never launched."""
        context = dg.build_schedule_context(
            instance,
            scheduled_execution_time=NIGHT,
            repository_def=repository,
            resources=repository.get_top_level_resources(),
        )
        return list(repository.get_schedule_def(name).evaluate_tick(context).run_requests or [])

    for name in (f"dms_{BASELINE}_nightly", "dms_reconcile_schedule", "dms_stores_schedule"):
        killed = asked(name)
        assert [len(killed), *map(len, (asked(name), asked(name)))] == [1, 1, 1]
        assert {request.run_key for request in asked(name)} == {request.run_key for request in killed}
        assert len(tick_schedule(instance, defs, name, NIGHT)) == 1
    assert asked("dms_stores_schedule") == [], "it succeeded"
    assert instance.get_materialized_partitions(CACHE) == {uid(0), uid(1)}


def test_a_range_run_writes_seven_events_a_route_and_draws_no_figure_with_matplotlib(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_: object, **__: object) -> None:
        raise AssertionError("a Matplotlib figure costs more than everything else about a route")

    monkeypatch.setattr(Figure, "__init__", drawn)
    want(settings, *((number, 0, 5) for number in range(12)))
    for number in range(12):
        put(settings, number)
    instance.add_dynamic_partitions("uid", [uid(number) for number in range(12)])
    job = build_defs(settings).resolve_job_def(f"dms_{OTHERS}_routes")
    written = []
    for last in (3, 11):
        tags = partition_tags(uid(0), uid(last))
        run = job.execute_in_process(instance=instance, tags=tags)
        written.append(instance.all_logs(run.run_id))
        kinds = Counter(entry.dagster_event_type for entry in written[-1])
        assert kinds[DagsterEventType.ASSET_MATERIALIZATION] == 2 * (last + 1)
        assert kinds[DagsterEventType.ASSET_CHECK_EVALUATION] == 5 * (last + 1)
        assert kinds[None] == 5, "a log line for each check's step that Dagster skips, none for a route"
    planned = 2  # one for each asset of a route, by Dagster, when the run is made
    assert len(written[1]) - len(written[0]) == (2 + 5 + planned) * 8
    wanted = dg.AssetRecordsFilter(asset_key=outcomes.cache_key(OTHERS), asset_partitions=[uid(11)])
    (record,) = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    assert "data:image/svg+xml" in str(record.asset_materialization.metadata["figures"].value)
    assert len(str(record.asset_materialization.metadata)) < 10_000
