"""The entry point of the VIN code location."""

from __future__ import annotations

import dagster as dg

from resources.config import ConfigurationError, Settings, settings_or_defaults
from resources.configuration_check import configuration_check, configuration_job, configuration_schedule
from resources.report_asset import nightly_report
from vin_assets import automation, outcomes
from vin_assets.assets import ASSETS
from vin_assets.checks import CHECKS
from vin_assets.files import VinFiles
from vin_assets.jobs import JOBS


def build_defs(settings: Settings | None = None) -> dg.Definitions:
    """The definitions under `settings`; without any, those of the configuration file, which is read once."""
    error: ConfigurationError | None = None
    if settings is None:
        settings, error = settings_or_defaults()
    configuration = configuration_job("vin", outcomes.OFFLINE_STORE)
    # The report tells of all definitions, itself among them: they exist when it runs.
    report = nightly_report("vin", lambda: definitions.resolve_asset_graph(), settings)  # noqa: PLW0108
    definitions = dg.Definitions(
        assets=[*ASSETS, report.asset],
        asset_checks=[
            *CHECKS,
            *automation.CHECKS,
            configuration_check(outcomes.OFFLINE_STORE, [error] if error else []),
        ],
        jobs=[*JOBS, *automation.JOBS, configuration, report.job],
        sensors=automation.sensors(settings),
        schedules=[
            *automation.schedules(settings),
            configuration_schedule(settings, configuration, settings.nightly.vin_cron),
            report.schedule,
        ],
        resources={"vin_files": VinFiles(settings)},
        executor=dg.in_process_executor,
    )
    return definitions


defs = build_defs()
