"""What is news and what is not: incidents over time, without Dagster."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from resources.alert_state import Alert, Incidents, Kind, Mute, News, Policy, Problem, muted_and_not
from resources.findings import Severity

DAY = datetime.date(2026, 3, 1)
POLICY = Policy(repeat_s=1000, settle_s=20)


def problem(partition: str, check: str = "cache_valid", rank: int = 0, **more: object) -> Problem:
    family = str(more.pop("family", "dms/toy"))
    made = Problem(
        key=f"{family}:{check}:{partition}",
        kind=Kind.CHECK,
        subject=partition,
        family=family,
        asset=f"{family}/route_cache",
        check=check,
        partition=partition,
        rank=rank,
    )
    return replace(made, **more)  # type: ignore[arg-type]


class Clock:
    """Steps at given seconds on one set of incidents."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.incidents = Incidents()
        self.policy = policy

    def at(
        self, now: float, *seen: Problem, cleared: tuple[str, ...] = (), gone: tuple[str, ...] = (), day: int = 0
    ) -> list[Alert]:
        today = DAY + datetime.timedelta(days=day)
        return self.incidents.step(now, today, self.policy, seen, cleared, gone)


def told(alerts: list[Alert]) -> list[tuple[News, str]]:
    return [(alert.news, alert.root.name) for alert in alerts]


def test_a_failure_is_told_once_and_its_recovery_once() -> None:
    clock = Clock()
    bad = problem("a")
    assert clock.at(0, bad) == []
    assert told(clock.at(20)) == [(News.NEW, "dms/toy/route_cache [a] cache_valid")]
    assert clock.at(40, bad) == []
    assert clock.at(60, cleared=(bad.key,)) == []
    assert [alert.news for alert in clock.at(80)] == [News.RECOVERED]
    assert clock.at(200) == []
    assert clock.incidents.open == {}


def test_a_failure_that_goes_on_is_told_again_after_the_repeat_window() -> None:
    clock = Clock()
    clock.at(0, problem("a"))
    clock.at(20)
    assert clock.at(1019) == []
    assert [alert.news for alert in clock.at(1020)] == [News.STILL]
    assert clock.at(1030) == []
    assert [alert.news for alert in clock.at(2020)] == [News.STILL]


def test_what_appears_together_on_a_route_is_one_alert_with_the_cause_as_its_root() -> None:
    clock = Clock()
    clock.at(0, problem("a", "span_coverage", 2), problem("a", "rows_fill_spans", 1))
    clock.at(5, problem("a", "cache_valid", 0))
    (alert,) = clock.at(25)
    assert alert.root.check == "cache_valid"
    assert [follower.check for follower in alert.followers] == ["rows_fill_spans", "span_coverage"]


def test_a_warning_never_hides_an_error_as_the_root() -> None:
    clock = Clock()
    clock.at(0, problem("a", "provenance_current", 0, severity=Severity.WARN), problem("a", "span_coverage", 5))
    (alert,) = clock.at(20)
    assert alert.root.check == "span_coverage"


def test_what_follows_later_from_a_cause_is_not_told_again() -> None:
    clock = Clock()
    clock.at(0, problem("a", cause=True))
    assert len(clock.at(20)) == 1
    clock.at(100, problem("a", "span_coverage", 2))
    assert clock.at(200) == []
    keys = tuple(p.key for p in clock.incidents.problems())
    assert len(keys) == 2
    clock.at(210, cleared=keys[:1])
    assert clock.at(300) == [], "recovered only when everything is over"
    clock.at(310, cleared=keys[1:])
    assert [alert.news for alert in clock.at(400)] == [News.RECOVERED]


def test_a_repaired_cause_is_told_although_something_that_followed_from_it_lasts() -> None:
    clock = Clock()
    cause, follower = problem("a", cause=True), problem("a", "valid_fraction", 4, severity=Severity.WARN)
    clock.at(0, cause, follower)
    assert told(clock.at(20)) == [(News.NEW, cause.name)]
    assert clock.at(100, cleared=(cause.key,)) == []
    assert clock.at(399) == [], "what follows from it has time to pass as well"
    failing, _ = muted_and_not(clock.incidents, POLICY, DAY)
    assert [incident.root for incident in failing] == [follower], "a digest lists what fails"
    assert told(clock.at(400)) == [(News.NEW, follower.name), (News.RECOVERED, cause.name)]
    assert [alert.news for alert in clock.at(1400)] == [News.STILL], "from then on it is an item of its own"
    clock.at(1500, cleared=(follower.key,))
    assert told(clock.at(1520)) == [(News.RECOVERED, follower.name)]
    assert clock.incidents.open == {}


def test_a_cause_that_fails_again_before_its_end_was_told_has_not_ended() -> None:
    clock = Clock()
    cause, follower = problem("a", cause=True), problem("a", "valid_fraction", 4)
    clock.at(0, cause, follower)
    clock.at(20)
    clock.at(100, cleared=(cause.key,))
    clock.at(200, replace(cause, version=2))
    assert clock.at(600) == []
    clock.at(700, cleared=(cause.key, follower.key))
    assert told(clock.at(720)) == [(News.RECOVERED, cause.name)]


