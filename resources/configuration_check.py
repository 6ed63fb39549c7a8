"""The check `configuration`: a broken configuration leaves a code location visible, with defaults and this check."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from resources.config import Settings, configuration_file

NAME = "configuration"


def configuration_check(asset_key: dg.AssetKey, errors: Sequence[Exception]) -> dg.AssetChecksDefinition:
    """A check on `asset_key` that fails with the errors met when the definitions were built."""
    told = [str(error) for error in errors]

    @dg.asset_check(
        asset=asset_key,
        name=NAME,
        description="The configuration was read, and is in force. While it is broken the built-in defaults are.",
    )
    def configuration() -> dg.AssetCheckResult:
        file = configuration_file()
        return dg.AssetCheckResult(
            passed=not told,
            description="; ".join(told) or None,
            metadata={
                "file": str(file) if file else "none: built-in defaults and environment",
                "problems": told,
                "how_to_fix": "mend the file and key that `problems` names, then reload the code location",
            },
        )

    return configuration


def configuration_job(location: str, asset_key: dg.AssetKey) -> UnresolvedAssetJobDefinition:
    """The job that runs the check alone."""
    return dg.define_asset_job(
        f"{location}_configuration",
        dg.AssetSelection.checks(dg.AssetCheckKey(asset_key, NAME)),
        description="Was the configuration read without problems?",
    )


def configuration_schedule(settings: Settings, job: UnresolvedAssetJobDefinition, cron: str) -> dg.ScheduleDefinition:
    """Runs the check at the location's nightly time, so that a broken configuration is told."""
    return dg.ScheduleDefinition(
        name=f"{job.name}_nightly",
        job=job,
        cron_schedule=cron,
        description="Says every night whether the configuration could be read and is in force.",
        execution_timezone=settings.nightly.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
