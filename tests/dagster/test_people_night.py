"""The nightly report says what Dagster's history says: what is there, what fails and why, what could not be told."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from demo.report import graphs, write
from dms_assets.definitions import build_defs as dms_definitions
from resources import figures
from resources.config import load_settings
from resources.events import Checked, Happened, Materialised, PartitionFailedError, run_checks, run_partitions
from resources.findings import Finding, Severity
from resources.night import night_report
from resources.report import MAX_TROUBLES, Report, Section, State, render, tasks, verdict
from resources.report_asset import publish_page
from vin_assets.definitions import build_defs as vin_definitions

ROUTES = dg.DynamicPartitionsDefinition(name="route")
CACHE, TOTAL = dg.AssetKey(["dms", "toy", "route_cache"]), dg.AssetKey(["dms", "toy", "coverage"])
NOW = datetime.datetime(2026, 11, 30, 3, tzinfo=datetime.UTC)


def judged(route: str) -> Checked:
    found = [
        Finding("gap", Severity.ERROR, f"cache/{route}.npz", "4.9 s are missing: 15.1 to 19.9 s", "extract again", 49),
        Finding("few_valid", Severity.WARN, f"cache/{route}.npz", "31 % are valid", "look at the video"),
    ]
    return Checked.of_findings(CACHE, "covered", route, found if route.startswith("bad") else [])


@dg.asset(
    key=CACHE,
    partitions_def=ROUTES,
    output_required=False,
    backfill_policy=dg.BackfillPolicy.single_run(),
    description="The cache of a route.\n\nMore about it.",
)
def cache(context: dg.AssetExecutionContext) -> Iterator[dg.AssetMaterialization]:
    def work(route: str) -> Iterator[Happened]:
        if route == "lost":
            raise PartitionFailedError("the video is gone")
        figure = figures.new_figure(f"Timeline of {route}")
        told = {"seconds": 12.5, "rows": 120, "figures": dg.MetadataValue.md(figures.markdown([figure]))}
        yield Materialised(CACHE, route, "v", told)
        yield judged(route)

    yield from run_partitions(context, work)


@dg.asset_check(asset=CACHE, name="covered", partitions_def=ROUTES)
def covered(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return run_checks(context, judged, CACHE, "covered")


@dg.asset(key=TOTAL, deps=[CACHE], description="All routes.")
def coverage() -> dg.MaterializeResult:  # type: ignore[type-arg]
    return dg.MaterializeResult(metadata={"routes_covered": 2, "share": 0.6667})


@dg.asset_check(asset=TOTAL, name="enough")
def enough() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description="2 of 3 routes")


DEFS = dg.Definitions(
    assets=[cache, coverage, dg.AssetSpec(["dms", "video"], description="Never looked at.")],
    asset_checks=[covered, enough],
    jobs=[
        dg.define_asset_job("caches", selection=dg.AssetSelection.assets(CACHE)),
        dg.define_asset_job("totals", selection=dg.AssetSelection.assets(TOTAL)),
    ],
    executor=dg.in_process_executor,
)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as made:
        yield made


def _run(instance: dg.DagsterInstance, job: str, *routes: str) -> None:
    tags = {}
    if routes:
        tags = {"dagster/asset_partition_range_start": routes[0], "dagster/asset_partition_range_end": routes[-1]}
    DEFS.resolve_job_def(job).execute_in_process(instance=instance, tags=tags, raise_on_error=False)


def _report(instance: dg.DagsterInstance, made: datetime.datetime = NOW) -> Report:
    return night_report(instance, {"toy": DEFS.resolve_asset_graph()}, made=made, webserver_url="http://127.0.0.1:3000")


def _section(report: Report, title: str) -> Section:
    return next(one for one in report.sections if one.title == title)


def test_a_night_is_told_with_its_findings_numbers_and_figures(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("route", ["bad", "good"])
    _run(instance, "caches", "bad", "good")
    _run(instance, "totals")
    report = _report(instance)

    assert verdict(report)[1] == "1 error and 2 warnings"
    assert tasks(report.sections)[0].how_to_fix == "extract again"
    section = _section(report, "dms/toy/route_cache")
    assert section.lead == "The cache of a route."
    assert [(one.subject, one.finding.code, one.finding.text) for one in section.troubles] == [
        ("dms/toy/route_cache bad", "gap", "4.9 s are missing: 15.1 to 19.9 s"),
        ("dms/toy/route_cache bad", "few_valid", "31 % are valid"),
    ]
    assert section.troubles[0].link == (
        "http://127.0.0.1:3000/assets/dms/toy/route_cache?view=checks&checkDetail=covered"
    )
    assert section.tables[0].rows == (("bad", "covered", "12.5", "120"), ("good", "none", "12.5", "120"))
    assert [(one.title, one.subject) for one in section.pictures] == [
        ("Timeline of bad", "bad"),
        ("Timeline of good", "good"),
    ]
    totals = _section(report, "dms/toy/coverage")
    assert {one.label: one.value for one in totals.numbers} == {
        "check results that pass": "0 of 1",
        "routes covered": "2",
        "share": "0.6667",
    }
    assert [one.finding.text for one in totals.troubles] == ["2 of 3 routes"]
    assert [one.title for one in report.sections] == ["Overview", "dms/toy/coverage", "dms/toy/route_cache"]
    assert "Timeline of bad" in render(report)


def test_what_was_never_made_keeps_the_page_from_saying_that_all_is_well(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("route", ["good", "later"])
    _run(instance, "caches", "good", "good")
    report = _report(instance)
    assert report.missing == ("dms/toy/route_cache: never materialised for later",)
    assert verdict(report)[0] is State.WARN


def test_a_check_that_never_answered_is_told_as_such(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("route", ["lost"])
    _run(instance, "caches", "lost", "lost")
    report = _report(instance, datetime.datetime.now(datetime.UTC))
    assert set(report.missing) == {
        "dms/toy/route_cache: never materialised for lost",
        "dms/toy/route_cache: covered never answered for 1 partition",
    }
    runs = _section(report, "Runs that failed")
    assert [row[1:3] for row in runs.tables[0].rows] == [("caches", "lost")]
    assert "the video is gone" in runs.tables[0].rows[0][3] or "1 of 1 partitions failed" in runs.tables[0].rows[0][3]


def test_a_thousand_failing_routes_are_counted_and_the_first_are_told(instance: dg.DagsterInstance) -> None:
    routes = [f"bad_{number:03d}" for number in range(MAX_TROUBLES + 5)]
    instance.add_dynamic_partitions("route", routes)
    _run(instance, "caches", routes[0], routes[-1])
    section = _section(_report(instance), "dms/toy/route_cache")
    assert f"The first {MAX_TROUBLES} of {len(routes)} failing check results are told here." in section.lead
    assert len({one.subject for one in section.troubles}) == MAX_TROUBLES
    assert section.tables[0].total == len(routes)
    assert len(section.pictures) <= 12


def test_a_code_location_that_does_not_load_is_named_and_the_other_is_told(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_location.py").write_text("raise RuntimeError('no such model')")
    (tmp_path / "good_location.py").write_text("from tests.dagster.test_people_night import DEFS as defs")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("VIN_DMS_OUTPUT_ROOT", str(tmp_path / "out"))
    loaded, broken = graphs(["broken_location", "good_location"])
    assert list(loaded) == ["good_location"]
    page = write(instance, load_settings(), loaded, broken)
    assert page.parent == tmp_path / "out" / "report"
    assert "code location broken_location: RuntimeError: no such model" in page.read_text()
    assert list(page.parent.iterdir()) == [page]


@pytest.mark.parametrize("location", ["vin", "dms"])
def test_each_location_writes_its_page_as_an_asset_and_leaves_the_page_itself_out(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    monkeypatch.setenv("VIN_DMS_OUTPUT_ROOT", str(tmp_path / "out"))
    build = vin_definitions if location == "vin" else dms_definitions
    definitions = build(load_settings())
    for _ in range(2):
        result = definitions.resolve_job_def(f"{location}_report").execute_in_process(instance=instance)
        assert result.success
    (page,) = (tmp_path / "out" / "report").iterdir()
    assert page.name.startswith(f"{location}-20")
    assert "Night of 20" in page.read_text()
    assert f"{location}/report" not in page.read_text()


def test_only_the_newest_pages_are_kept_and_those_of_another_name_stay(tmp_path: Path) -> None:
    settings = load_settings().model_copy(update={"output_root": tmp_path, "keep_results": 2})
    for day in range(1, 5):
        made = datetime.datetime(2026, 11, day, tzinfo=datetime.UTC)
        publish_page(settings, Report("Night", made, ()), "vin")
    publish_page(settings, Report("Night", made, ()), "night")
    names = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert names == ["night-2026-11-04.html", "vin-2026-11-03.html", "vin-2026-11-04.html"]
