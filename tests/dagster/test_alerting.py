"""The alert sensor on real instances: what happens in Dagster reaches a webhook once, and its end once."""

import datetime
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetCheckEvaluation, DagsterEventType
from dagster._core.events import DagsterEvent
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, InstigatorType, TickData, TickStatus
from dagster_shared.error import SerializableErrorInfo
from pydantic import SecretStr

from resources import history
from resources.alerting import alert_sensor, digest_schedule, tick
from resources.config import AlertSettings, Mute
from resources.delivery import DeliveryError
from resources.watching import Watched, sensor_name
from tests.dagster.servers import Webhook, webhook

ASSET = dg.AssetKey(["dms", "toy", "route_cache"])
CHECKS = [dg.AssetCheckKey(ASSET, name) for name in ("cache_valid", "span_coverage")]
WATCHED = Watched("dms_assets", CHECKS, CHECKS[:1], (), "uid", "vin_assets")
NOON = time.time()

uid = dg.DynamicPartitionsDefinition(name="uid")


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


@pytest.fixture
def settings(hook: Webhook, tmp_path: Path) -> AlertSettings:
    return AlertSettings(
        urls=(SecretStr(hook.url),),
        file=tmp_path / "alerts.jsonl",
        settle_s=20,
        watch_s=1e9,
        webserver_url="http://127.0.0.1:9",
    )


def answer(instance: dg.DagsterInstance, partition: str | None, check: str, passed: bool, run_id: str = "") -> None:
    event = AssetCheckEvaluation(
        asset_key=ASSET,
        check_name=check,
        passed=passed,
        partition=partition,
        severity=dg.AssetCheckSeverity.ERROR,
        description=None if passed else f"{check} of {partition} is wrong",
        metadata={"how_to_fix": dg.MetadataValue.md("- do this\n- do that")},
    )
    instance.report_dagster_event(
        DagsterEvent(DagsterEventType.ASSET_CHECK_EVALUATION.value, "toy", event_specific_data=event),
        run_id=run_id or str(uuid.uuid4()),
    )


