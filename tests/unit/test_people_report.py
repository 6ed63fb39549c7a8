"""The nightly page: what it says first, what it leaves out, and that it needs nothing but itself."""

import datetime
import re
from html.parser import HTMLParser

import pytest

from resources import figures as style
from resources.findings import Finding, Severity
from resources.report import MAX_ROWS, Number, Picture, Report, Section, State, Table, Trouble, render, tasks, verdict

NOW = datetime.datetime(2026, 11, 30, 2, 30, tzinfo=datetime.UTC)


def _trouble(subject: str, severity: Severity = Severity.ERROR, fix: str = "run it again", link: str = "") -> Trouble:
    finding = Finding("span_missing", severity, f"cache/{subject}.npz", "4.9 s are missing", fix, 3, ("15.1", "15.2"))
    return Trouble(subject, finding, link)


def _report(*troubles: Trouble, **changes: object) -> Report:
    section = Section("DMS facemesh", "One route is short.", troubles=troubles)
    values: dict[str, object] = {"title": "The night", "made": NOW, "sections": (section,)}
    return Report(**(values | changes))  # type: ignore[arg-type]


class _Page(HTMLParser):
    """Collects the tags with their attributes, and checks that each that was opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def test_what_to_do_names_each_remedy_once_errors_first() -> None:
    troubles = (
        _trouble("a", Severity.WARN, "look at the video"),
        _trouble("b"),
        _trouble("c"),
        _trouble("d", Severity.ERROR, "move the file aside"),
    )
    found = tasks([Section("one", "", troubles=troubles)])
    assert [(task.how_to_fix, len(task.troubles)) for task in found] == [
        ("run it again", 2),
        ("move the file aside", 1),
        ("look at the video", 1),
    ]


@pytest.mark.parametrize(
    ("troubles", "missing", "state", "words"),
    [
        ((), (), State.OK, "No finding: everything that was looked at is in order"),
        ((), ("dms/flow",), State.WARN, "No finding, but not everything could be told"),
        ((_trouble("a", Severity.WARN),), (), State.WARN, "1 warning"),
        ((_trouble("a"), _trouble("b"), _trouble("c", Severity.WARN)), (), State.ERROR, "2 errors and 1 warning"),
    ],
)
def test_the_verdict_is_never_better_than_the_worst_finding(
    troubles: tuple[Trouble, ...], missing: tuple[str, ...], state: State, words: str
) -> None:
    assert verdict(_report(*troubles, missing=missing)) == (state, words)


def test_the_page_is_whole_and_loads_nothing_from_anywhere() -> None:
    figure = style.new_figure("Coverage")
    section = Section(
        "Stores",
        "All in order.",
        numbers=(Number("covered", "9 of 12", "75 %", State.ERROR),),
        troubles=(_trouble("a", link="http://127.0.0.1:3000/assets/x"),),
        tables=(Table("Routes", ("route", "state"), (("r1", "partial"),)),),
        pictures=(Picture.of(figure),),
    )
    page = _Page(render(_report(sections=(section,))))
    loaded = [value for tag, attrs in page.tags for name, value in attrs.items() if name in ("src", "srcset", "data")]
    assert loaded
    assert all((value or "").startswith("data:image/svg+xml;base64,") for value in loaded)
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "iframe", "object")]
    assert [attrs["alt"] for tag, attrs in page.tags if tag == "img"] == ["Coverage"]
    assert "url(" not in render(_report(sections=(section,)))


def test_names_from_the_disk_are_escaped_everywhere() -> None:
    evil = "<script>alert(1)</script>"
    finding = Finding(evil, Severity.ERROR, evil, evil, f"`{evil}`", 1, (evil,))
    section = Section(
        evil, evil, (Number(evil, evil, evil),), (Trouble(evil, finding),), (Table(evil, (evil,), ((evil,),)),)
    )
    text = render(_report(sections=(section,), missing=(evil,), title=evil))
    _Page(text)
    assert "<script" not in text
    assert "<code>&lt;script&gt;alert(1)&lt;/script&gt;</code>" in text


def test_a_long_table_shows_its_first_rows_and_counts_the_rest() -> None:
    rows = tuple((f"route_{i}",) for i in range(MAX_ROWS + 5))
    text = render(_report(sections=(Section("s", "", tables=(Table("Routes", ("route",), rows, total=900),)),)))
    assert len(re.findall(r">route_\d+<", text)) == MAX_ROWS
    assert f"and {900 - MAX_ROWS} more rows" in text


def test_ten_thousand_findings_make_a_page_that_a_phone_can_open() -> None:
    text = render(_report(*[_trouble(f"route_{i}", fix=f"fix {i % 200}") for i in range(10_000)]))
    assert len(text) < 100_000
    assert "10000 findings" in text
    assert "and 9950 more" in text


def test_a_link_leads_to_the_page_of_its_subject() -> None:
    page = _Page(render(_report(_trouble("a", link="http://127.0.0.1:3000/assets/x?partition=a"))))
    links = [attrs.get("href") for tag, attrs in page.tags if tag == "a"]
    assert links.count("http://127.0.0.1:3000/assets/x?partition=a") == 2  # in what to do, and in its section


def test_every_state_has_a_sign_besides_its_colour() -> None:
    numbers = tuple(Number(state, "1", state=state) for state in State)
    text = render(_report(sections=(Section("s", "", numbers),)))
    assert [text.count(f'value">{sign} 1') for sign in "✓▲✕"] == [1, 1, 1]


def test_a_time_without_its_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        render(_report(made=datetime.datetime(2026, 11, 30)))  # noqa: DTZ001


def test_the_same_report_gives_the_same_page() -> None:
    assert render(_report(_trouble("a"))) == render(_report(_trouble("a")))
