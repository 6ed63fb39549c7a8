"""The nightly report as an asset of a code location: one page of that location, every morning.

Belongs here: the asset, its job and its schedule, and publishing a page. Does not belong here: what the page says
(`night`) and how it looks (`report`). `make report` writes one page of both locations with the same `publish_page`.
"""

import datetime
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from resources.config import Settings
from resources.files import FileRoot
from resources.metadata import metadata
from resources.night import Graph, night_report
from resources.report import Report, render, verdict

_FOLDER = "report"


@dataclass(frozen=True, slots=True)
class NightlyReport:
    """What a location adds to its definitions."""

    asset: dg.AssetsDefinition
    job: UnresolvedAssetJobDefinition
    schedule: dg.ScheduleDefinition


def publish_page(settings: Settings, report: Report, name: str) -> Path:
    """Publish a report as `report/<name>-<date>.html` below the output root; the oldest beyond `keep_results` go.

    A later page of the same day replaces the earlier one, in one step.

    Raises:
        OSError: the disk is full or the folder can't be written; the earlier page stays.
    """
    root = FileRoot(settings.output_root)
    path = f"{_FOLDER}/{name}-{report.made:%Y-%m-%d}.html"
    with root.publish(path) as file:
        file.write(render(report).encode())
    pages = [entry.name for entry in root.scan(_FOLDER, ".html") if entry.name[: -len("-0000-00-00.html")] == name]
    for old in pages[: -settings.keep_results]:
        os.unlink(root.resolve(f"{_FOLDER}/{old}"))
    return root.path / path


def nightly_report(location: str, graph: Callable[[], Graph], settings: Settings) -> NightlyReport:
    """The report of `location` ("vin" or "dms"); `graph` gives its asset graph once all is defined."""
    key = dg.AssetKey([location, "report"])

    @dg.asset(
        key=key,
        description=(
            "The night as one self-contained HTML page: what is covered, what is not, why, and what to do. For people "
            "without the user interface; opens without a server and fits a phone."
        ),
        group_name=f"{location}_overview",
        kinds={"html"},
        owners=["team:data"],
        code_version="1",
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        made = datetime.datetime.now(ZoneInfo(settings.nightly.timezone))
        url = settings.alerts.webserver_url
        told = night_report(context.instance, {location: graph()}, made=made, webserver_url=url, leave_out=[key])
        page = publish_page(settings, told, location)
        state, sentence = verdict(told)
        findings = sum(len(section.troubles) for section in told.sections)
        shown = {"verdict": f"{state}: {sentence}", "findings": findings, "page": page}
        return dg.MaterializeResult(metadata=metadata(shown))

    job = dg.define_asset_job(
        f"{location}_report", dg.AssetSelection.assets(key), description="Writes the page of the night."
    )
    schedule = dg.ScheduleDefinition(
        name=f"{location}_report_schedule",
        job=job,
        cron_schedule=settings.alerts.digest_cron,
        execution_timezone=settings.nightly.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Writes the page of the night when the morning digest is sent.",
    )
    return NightlyReport(report, job, schedule)
