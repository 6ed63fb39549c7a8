"""The entry point of the DMS code location."""

from __future__ import annotations

import dagster as dg

from dms_assets import automation, outcomes
from dms_assets.assets import (
    anchor_spans,
    driver_boxes,
    driver_video,
    overview_asset,
    route_assets,
    store_assets,
)
from dms_assets.baselines import BUILT_IN, BaselineConfigError, registry
from dms_assets.checks import route_checks, store_check
from dms_assets.files import DmsFiles
from dms_assets.jobs import route_jobs, store_job
from resources.config import Settings, settings_or_defaults
from resources.configuration_check import configuration_check, configuration_job, configuration_schedule
from resources.report_asset import nightly_report


def build_defs(settings: Settings | None = None) -> dg.Definitions:
    """The definitions under `settings`; without any, those of the configuration file, which is read once."""
    errors: list[Exception] = []
    if settings is None:
        settings, error = settings_or_defaults()
        errors += [error] if error else []
    try:
        baselines = list(registry(settings.dms.baselines).values())
    except BaselineConfigError as error:
        errors.append(error)
        baselines = list(BUILT_IN)
    own_jobs = automation.jobs(baselines)
    configuration = configuration_job("dms", outcomes.ANCHOR_SPANS)
    # The report tells of all definitions, itself among them: they exist when it runs.
    report = nightly_report("dms", lambda: definitions.resolve_asset_graph(), settings)  # noqa: PLW0108
    definitions = dg.Definitions(
        assets=[
            driver_video,
            driver_boxes,
            anchor_spans,
            *map(route_assets, baselines),
            *map(store_assets, baselines),
            overview_asset(baselines),
            report.asset,
        ],
        asset_checks=[
            *(check for baseline in baselines for check in route_checks(baseline)),
            *map(store_check, baselines),
            *map(automation.belief_check, baselines),
            configuration_check(outcomes.ANCHOR_SPANS, errors),
        ],
        jobs=[
            *own_jobs,
            *(job for baseline in baselines for job in route_jobs(baseline)),
            store_job(baselines),
            configuration,
            report.job,
        ],
        sensors=automation.sensors(settings, baselines),
        schedules=[
            *automation.schedules(settings, baselines, own_jobs[0]),
            configuration_schedule(settings, configuration, settings.nightly.dms_cron),
            report.schedule,
        ],
        resources={"dms_files": DmsFiles(settings)},
        executor=dg.in_process_executor,
    )
    return definitions


defs = build_defs()