def test_what_lasts_after_its_cause_is_silent_while_it_is_muted() -> None:
    clock = Clock(replace(POLICY, mutes=(Mute(DAY + datetime.timedelta(days=9), check="valid_fraction"),)))
    cause, follower = problem("a", cause=True), problem("a", "valid_fraction", 4)
    clock.at(0, cause, follower)
    clock.at(20)
    clock.at(100, cleared=(cause.key,))
    assert told(clock.at(400)) == [(News.RECOVERED, cause.name)]
    _, muted = muted_and_not(clock.incidents, clock.policy, DAY)
    assert [incident.root for incident, _ in muted] == [follower]


def test_a_repair_in_one_baseline_waits_for_the_same_check_in_the_others_and_then_is_told_all_the_same() -> None:
    clock = Clock(replace(POLICY, repeat_s=100_000))
    one, other = problem("a", "span_coverage"), problem("a", "span_coverage", family="dms/other")
    clock.at(0, one, other)
    first = clock.at(20)[0].root
    (second,) = {one, other} - {first}
    clock.at(100, cleared=(first.key,))
    assert clock.at(7299) == []
    assert told(clock.at(7300)) == [(News.NEW, second.name), (News.RECOVERED, first.name)]


def test_a_failed_run_below_a_cause_is_over_with_it() -> None:
    clock = Clock()
    bad = problem("a", "span_coverage", 2)
    clock.at(0, bad, problem("a", "", 9, key="run:killed", kind=Kind.RUN))
    assert told(clock.at(20)) == [(News.NEW, bad.name)]
    clock.at(100, cleared=(bad.key,))
    assert told(clock.at(120)) == [(News.RECOVERED, bad.name)]
    assert clock.incidents.open == {}


def test_what_lasts_after_a_retired_cause_becomes_an_item_of_its_own_at_once() -> None:
    clock = Clock()
    cause, follower = problem("a", cause=True), problem("a", "valid_fraction", 4)
    clock.at(0, cause, follower)
    clock.at(20)
    assert told(clock.at(200, gone=(cause.key,))) == [(News.NEW, follower.name), (News.GONE, cause.name)]


def test_an_independent_failure_on_the_same_route_is_told() -> None:
    clock = Clock()
    clock.at(0, problem("a", "span_coverage", 2))
    clock.at(20)
    clock.at(100, problem("a", "valid_fraction", 4))
    assert told(clock.at(120)) == [(News.NEW, "dms/toy/route_cache [a] valid_fraction")]
    clock = Clock()
    clock.at(0, problem("a", cause=True))
    clock.at(20)
    clock.at(100, problem("a", "span_coverage", 2, family="dms/other"))
    assert told(clock.at(120)) == [(News.NEW, "dms/other/route_cache [a] span_coverage")]


def test_the_same_check_of_a_route_in_another_baseline_belongs_to_it_for_a_while() -> None:
    clock = Clock()
    clock.at(0, problem("a", "span_coverage"))
    clock.at(20)
    clock.at(100, problem("a", "span_coverage", family="dms/other"))
    assert clock.at(200) == []
    clock.at(8000, problem("a", "span_coverage", family="dms/third"))
    assert (News.NEW, "dms/third/route_cache [a] span_coverage") in told(clock.at(8100))


def test_a_check_of_the_whole_asset_joins_when_all_it_complains_of_is_known() -> None:
    clock = Clock()
    whole = problem("", "belief_matches_disk", 9, subject="dms/toy", about=("a", "b"))
    clock.at(0, whole, problem("a"), problem("b"))
    assert [alert.root.partition for alert in clock.at(20)] == ["a", "b"]
    clock = Clock()
    clock.at(0, whole, problem("a"))
    assert [alert.root.check for alert in clock.at(20)] == ["belief_matches_disk", "cache_valid"]


def test_a_mute_silences_until_its_date_and_no_further() -> None:
    mute = Mute(DAY + datetime.timedelta(days=1), asset="dms/toy/*", partition="a")
    clock = Clock(Policy(1000, 20, (mute,)))
    clock.at(0, problem("a"), problem("b"))
    assert [alert.root.partition for alert in clock.at(20)] == ["b"]
    unmuted, muted = muted_and_not(clock.incidents, clock.policy, DAY)
    assert [i.root.partition for i in unmuted] == ["b"]
    assert [(i.root.partition, m) for i, m in muted] == [("a", mute)]
    assert [alert.root.partition for alert in clock.at(40, day=1)] == ["a"]


def test_a_new_failure_is_not_swallowed_by_a_muted_one_on_the_same_route() -> None:
    clock = Clock(Policy(1000, 20, (Mute(DAY + datetime.timedelta(days=9), check="span_coverage"),)))
    clock.at(0, problem("a", "span_coverage", 2))
    clock.at(100, problem("a", "valid_fraction", 4))
    assert [alert.root.check for alert in clock.at(130)] == ["valid_fraction"]


