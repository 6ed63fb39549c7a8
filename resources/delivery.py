"""Getting messages out: addresses, secrets kept out of sight, and an outbox that remembers who has had what.

Belongs here: Apprise, the JSON-lines file, masking, and delivery state per address. Does not belong here: what a
message says, and where the outbox is stored (the caller saves it after every step). No Dagster.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

import apprise

from resources.alert_text import Message

MAX_WAITING = 50  # messages kept for an address that does not answer; older ones are condensed into one
_BUDGET_S = 25.0  # of a sensor's 60


class DeliveryError(Exception):
    """A message could not be delivered. The text names the address without its secrets, and what it answered."""


class Target(Protocol):
    """One address. `key` tells addresses apart without giving any away; `name` may be shown to anybody."""

    key: str
    name: str

    def send(self, message: Message) -> None:
        """Deliver, or raise `DeliveryError`."""


def _secrets(url: str) -> list[str]:
    """The parts of an Apprise URL that may be secret, longest first: all of it but the scheme and the host."""
    parts = {url}
    with contextlib.suppress(ValueError):
        split = urllib.parse.urlsplit(url)
        rest = url.split("://", 1)[-1]
        head, _, host = split.netloc.rpartition("@")
        parts.update([rest, split.netloc if "@" in split.netloc else "", split.path.strip("/")])
        parts.update(head.split(":"))
        parts.update(split.path.split("/"))
        parts.update(value for _, value in urllib.parse.parse_qsl(split.query))
        if "." not in host and host.split(":")[0] != "localhost":
            parts.update([host, *host.split(":")])  # slack://TokenA/..., tgram://123:token/...: no host but a secret
    parts |= {urllib.parse.unquote(part) for part in parts} | {urllib.parse.quote(part, safe="") for part in parts}
    return sorted((part for part in parts if len(part) >= 3), key=len, reverse=True)


def mask(text: str, urls: Sequence[str]) -> str:
    """`text` without anything secret of `urls`."""
    for url in urls:
        for secret in _secrets(url):
            text = text.replace(secret, "***")
    return text


def _scheme(url: str) -> str:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    return f"{match.group(1)}://***" if match else "***"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def _captured_log() -> Iterator[list[str]]:
    """What Apprise and its HTTP library would log, kept from every log because addresses are in it."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    loggers = [logging.getLogger(name) for name in ("apprise", "urllib3", "requests")]
    before = [(logger.level, logger.propagate, logger.handlers) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [Keep(logging.WARNING)], False
        logger.setLevel(logging.WARNING)
    try:
        yield lines
    finally:
        for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)


class AppriseTarget:
    """An Apprise URL: Slack, mail, Teams, Telegram, a webhook ..."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.key = _digest(url)
        self.name = _scheme(url)

    def __repr__(self) -> str:
        return f"AppriseTarget({self.name})"

    def send(self, message: Message) -> None:
        """Deliver, or raise `DeliveryError` with what the service answered, masked."""
        service = apprise.Apprise()
        with _captured_log() as log:
            usable = service.add(self._url)
            sent = usable and service.notify(
                body=message.body,
                title=message.title,
                notify_type=apprise.NotifyType(message.level),
                body_format=apprise.NotifyFormat.TEXT,
            )
        if not sent:
            why = mask("; ".join(dict.fromkeys(log)), [self._url])[:300] or "no reason was given"
            what = "can't be reached" if usable else "is no address that Apprise knows"
            raise DeliveryError(f"{self.name} {what}: {why}")


class JsonLinesTarget:
    """A file to which each message is appended as one line of JSON: the default while no address is configured."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.key = _digest(str(file))
        self.name = str(file)

    def send(self, message: Message) -> None:
        """Append one line, flushed to the disk, or raise `DeliveryError`."""
        line = json.dumps(asdict(message), ensure_ascii=False) + "\n"
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(fd, line.encode())
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise DeliveryError(f"{self.name} can't be written: {error.strerror}") from None


def targets_for(urls: Sequence[str], file: Path) -> list[Target]:
    """The addresses in force: every URL, or the file when there is none."""
    found: list[Target] = [AppriseTarget(url) for url in dict.fromkeys(urls)]
    return found or [JsonLinesTarget(file)]


@dataclass(slots=True)
class Outbox:
    """For each address, by key, the messages that it has not had, in order."""

    waiting: dict[str, list[Message]] = field(default_factory=dict)

    def put(self, message: Message, targets: Sequence[Target]) -> None:
        """Queue `message` for every address; beyond `MAX_WAITING` the two oldest of an address become one."""
        for target in targets:
            queue = self.waiting.setdefault(target.key, [])
            queue.append(message)
            if len(queue) > MAX_WAITING:
                queue[:2] = [_condensed(queue[0], queue[1])]

    def deliver(
        self, targets: Sequence[Target], save: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Send what waits, each address in order, and call `save` after every success.

        An address that fails keeps its messages and is left until the next call; the others are served. Addresses
        that are configured no longer are forgotten. Ends early when time runs out.

        Raises:
            DeliveryError: at the end, when an address failed; everything that was delivered is saved by then.
        """
        began = clock()
        errors = []
        self.waiting = {target.key: self.waiting.get(target.key, []) for target in targets}
        for target in targets:
            queue = self.waiting[target.key]
            while queue:
                if clock() - began > _BUDGET_S:
                    errors.append(f"{target.name}: no time left in this tick ({len(queue)} waiting)")
                    break
                try:
                    target.send(queue[0])
                except DeliveryError as error:
                    errors.append(f"{error} ({len(queue)} waiting)")
                    break
                del queue[0]
                save()
        if errors:
            raise DeliveryError("Nothing is lost, it is sent again at the next tick: " + "; ".join(errors))


def _condensed(one: Message, other: Message) -> Message:
    """Two messages as one, with both titles and as much of both as one message may hold."""
    titles = [line for line in one.body.split("\n") if line.startswith("* ")] or [f"* {one.at} {one.title}"]
    titles.append(f"* {other.at} {other.title}")
    if len(titles) > MAX_WAITING:
        titles = [f"* ... earlier ones are in the event log, since {one.at}", *titles[-MAX_WAITING + 1 :]]
    return replace(
        one,
        id=other.id,
        title=f"{one.location}: several messages that could not be delivered",
        body="\n".join(titles),
        level="failure",
        items=(one.items + other.items)[-MAX_WAITING:],
    )
