"""The jobs of the DMS location: what a night, a backfill or `make run` launches. One set per baseline."""

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from dms_assets import outcomes, store_outcomes
from dms_assets.baselines import Baseline


def route_jobs(baseline: Baseline) -> list[UnresolvedAssetJobDefinition]:
    """Extraction (or adoption) of one baseline's routes, and its checks alone."""
    cache, summary = outcomes.cache_key(baseline.name), outcomes.summary_key(baseline.name)
    return [
        dg.define_asset_job(
            f"dms_{baseline.name}_routes",
            dg.AssetSelection.assets(cache, summary),
            description="Extracts what is missing of each route, judges its cache and summarises it.",
        ),
        dg.define_asset_job(
            f"dms_{baseline.name}_route_checks",
            dg.AssetSelection.checks_for_assets(cache),
            description="Judges each route's stored cache again, computing nothing.",
        ),
    ]


def store_job(baselines: Sequence[Baseline]) -> UnresolvedAssetJobDefinition:
    """Coverage, statistics and the overview of every cache store, with their checks."""
    keys = [
        key(baseline.name) for baseline in baselines for key in (store_outcomes.coverage_key, store_outcomes.stats_key)
    ]
    return dg.define_asset_job(
        "dms_stores",
        dg.AssetSelection.assets(*keys, store_outcomes.OVERVIEW),
        description="Sweeps every baseline's caches: coverage, statistics, overview. Opens changed files only.",
    )