def test_a_warning_that_becomes_an_error_is_told_at_once() -> None:
    clock = Clock()
    clock.at(0, problem("a", severity=Severity.WARN))
    clock.at(20)
    (alert,) = clock.at(40, problem("a"))
    assert (alert.news, alert.root.severity) == (News.STILL, Severity.ERROR)


def test_what_comes_and_goes_before_it_settles_is_not_told() -> None:
    clock = Clock()
    clock.at(0, problem("a"))
    assert clock.at(5, cleared=(problem("a").key,)) == []
    assert clock.at(100) == []
    assert clock.incidents.open == {}


def test_an_incident_that_never_settles_is_told_all_the_same() -> None:
    clock = Clock()
    alerts = []
    for step in range(12):
        alerts += clock.at(step * 10.0, problem("a", f"check_{step:02}", step))
    assert [alert.news for alert in alerts] == [News.NEW]


def test_a_failure_of_a_retired_route_is_closed_without_a_recovery() -> None:
    clock = Clock()
    clock.at(0, problem("a"))
    clock.at(20)
    assert [alert.news for alert in clock.at(40, gone=(problem("a").key,))] == [News.GONE]
    assert clock.incidents.open == {}


def test_incidents_come_back_from_json_as_they_were() -> None:
    clock = Clock()
    clock.at(0, problem("a", cause=True), problem("b", about=("a",)))
    clock.at(20)
    adapter = TypeAdapter(Incidents)
    assert adapter.validate_json(adapter.dump_json(clock.incidents)) == clock.incidents


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["v", "s", "w"]), st.booleans()), max_size=6),
        max_size=12,
    )
)
def test_every_alert_of_a_problem_is_followed_by_one_recovery_however_things_go(
    ticks: list[list[tuple[str, str, bool]]],
) -> None:
    clock = Clock(replace(POLICY, linger_s=60))
    state: dict[str, Problem] = {}
    opened: dict[str, int] = {}

    def take(alerts: list[Alert]) -> None:
        for alert in alerts:
            change = {News.NEW: 1, News.RECOVERED: -1}.get(alert.news, 0)
            key = alert.root.key
            opened[key] = opened.get(key, 0) + change
            assert opened[key] in (0, 1), "each alert has one recovery, of the same root"

    now = 0.0
    for tick in ticks:
        now += 30
        seen, cleared = [], []
        for partition, check, bad in tick:
            item = problem(partition, check, "vsw".index(check), cause=check == "v")
            if bad:
                state[item.key] = item
                seen.append(item)
            elif state.pop(item.key, None):
                cleared.append(item.key)
        last = {item.key: item for item in seen}
        take(clock.at(now, *(p for k, p in last.items() if k in state), cleared=tuple(set(cleared) - set(state))))
        assert {p.key for p in clock.incidents.problems()} >= set(state)
    take(clock.at(now + 100, cleared=tuple(state)))
    take(clock.at(now + 200))
    take(clock.at(now + 300))
    assert clock.incidents.open == {}
    assert all(count == 0 for count in opened.values())


def test_a_mute_matches_every_field_it_names() -> None:
    mute = Mute(DAY, asset="dms/*", check="cache_*", partition="")
    assert mute.covers(problem("x"), DAY - datetime.timedelta(days=1))
    assert not mute.covers(problem("x"), DAY)
    assert not mute.covers(problem("x", "other"), DAY - datetime.timedelta(days=1))


@pytest.mark.parametrize("count", [1, 200])
def test_many_failures_at_once_are_all_in_one_step(count: int) -> None:
    clock = Clock()
    clock.at(0, *(problem(f"r{i:03}") for i in range(count)))
    assert len(clock.at(20)) == count


def test_a_failed_run_that_tells_of_a_failing_route_joins_it_and_does_not_outlive_it() -> None:
    clock = Clock()
    clock.at(0, problem("a", "span_coverage", 2))
    assert len(clock.at(20)) == 1
    run = problem("", "", 0, subject="run:night", key="run:night", kind=Kind.RUN, about=("a",))
    assert clock.at(60, run) == []
    assert clock.at(100) == []
    assert clock.at(110, cleared=("dms/toy:span_coverage:a",)) == []
    (alert,) = clock.at(140)
    assert (alert.news, [follower.kind for follower in alert.followers]) == (News.RECOVERED, [Kind.RUN])
    assert clock.incidents.open == {}


def test_a_failed_run_of_one_route_is_listed_below_the_check_that_fails_with_it() -> None:
    clock = Clock()
    run = problem("a", "", 0, key="run:night", kind=Kind.RUN, about=("a",))
    clock.at(0, run, problem("a", "span_coverage", 2))
    (alert,) = clock.at(20)
    assert (alert.root.check, [follower.key for follower in alert.followers]) == ("span_coverage", ["run:night"])
    clock.at(60, problem("a", "span_coverage", 2, family="dms/other"))
    assert clock.at(100) == []
    clock.at(110, cleared=("dms/toy:span_coverage:a", "dms/other:span_coverage:a"))
    assert [alert.news for alert in clock.at(140)] == [News.RECOVERED]
