"""What is failing, what of it was told, and what is to be told next. Plain data and one transition; no Dagster, no I/O.

Belongs here: problems, the incidents that gather them, mutes, and the rule of what is news. Does not belong here: how
problems are found (`resources.watching`), worded (`resources.alert_text`) or delivered (`resources.delivery`).

An incident is one cause on one subject (a route, a store) with everything that follows from it. It is told when it
opens, again after the repeat window, and once when all of it is over. A problem joins instead of alerting when it
appears together with the incident, when the incident's root is a cause of everything on its subject (`cause`), or when
every subject that it is about has an incident already. When the root is over and something that was listed below it
lasts, the root's end is told, and what lasts becomes an incident of its own: it was no consequence, or needs work too.
"""

from __future__ import annotations

import datetime
import fnmatch
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from resources.findings import Severity

MAX_TEXT = 400


class Kind(StrEnum):
    """What kind of thing went wrong."""

    CHECK = "check failed"
    COULD_NOT_RUN = "could not run"
    RUN = "run failed"
    INSTIGATOR = "sensor or schedule in error"
    LOCATION = "code location down"


class News(StrEnum):
    """Why an alert is told."""

    NEW = "new"
    STILL = "still failing"
    RECOVERED = "recovered"
    GONE = "no longer watched"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `key` stays the same while it goes on; `version` changes when it is found again.

    `subject` groups what has one cause (a route's uid, a store's name); `family` is the part of the pipeline it is in
    (a baseline, the VIN assets). The smaller `rank`, the nearer to the cause. `cause`: while this goes on, anything of
    the same subject and family follows from it. `about`: the subjects that a check of a whole asset complains of.
    """

    key: str
    kind: Kind
    subject: str
    family: str = ""
    asset: str = ""
    check: str = ""
    partition: str = ""
    severity: Severity = Severity.ERROR
    text: str = ""
    how_to_fix: str = ""
    link: str = ""
    rank: int = 0
    cause: bool = False
    run_id: str = ""
    version: int = 0
    about: tuple[str, ...] = ()

    @property
    def leads(self) -> bool:
        """Whether it can be an incident of its own after its cause is over: it neither sums up others nor is history.

        A failed run whose cause is gone is history: nothing may ever launch it again.
        """
        return not self.about and self.kind is not Kind.RUN

    @property
    def name(self) -> str:
        """Asset, partition and check in one line."""
        place = f"{self.asset} [{self.partition}]" if self.partition else self.asset
        return " ".join(part for part in (place, self.check) if part) or self.subject


@dataclass(frozen=True, slots=True)
class Mute:
    """A known failure that is not told before `until`. Patterns are as in file names; "" matches everything."""

    until: datetime.date
    asset: str = ""
    check: str = ""
    partition: str = ""
    reason: str = ""

    def covers(self, problem: Problem, today: datetime.date) -> bool:
        """Whether `problem` is muted on `today`."""
        pairs = ((self.asset, problem.asset), (self.check, problem.check), (self.partition, problem.partition))
        return today < self.until and all(not pattern or fnmatch.fnmatchcase(text, pattern) for pattern, text in pairs)


@dataclass(slots=True)
class Incident:
    """One cause and what follows from it. Times are seconds since 1970; `told` is None until it was told.

    `root_over` is when the root was found to be fine, None while it goes on.
    """

    id: str
    root: Problem
    opened: float
    changed: float
    members: dict[str, Problem] = field(default_factory=dict)
    over: dict[str, Problem] = field(default_factory=dict)
    told: float | None = None
    root_over: float | None = None

    @property
    def goes_on(self) -> bool:
        """Whether anything is still wrong: the root, or what can lead an incident itself."""
        return self.root.key in self.members or bool(self.lasting)

    @property
    def lasting(self) -> list[Problem]:
        """What is still wrong and can lead an incident of its own."""
        return [problem for problem in self.members.values() if problem.leads]

    @property
    def followers(self) -> list[Problem]:
        """Everything but the root, nearest to the cause first."""
        found = {**self.over, **self.members}
        found.pop(self.root.key, None)
        return sorted(found.values(), key=lambda problem: (problem.rank, problem.key))

    def end(self, key: str, now: float) -> None:
        """Take a member for over."""
        self.over[key] = self.members.pop(key)
        self.changed = now
        if key == self.root.key:
            self.root_over = now

    def rest(self) -> Incident:
        """An incident of what lasts when the root is over; not told yet."""
        root = min(self.lasting, key=lambda item: (item.severity is not Severity.ERROR, item.rank, item.key))
        return Incident(uuid.uuid4().hex, root, self.opened, self.changed, self.members)


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to tell: an incident's root, what follows from it, and since when (seconds since 1970)."""

    news: News
    root: Problem
    followers: tuple[Problem, ...]
    since: float


