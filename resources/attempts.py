"""Which partitions a night works on: bounded, oldest first, and a failing one not for ever. Pure; no Dagster, no I/O.

Belongs here: the choice, and what has to be remembered for it. Does not belong here: what needs work (each location's
plan), and launching it (`resources.launching`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Work:
    """A partition that needs work, and a fingerprint of the inputs that decide whether the work can succeed."""

    key: str
    fingerprint: str


@dataclass(slots=True)
class Tried:
    """How often in a row a partition was tried with the same inputs, and the first night on which it needed work.

    `last` is the last night on which it was tried: a tick that was killed is evaluated again, and counts once.
    """

    fingerprint: str
    since: str
    times: int = 0
    last: str = ""


@dataclass(slots=True)
class Book:
    """What is remembered from night to night, by partition. A partition without work is forgotten."""

    tried: dict[str, Tried] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """Keys to do now, those left for another night, and those that failed too often with unchanged inputs."""

    now: tuple[str, ...]
    carried_over: tuple[str, ...]
    given_up: tuple[str, ...]


def choose(book: Book, work: Iterable[Work], night: str, most: int, attempts: int) -> Choice:
    """The night's share of `work`: at most `most` partitions, those that have waited longest first.

    Each chosen partition counts as tried once more (once a night); one that was tried `attempts` times is left until
    its fingerprint changes. `night` is the tick's time in a form that sorts (ISO 8601 in UTC). `book` is brought up to
    date.
    """
    tried: dict[str, Tried] = {}
    for item in work:
        before = book.tried.get(item.key)
        if before is None:
            tried[item.key] = Tried(item.fingerprint, night)
        elif before.fingerprint != item.fingerprint:
            tried[item.key] = Tried(item.fingerprint, before.since)
        else:
            tried[item.key] = before
    book.tried = tried
    spent = {key for key, item in tried.items() if item.times >= attempts and item.last != night}
    given_up = sorted(spent)
    waiting = sorted(set(tried) - spent, key=lambda key: (tried[key].since, key))
    for key in waiting[:most]:
        if tried[key].last != night:
            tried[key].times += 1
            tried[key].last = night
    return Choice(tuple(sorted(waiting[:most])), tuple(waiting[most:]), tuple(given_up))
