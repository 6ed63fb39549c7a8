"""One self-contained HTML page a night, for people without the user interface: works from a mail or a USB stick.

Belongs here: the plain shape of a report and its rendering with the template beside this file. Does not belong here:
what a store or a route means, Dagster, reading results; whoever makes a report fills these dataclasses.

The page opens with the verdict and with what to do, errors first; one section per subject follows. It needs no server,
no script and no other file, follows the reader's light or dark setting, and fits a phone.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from resources import figures
from resources.findings import Finding, Severity

MAX_ROWS = 50
MAX_TROUBLES = 50


class State(StrEnum):
    """How a number is to be read; every state has its own sign and word as well as its colour."""

    PLAIN = "plain"
    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Number:
    """A key number: "covered", "37 of 40 routes", and a note below it."""

    label: str
    value: str
    note: str = ""
    state: State = State.PLAIN


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text. `total` counts all rows when `rows` holds only the first of them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: int | None = None

    @property
    def shown(self) -> tuple[tuple[str, ...], ...]:
        """The rows that the page shows."""
        return self.rows[:MAX_ROWS]

    @property
    def left_out(self) -> int:
        """How many rows the page does not show."""
        return max(self.total or 0, len(self.rows)) - len(self.shown)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as the page embeds it: its title, its SVG as a `data:` address, and whose it is."""

    title: str
    uri: str
    subject: str = ""

    @classmethod
    def of(cls, figure: Figure) -> Picture:
        """The picture of a figure."""
        return cls(figures.title_of(figure), figures.data_uri(figures.svg(figure)))


@dataclass(frozen=True, slots=True)
class Trouble:
    """A finding and whose it is: a store, or a route of a baseline. `link` leads to its page, if there is one."""

    subject: str
    finding: Finding
    link: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One subject: a store, a baseline, or an overview of several. `lead` says in a sentence how it stands."""

    title: str
    lead: str
    numbers: tuple[Number, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The page. `made` must carry its time zone. `missing` names what could not be told, and why."""

    title: str
    made: datetime.datetime
    sections: tuple[Section, ...]
    missing: tuple[str, ...] = ()

    def count(self, severity: Severity) -> int:
        """How many findings of a severity there are in all sections."""
        return sum(one.finding.severity is severity for section in self.sections for one in section.troubles)


@dataclass(frozen=True, slots=True)
class _Task:
    """Findings that one remedy settles."""

    severity: Severity
    how_to_fix: str
    troubles: tuple[Trouble, ...]


def tasks(sections: Iterable[Section]) -> list[_Task]:
    """What to do: one entry per remedy and severity, errors first, then the remedy that settles most."""
    groups: dict[tuple[Severity, str], list[Trouble]] = {}
    for section in sections:
        for trouble in section.troubles:
            groups.setdefault((trouble.finding.severity, trouble.finding.how_to_fix), []).append(trouble)
    found = [_Task(severity, fix, tuple(troubles)) for (severity, fix), troubles in groups.items()]
    return sorted(found, key=lambda task: (task.severity is not Severity.ERROR, -len(task.troubles)))


def verdict(report: Report) -> tuple[State, str]:
    """The state of the whole and the sentence that opens the page."""
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARN)
    parts = [figures.counted(number, word) for number, word in ((errors, "error"), (warnings, "warning")) if number]
    if parts:
        return State.ERROR if errors else State.WARN, " and ".join(parts)
    if report.missing:
        return State.WARN, "No finding, but not everything could be told"
    return State.OK, "No finding: everything that was looked at is in order"


def render(report: Report) -> str:
    """The page as one HTML text; whatever names and texts it shows are escaped.

    Raises:
        ValueError: `report.made` has no time zone.
    """
    if report.made.tzinfo is None:
        raise ValueError("a report's time needs its time zone")
    environment = Environment(
        loader=PackageLoader("resources", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    state, sentence = verdict(report)
    return environment.get_template("report.html.j2").render(
        report=report,
        state=state,
        sentence=sentence,
        tasks=tasks(report.sections),
        first=_first,
        max_troubles=MAX_TROUBLES,
    )


def _code(text: str) -> Markup:
    """A sentence that begins with a capital, with what stands between backticks set as code; everything escaped."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text[:1].upper() + text[1:]))))


def _first(items: Sequence[object], number: int) -> tuple[Sequence[object], int]:
    """The first `number` items and how many more there are."""
    return items[:number], max(len(items) - number, 0)
