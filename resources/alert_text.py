"""How alerts are worded: one bounded message for everything that a tick has to tell, and the morning digest.

Plain text in, plain text out; no Dagster, no delivery. Alerts of one kind that differ only in their subject are told
as one item with the number of subjects and the first of them.
"""

from __future__ import annotations

import datetime
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from resources.alert_state import Alert, Incident, Kind, Mute, News, Problem
from resources.findings import Severity

MAX_ITEMS = 20
MAX_BODY = 12_000  # characters; what a message of 20 full items needs
_NAMED = 10  # subjects named in an item that stands for many
_FOLLOWERS = 12  # followers named below a root


@dataclass(frozen=True, slots=True)
class Message:
    """One message to deliver. `level` is failure, warning, success or info; `items` is the same as `body`, as data."""

    id: str
    at: str
    location: str
    title: str
    body: str
    level: str
    items: list[dict[str, Any]] = field(default_factory=list)


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _short(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 3] + "..."


@dataclass(slots=True)
class _Item:
    """Alerts told as one: the same news of the same check of the same asset, for one or several partitions."""

    news: News
    alerts: list[Alert]

    @property
    def root(self) -> Problem:
        return self.alerts[0].root

    def lines(self) -> list[str]:
        root = self.root
        many = len(self.alerts)
        if many == 1:
            name = root.name
        else:
            names = [alert.root.partition or alert.root.subject for alert in self.alerts]
            more = f" and {many - _NAMED} more" if many > _NAMED else ""
            name = f"{root.asset} {root.check}".strip() + f", {many} partitions: {', '.join(names[:_NAMED])}{more}"
        if self.news is News.RECOVERED:
            return [f"OK  {name} ({root.kind} since {_time(self.alerts[0].since)})"]
        if self.news is News.GONE:
            return [f"--  {name}: no longer watched"]
        kind = "" if root.kind is Kind.CHECK else f" {root.kind}"
        lines = [f"{root.severity}{kind}  {name}"]
        if root.text:
            lines.append(f"    {_short(root.text, 400)}" + (" (the first of them)" if many > 1 else ""))
        if self.news is News.STILL:
            lines.append(f"    since {_time(min(alert.since for alert in self.alerts))}")
        if root.how_to_fix:
            lines.append(f"    fix: {_short(root.how_to_fix, 300)}")
        if root.link:
            lines.append(f"    {root.link}")
        followers = [follower for alert in self.alerts for follower in alert.followers]
        if followers:
            lines.append(f"    follows from it: {_followers(followers, root)}")
        return lines

    def data(self) -> dict[str, Any]:
        root = self.root
        followers = [follower for alert in self.alerts for follower in alert.followers]
        return {
            "news": str(self.news),
            "kind": str(root.kind),
            "severity": str(root.severity),
            "asset": root.asset,
            "check": root.check,
            "partitions": [alert.root.partition for alert in self.alerts if alert.root.partition][:MAX_ITEMS],
            "count": len(self.alerts),
            "subject": root.subject,
            "text": root.text,
            "how_to_fix": root.how_to_fix,
            "link": root.link,
            "since": _time(min(alert.since for alert in self.alerts)),
            "followers": [_follower(follower, root) for follower in followers[:MAX_ITEMS]],
            "followers_count": len(followers),
        }


def _follower(problem: Problem, root: Problem) -> str:
    asset = "" if problem.asset == root.asset else f"{problem.asset} "
    kind = "" if problem.kind is Kind.CHECK else f" ({problem.kind}: {_short(problem.text, 120)})"
    return f"{asset}{problem.check}{kind}".strip() or f"{problem.subject}{kind}"


def _followers(followers: Sequence[Problem], root: Problem) -> str:
    names = Counter(_follower(follower, root) for follower in followers)
    shown = [name if count == 1 else f"{name} x {count}" for name, count in names.most_common(_FOLLOWERS)]
    return _short(", ".join(shown), 400) + (f" and {len(names) - _FOLLOWERS} more" if len(names) > _FOLLOWERS else "")


def _items(alerts: Iterable[Alert]) -> list[_Item]:
    """Alerts folded where only the partition differs, in the order in which they came."""
    folded: dict[tuple[object, ...], _Item] = {}
    for alert in alerts:
        root = alert.root
        key: tuple[object, ...] = (alert.news, root.kind, root.asset, root.check, root.severity)
        if not root.partition:
            key = (*key, root.key)
        folded.setdefault(key, _Item(alert.news, [])).alerts.append(alert)
    items = []
    for item in folded.values():
        few = len(item.alerts) <= 3
        items += [_Item(item.news, [alert]) for alert in item.alerts] if few else [item]
    return items


def _body(blocks: Sequence[list[str]], max_items: int, foot: str) -> str:
    shown: list[str] = []
    size = 0
    count = 0
    for block in blocks[:max_items]:
        text = "\n".join(block)
        if size + len(text) > MAX_BODY:
            break
        shown.append(text)
        size += len(text) + 1
        count += 1
    if count < len(blocks):
        shown.append(f"... and {len(blocks) - count} more. {foot}".rstrip())
    return "\n".join(shown)


def compose(location: str, alerts: Sequence[Alert], now: float, max_items: int = MAX_ITEMS, page: str = "") -> Message:
    """One message that tells all of `alerts` (at least one), at most `max_items` of them in full, the rest counted."""
    items = _items(alerts)
    counts = Counter(alert.news for alert in alerts)
    title = f"{location}: " + ", ".join(f"{counts[news]} {news}" for news in News if counts[news])
    failing = [alert for alert in alerts if alert.news in (News.NEW, News.STILL)]
    if not failing:
        level = "success" if counts[News.RECOVERED] else "info"
    else:
        level = "failure" if any(alert.root.severity is Severity.ERROR for alert in failing) else "warning"
    blocks: list[list[str]] = []
    for news in News:
        lines = [item.lines() for item in items if item.news is news]
        if lines:
            lines[0] = [f"{str(news).upper()}", *lines[0]]
        blocks += lines
    data = [item.data() for item in items[:max_items]]
    return Message(uuid.uuid4().hex, _time(now), location, title, _body(blocks, max_items, page), level, data)


def digest(
    location: str,
    failing: Sequence[Incident],
    muted: Sequence[tuple[Incident, Mute]],
    now: float,
    max_items: int = MAX_ITEMS,
    page: str = "",
) -> Message:
    """The morning message: everything that is failing, what is muted and until when, or that all is well."""
    items = _items(Alert(News.STILL, i.root, tuple(i.followers), i.opened) for i in failing)
    blocks = [item.lines() for item in items]
    for incident, mute in muted:
        reason = f" ({_short(mute.reason, 80)})" if mute.reason else ""
        blocks.append([f"muted until {mute.until}  {incident.root.name}{reason}"])
    if not blocks:
        blocks = [["Nothing is failing."]]
    title = f"{location} this morning: {len(failing)} failing"
    title += f", {len(muted)} muted" if muted else ""
    level = "failure" if any(i.root.severity is Severity.ERROR for i in failing) else "warning" if failing else "info"
    data = [item.data() for item in items[:max_items]]
    return Message(uuid.uuid4().hex, _time(now), location, title, _body(blocks, max_items, page), level, data)