def test_three_ticks_tell_a_failure_once_and_its_recovery_once(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    instance.add_dynamic_partitions("uid", ["a", "b"])
    answer(instance, "a", "cache_valid", False)
    answer(instance, "a", "span_coverage", False)
    answer(instance, "b", "cache_valid", True)
    for step in range(4):
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    (message,) = hook.messages()
    assert "ERROR  dms/toy/route_cache [a] cache_valid" in message
    assert "cache_valid of a is wrong" in message
    assert "fix: do this; do that" in message
    assert "http://127.0.0.1:9/assets/dms/toy/route_cache?view=checks&checkDetail=cache_valid" in message
    assert "follows from it: span_coverage" in message
    answer(instance, "a", "cache_valid", True)
    answer(instance, "a", "span_coverage", True)
    for step in range(4, 8):
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    assert len(hook.received) == 2
    assert "OK  dms/toy/route_cache [a] cache_valid" in hook.messages()[1]


def test_nothing_is_lost_or_sent_twice_while_the_webhook_is_down(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    instance.add_dynamic_partitions("uid", ["a"])
    hook.down = True
    answer(instance, "a", "cache_valid", False)
    tick(instance, WATCHED, settings, now=NOON)
    for step in (1, 2):
        with pytest.raises(DeliveryError) as caught:
            tick(instance, WATCHED, settings, now=NOON + 30 * step)
        assert "s3cret" not in str(caught.value)
    answer(instance, "a", "cache_valid", True)
    for step in (3, 4):
        with pytest.raises(DeliveryError):
            tick(instance, WATCHED, settings, now=NOON + 30 * step)
    hook.down = False
    for step in (5, 6, 7):
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    assert [item["title"].split(": ")[1] for item in hook.received] == ["1 new", "1 recovered"]
    stored = history.read_value(instance, f"alerts/{WATCHED.location}/state")
    assert stored is not None
    assert "s3cret" not in stored


def test_two_hundred_failures_at_once_are_one_message(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    names = [f"r{number:03}" for number in range(200)]
    instance.add_dynamic_partitions("uid", names)
    for name in (*names, None):
        answer(instance, name, "cache_valid", False, "one-run")
    for step in range(3):
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    (message,) = hook.messages()
    assert "200 partitions: r000, r001" in message
    assert len(message) < 1000


def definitions() -> list[dg.AssetsDefinition | dg.AssetChecksDefinition]:
    @dg.asset(key=ASSET, partitions_def=uid)
    def route_cache(context: dg.AssetExecutionContext) -> None:
        if context.partition_key == "bad":
            raise dg.Failure(
                "it raised", metadata={"failed": dg.MetadataValue.json({"bad": "OSError: no such camera"})}
            )

    @dg.asset_check(asset=route_cache, partitions_def=uid)
    def cache_valid(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        if context.op_execution_context.partition_key == "unreadable":
            raise OSError("disk gone")
        return dg.AssetCheckResult(passed=True)

    return [route_cache, cache_valid]


@pytest.mark.filterwarnings("ignore::dagster.PreviewWarning")
def test_what_could_not_run_is_told_on_its_partition_and_the_failed_run_adds_nothing(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    instance.add_dynamic_partitions("uid", ["bad", "unreadable", "good"])
    for key in ("bad", "unreadable", "good"):
        dg.materialize(definitions(), instance=instance, partition_key=key, raise_on_error=False)
    now = time.time()
    for step in range(3):
        tick(instance, WATCHED, settings, now=now + 30 * step)
    (message,) = hook.messages()
    assert hook.received[0]["title"] == "dms_assets: 2 new"
    assert "ERROR could not run  dms/toy/route_cache [bad] cache_valid" in message
    assert "OSError: no such camera" in message
    assert "ERROR could not run  dms/toy/route_cache [unreadable] cache_valid" in message
    assert "disk gone" in message


def test_a_run_that_fails_without_checks_is_told_until_a_later_one_succeeds(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    good = False

    @dg.asset(key=["dms", "toy", "coverage"])
    def coverage() -> None:
        if not good:
            raise ValueError("no such root")

    dg.materialize([coverage], instance=instance, raise_on_error=False)
    now = time.time()
    for step in range(3):
        tick(instance, WATCHED, settings, now=now + 30 * step)
    assert "run failed" in hook.messages()[0]
    assert "no such root" in hook.messages()[0]
    good = True
    dg.materialize([coverage], instance=instance)
    for step in range(3, 6):
        tick(instance, WATCHED, settings, now=now + 30 * step)
    assert [item["title"].split(": ")[1] for item in hook.received] == ["1 new", "1 recovered"]


def put_tick(instance: dg.DagsterInstance, location: str, name: str, at: float, error: str | None) -> None:
    """What the daemon stores when it has evaluated a sensor."""
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "__repository__")
    origin = RemoteInstigatorOrigin(repository, name)
    state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING)
    if instance.get_instigator_state(state.instigator_origin_id, state.selector_id) is None:
        instance.add_instigator_state(state)
    status = TickStatus.FAILURE if error else TickStatus.SKIPPED
    instance.create_tick(
        TickData(
            state.instigator_origin_id,
            name,
            InstigatorType.SENSOR,
            status,
            at,
            error=SerializableErrorInfo(error, [], None) if error else None,
            selector_id=state.selector_id,
        )
    )


def test_a_sensor_in_error_and_the_other_location_gone_silent_are_told(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    settings = settings.model_copy(update={"watch_s": 100})
    own, other = WATCHED.location, "vin_assets"
    put_tick(instance, own, "partition_sync", NOON, "root is empty")
    put_tick(instance, own, sensor_name(own), NOON, "the webhook is down: the other location's part to tell")
    for step in range(12):
        if step < 3 or step > 8:
            put_tick(instance, other, sensor_name(other), NOON + 30 * step, None)
        if step == 5:
            put_tick(instance, own, "partition_sync", NOON + 30 * step, None)
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    titles = [item["title"].split(": ")[1] for item in hook.received]
    assert titles == ["1 new", "1 recovered", "1 new", "1 recovered"]
    assert "root is empty" in hook.messages()[0]
    assert "http://127.0.0.1:9/locations/__repository__@dms_assets/sensors/partition_sync" in hook.messages()[0]
    assert "code location down  vin_assets" in hook.messages()[2]


def test_after_everything_was_down_the_other_location_gets_time_to_come_back(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    settings = settings.model_copy(update={"watch_s": 100})
    put_tick(instance, "vin_assets", sensor_name("vin_assets"), NOON, None)
    tick(instance, WATCHED, settings, now=NOON)
    for step in range(3):
        tick(instance, WATCHED, settings, now=NOON + 9000 + 30 * step)
    assert hook.received == []


def test_a_mute_a_retired_route_and_the_digest(
    instance: dg.DagsterInstance, hook: Webhook, settings: AlertSettings
) -> None:
    until = datetime.date.today() + datetime.timedelta(days=9)  # noqa: DTZ011  (far from any boundary)
    settings = settings.model_copy(update={"mutes": (Mute(partition="a", until=until, reason="known"),)})
    instance.add_dynamic_partitions("uid", ["a", "b"])
    for partition in "ab":
        answer(instance, partition, "cache_valid", False)
    for step in range(3):
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    assert [("[a]" in text, "[b]" in text) for text in hook.messages()] == [(False, True)]
    schedule = digest_schedule(WATCHED, settings, "Europe/Berlin")
    schedule.evaluate_tick(
        dg.build_schedule_context(instance, scheduled_execution_time=datetime.datetime.now(datetime.UTC))
    )
    for step in range(3, 6):
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    (digest,) = hook.messages()[1:]
    assert "this morning: 1 failing, 1 muted" in digest
    assert f"muted until {until}  dms/toy/route_cache [a] cache_valid (known)" in digest
    instance.delete_dynamic_partition("uid", "b")
    tick(instance, WATCHED, settings, now=NOON + 30 * 6)
    assert "no longer watched" in hook.messages()[2]


def test_the_sensor_is_on_by_default_says_what_it_did_and_writes_lines_without_an_address(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    instance.add_dynamic_partitions("uid", ["a"])
    answer(instance, "a", "cache_valid", False)
    settings = AlertSettings(file=tmp_path / "alerts.jsonl", settle_s=0)
    sensor = alert_sensor(WATCHED, settings)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    result = sensor(dg.build_sensor_context(instance))
    assert isinstance(result, dg.SkipReason)
    assert result.skip_message == "1 alerts told; 1 failing, 0 muted"
    (line,) = [json.loads(line) for line in settings.file.read_text().splitlines()]
    assert line["items"][0]["partitions"] == ["a"]


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(("moment", "copies"), [("before it is stored", 1), ("after it was delivered", 2)])
def test_a_tick_that_is_killed_loses_nothing_and_repeats_only_what_was_delivered_and_not_noted(
    instance: dg.DagsterInstance,
    hook: Webhook,
    settings: AlertSettings,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    copies: int,
) -> None:
    instance.add_dynamic_partitions("uid", ["a"])
    answer(instance, "a", "cache_valid", False)
    tick(instance, WATCHED, settings, now=NOON)
    write, calls = history.write_value, 0

    def killed(where: dg.DagsterInstance, key: str, value: str) -> None:
        nonlocal calls
        calls += 1
        if (moment == "before it is stored") == (calls == 1):
            raise KilledError
        write(where, key, value)

    monkeypatch.setattr(history, "write_value", killed)
    with pytest.raises(KilledError):
        tick(instance, WATCHED, settings, now=NOON + 30)
    monkeypatch.setattr(history, "write_value", write)
    for step in (2, 3):
        tick(instance, WATCHED, settings, now=NOON + 30 * step)
    assert len(hook.received) == copies
    assert len({item["message"] for item in hook.received}) == 1