@dataclass(frozen=True, slots=True)
class Policy:
    """When things are told. Seconds. `settle_s` lets everything that has one cause come in before it is told.

    Within `gather_s` of an incident, the same check of the same subject in another family belongs to it: a wanted span
    that was added fails in every baseline, each of which is judged in a run of its own. For as long, its repair in one
    of them is not told. Anything else has `linger_s` after the root's end to pass as well.
    """

    repeat_s: float = 24 * 3600.0
    settle_s: float = 20.0
    mutes: tuple[Mute, ...] = ()
    gather_s: float = 7200.0
    linger_s: float = 300.0

    def muted(self, problem: Problem, today: datetime.date) -> Mute | None:
        """The mute that covers `problem`, if any."""
        return next((mute for mute in self.mutes if mute.covers(problem, today)), None)


def _before(one: Problem, other: Problem) -> bool:
    """Whether `one` is nearer to the cause than `other`."""
    return (one.severity is not Severity.ERROR, one.rank, one.key) < (
        other.severity is not Severity.ERROR,
        other.rank,
        other.key,
    )


@dataclass(slots=True)
class Incidents:
    """Every open incident, by id."""

    open: dict[str, Incident] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        """All open problems."""
        return [problem for incident in self.open.values() for problem in incident.members.values()]

    def step(
        self,
        now: float,
        today: datetime.date,
        policy: Policy,
        seen: Iterable[Problem] = (),
        cleared: Iterable[str] = (),
        gone: Iterable[str] = (),
    ) -> list[Alert]:
        """Take in what was found since the last step and return what is to be told.

        `seen` holds problems found (again), `cleared` keys that are fine now, `gone` keys that are watched no longer.
        The order of `seen` does not matter.
        """
        holder = {key: incident for incident in self.open.values() for key in (*incident.over, *incident.members)}
        for key in cleared:
            if (incident := holder.get(key)) and key in incident.members:
                incident.end(key, now)
        by_subject: dict[str, list[Incident]] = {}
        for incident in self.open.values():
            by_subject.setdefault(incident.root.subject, []).append(incident)
        # What is about other subjects comes last, so that it finds their incidents.
        for problem in sorted(seen, key=lambda item: (bool(item.about), item.rank, item.key)):
            incident = holder.get(problem.key)
            if incident is None:
                incident = self._home(problem, by_subject, policy, now, today)
                if incident is None:
                    incident = Incident(uuid.uuid4().hex, problem, now, now)
                    self.open[incident.id] = incident
                    by_subject.setdefault(problem.subject, []).append(incident)
                holder[problem.key] = incident
            if problem.key not in incident.members:
                incident.changed = now
            before = incident.over.pop(problem.key, None) or incident.members.get(problem.key, problem)
            incident.members[problem.key] = problem
            if problem.severity is Severity.ERROR and before.severity is Severity.WARN and incident.told is not None:
                incident.told = now - policy.repeat_s  # it became worse: told again at once
            if problem.key == incident.root.key or (
                incident.told is None
                and problem.subject == incident.root.subject
                and not policy.muted(problem, today)
                and not problem.about
                and (incident.root.about or _before(problem, incident.root))
            ):
                incident.root, incident.root_over = problem, None
        lost = set()
        for key in gone:
            if (incident := holder.get(key)) and key in incident.members:
                incident.end(key, now)
                lost.add(key)
        return self._tell(now, today, policy, lost)

    def _home(
        self,
        problem: Problem,
        by_subject: dict[str, list[Incident]],
        policy: Policy,
        now: float,
        today: datetime.date,
    ) -> Incident | None:
        """The incident that a problem not seen before belongs to, or None when it is a cause of its own."""
        for incident in by_subject.get(problem.subject, ()):
            root = incident.root
            if incident.told is None and incident.members and not policy.muted(root, today):
                return incident
            explains = problem.severity is Severity.WARN or root.severity is Severity.ERROR
            if not explains or root.key not in incident.members:
                continue
            others = {item.check for item in incident.members.values() if item.family != problem.family}
            same = problem.check in others and now - incident.opened <= policy.gather_s
            if same or (root.cause and root.family == problem.family):
                return incident
        if problem.about:
            homes = [[i for i in by_subject.get(subject, ()) if i.goes_on] for subject in problem.about]
            if all(homes):
                return homes[0][0]
        return None

    def _tell(self, now: float, today: datetime.date, policy: Policy, lost: set[str]) -> list[Alert]:
        alerts = []
        waiting = list(self.open.values())
        for incident in waiting:
            settled = now - incident.changed >= policy.settle_s or now - incident.opened >= 5 * policy.settle_s
            if incident.told is None:
                if not incident.goes_on:
                    del self.open[incident.id]
                    continue
                if incident.root.key not in incident.members:
                    incident.root, incident.root_over = incident.rest().root, None
                if settled and not policy.muted(incident.root, today):
                    alerts.append(Alert(News.NEW, incident.root, tuple(incident.followers), incident.opened))
                    incident.told = now
                    incident.over.clear()
            elif incident.root_over is not None or not incident.goes_on:
                if (news := self._ended(incident, now, policy, lost)) is None:
                    continue
                del self.open[incident.id]
                if incident.goes_on:
                    rest = incident.rest()
                    incident.members = {}
                    self.open[rest.id] = rest
                    waiting.append(rest)
                alerts.append(Alert(news, incident.root, tuple(incident.followers), incident.opened))
            elif now - incident.told >= policy.repeat_s and not policy.muted(incident.root, today):
                alerts.append(Alert(News.STILL, incident.root, tuple(incident.followers), incident.opened))
                incident.told = now
                incident.over.clear()
        order = list(News)
        return sorted(alerts, key=lambda a: (order.index(a.news), a.root.severity, a.root.asset, a.root.key))

    def _ended(self, incident: Incident, now: float, policy: Policy, lost: set[str]) -> News | None:
        """How the end of an incident that was told is told now; None when it is too early to."""
        if incident.root.key in lost or (lost & set(incident.over) and not incident.goes_on):
            return News.GONE
        if not incident.goes_on:
            return News.RECOVERED if now - incident.changed >= policy.settle_s else None
        elsewhere = any(item.check == incident.root.check for item in incident.lasting)
        since = incident.changed if incident.root_over is None else incident.root_over
        return News.RECOVERED if now - since >= (policy.gather_s if elsewhere else policy.linger_s) else None


def muted_and_not(
    incidents: Incidents, policy: Policy, today: datetime.date
) -> tuple[Sequence[Incident], Sequence[tuple[Incident, Mute]]]:
    """The open incidents that are told, and the muted ones each with its mute; oldest first."""
    told, muted = [], []
    for incident in sorted(incidents.open.values(), key=lambda item: (item.opened, item.id)):
        if not incident.goes_on:
            continue
        if incident.root_over is not None:
            incident = incident.rest()  # what is over is not listed as failing
        mute = policy.muted(incident.root, today)
        if mute:
            muted.append((incident, mute))
        else:
            told.append(incident)
    return told, muted
