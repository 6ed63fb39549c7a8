"""Alerts are one bounded message that names asset, partition, severity, finding, remedy and page."""

from __future__ import annotations

import datetime
from dataclasses import replace

from resources.alert_state import Alert, Incident, Kind, Mute, News, Problem
from resources.alert_text import MAX_BODY, compose, digest
from resources.findings import Severity

ROOT = Problem(
    key="k",
    kind=Kind.CHECK,
    subject="d__r1",
    family="dms/toy",
    asset="dms/toy/route_cache",
    check="cache_valid",
    partition="d__r1",
    text="t is not increasing in 3 rows (12, 13, 14)",
    how_to_fix="extract the route again",
    link="http://host/assets/dms/toy/route_cache?view=checks",
)


def alerts(count: int, news: News = News.NEW) -> list[Alert]:
    return [
        Alert(news, replace(ROOT, key=f"k{i}", partition=f"d__r{i}", subject=f"d__r{i}"), (), 0.0) for i in range(count)
    ]


def test_a_message_says_what_where_how_bad_why_and_what_to_do() -> None:
    follower = replace(ROOT, key="f", check="span_coverage")
    message = compose("dms", [Alert(News.NEW, ROOT, (follower,), 0.0)], 60.0)
    assert message.title == "dms: 1 new"
    assert message.body.splitlines() == [
        "NEW",
        "ERROR  dms/toy/route_cache [d__r1] cache_valid",
        "    t is not increasing in 3 rows (12, 13, 14)",
        "    fix: extract the route again",
        "    http://host/assets/dms/toy/route_cache?view=checks",
        "    follows from it: span_coverage",
    ]
    (item,) = message.items
    assert (item["partitions"], item["followers"], message.level) == (["d__r1"], ["span_coverage"], "failure")


def test_two_hundred_failures_are_one_short_message_that_counts_them() -> None:
    message = compose("dms", alerts(200), 60.0)
    assert message.title == "dms: 200 new"
    assert "200 partitions: d__r0, d__r1" in message.body
    assert "and 190 more" in message.body
    assert len(message.body) < 600
    assert message.items[0]["count"] == 200
    assert len(message.items) == 1


def test_failures_that_differ_are_listed_up_to_the_limit_and_counted_beyond_it() -> None:
    many = [Alert(News.NEW, replace(ROOT, key=f"k{i}", check=f"check_{i}"), (), 0.0) for i in range(60)]
    message = compose("dms", many, 60.0, max_items=20, page="See http://host.")
    assert "check_19" in message.body
    assert "check_20" not in message.body
    assert message.body.endswith("... and 40 more. See http://host.")
    long = [replace(alert, root=replace(alert.root, text="x" * 5000)) for alert in many]
    assert len(compose("dms", long, 60.0, max_items=60).body) <= MAX_BODY + 100


def test_news_are_told_in_the_order_of_their_urgency() -> None:
    message = compose("dms", [*alerts(1, News.RECOVERED), *alerts(1, News.STILL), *alerts(2, News.NEW)], 60.0)
    heads = [line for line in message.body.splitlines() if line.isupper()]
    assert heads == ["NEW", "STILL FAILING", "RECOVERED"]
    assert message.title == "dms: 2 new, 1 still failing, 1 recovered"
    assert compose("dms", alerts(1, News.RECOVERED), 0.0).level == "success"
    warning = [Alert(News.NEW, replace(ROOT, severity=Severity.WARN), (), 0.0)]
    assert compose("dms", warning, 0.0).level == "warning"


def test_the_morning_digest_lists_what_fails_what_is_muted_and_says_when_all_is_well() -> None:
    incident = Incident("i", ROOT, 0.0, 0.0, {"k": ROOT}, told=0.0)
    mute = Mute(datetime.date(2026, 4, 1), reason="camera is being replaced")
    message = digest("dms", [incident], [(replace_root(incident), mute)], 60.0)
    assert message.title == "dms this morning: 1 failing, 1 muted"
    assert "muted until 2026-04-01  dms/toy/route_cache [d__r9] cache_valid (camera is being replaced)" in message.body
    assert digest("dms", [], [], 60.0).body == "Nothing is failing."


def replace_root(incident: Incident) -> Incident:
    return replace(incident, root=replace(ROOT, partition="d__r9"))
