"""Messages reach every address once and in order, and no secret gets out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.alert_text import Message
from resources.delivery import (
    MAX_WAITING,
    AppriseTarget,
    DeliveryError,
    JsonLinesTarget,
    Outbox,
    Target,
    mask,
    targets_for,
)
from tests.dagster.servers import Webhook, webhook


def message(number: int) -> Message:
    return Message(str(number), "2026-03-01T00:00:00Z", "toy", f"title {number}", f"body {number}", "failure")


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


class Recorder:
    """A target that can be down."""

    def __init__(self, key: str) -> None:
        self.key = self.name = key
        self.down = False
        self.got: list[str] = []

    def send(self, message: Message) -> None:
        if self.down:
            raise DeliveryError(f"{self.name} is down")
        self.got.append(message.id)


def test_a_message_waits_for_the_address_that_is_down_and_goes_once_to_each() -> None:
    one, two = Recorder("one"), Recorder("two")
    targets: list[Target] = [one, two]
    outbox, saves = Outbox(), []
    two.down = True
    for number in (1, 2):
        outbox.put(message(number), targets)
        with pytest.raises(DeliveryError, match="two is down"):
            outbox.deliver(targets, lambda: saves.append({k: len(v) for k, v in outbox.waiting.items()}))
    assert (one.got, two.got) == (["1", "2"], [])
    two.down = False
    outbox.deliver(targets, lambda: saves.append({k: len(v) for k, v in outbox.waiting.items()}))
    outbox.deliver(targets, lambda: pytest.fail("nothing waits"))
    assert (one.got, two.got) == (["1", "2"], ["1", "2"])
    assert [save["two"] for save in saves] == [1, 2, 1, 0], "saved after every delivery"


def test_an_address_that_is_configured_no_longer_is_forgotten_and_a_new_one_gets_only_what_is_new() -> None:
    old, new = Recorder("old"), Recorder("new")
    outbox = Outbox()
    outbox.put(message(1), [old])
    outbox.deliver([new], lambda: None)
    outbox.put(message(2), [new])
    outbox.deliver([new], lambda: None)
    assert (old.got, new.got) == ([], ["2"])
    assert set(outbox.waiting) == {"new"}


def test_a_long_outage_keeps_a_bounded_queue_that_still_names_every_message() -> None:
    target = Recorder("one")
    outbox = Outbox()
    for number in range(MAX_WAITING + 30):
        outbox.put(message(number), [target])
    queue = outbox.waiting["one"]
    assert len(queue) == MAX_WAITING
    assert all(f"title {number}" in queue[0].body for number in range(31))
    assert [item.id for item in queue[1:]] == [str(number) for number in range(31, MAX_WAITING + 30)]


def test_delivery_ends_when_the_tick_has_no_time_left() -> None:
    target, outbox = Recorder("one"), Outbox()
    for number in range(3):
        outbox.put(message(number), [target])
    times = iter([0.0, 1.0, 100.0])
    with pytest.raises(DeliveryError, match="no time left"):
        outbox.deliver([target], lambda: None, clock=lambda: next(times))
    assert target.got == ["0"]


def test_a_webhook_gets_title_and_text_and_its_outage_is_told_without_its_secrets(
    hook: Webhook, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    target = AppriseTarget(hook.url)
    target.send(message(1))
    assert hook.messages() == ["title 1\nbody 1"]
    hook.down = True
    with pytest.raises(DeliveryError) as caught:
        target.send(message(2))
    captured = capfd.readouterr()
    for text in (str(caught.value), repr(caught.value), repr(target), target.name, target.key, caplog.text):
        assert "s3cret" not in text
        assert "robot" not in text
    assert "s3cret" not in captured.out + captured.err
    assert "503" in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense://token-s3cret/path-s3cret", "token-s3cret", "slack://s3cret"])
def test_an_address_that_apprise_does_not_know_says_so_without_showing_it(
    url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DeliveryError, match="no address that Apprise knows") as caught:
        AppriseTarget(url).send(message(1))
    assert "s3cret" not in str(caught.value) + "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass-word@example.org/services/T000/B000/XXXX?token=q-token",
        "tgram://123456789:abcdefg_token/-100chat/",
        "mailto://robot:p%40ss@mail.example.org?to=a@b.example",
    ],
)
def test_masking_hides_every_part_of_an_address_wherever_it_stands(url: str) -> None:
    text = f"posting to {url} failed: /services/T000/B000/XXXX q-token pass-word p@ss p%40ss abcdefg_token -100chat"
    hidden = mask(text, [url])
    secrets = {"https": ["pass-word", "T000", "XXXX", "q-token"], "tgram": ["abcdefg_token", "-100chat", "123456789"]}
    for secret in secrets.get(url.split(":")[0], ["p@ss", "p%40ss"]):
        assert secret not in hidden


def test_without_an_address_messages_are_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "alerts.jsonl"
    (target,) = targets_for([], file)
    for number in (1, 2):
        target.send(message(number))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["title"], line["level"]) for line in lines] == [("title 1", "failure"), ("title 2", "failure")]
    assert [type(item) for item in targets_for(["json://h/a", "json://h/a", "json://h/b"], file)] == [AppriseTarget] * 2


def test_a_file_that_cannot_be_written_is_a_delivery_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeliveryError, match="can't be written"):
        JsonLinesTarget(tmp_path / "file" / "alerts.jsonl").send(message(1))
