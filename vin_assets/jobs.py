"""The jobs of the VIN location: what a night, a backfill or `make run` launches."""

import dagster as dg

from vin_assets import outcomes

store_checks = dg.define_asset_job(
    "vin_store_checks",
    dg.AssetSelection.checks(
        dg.AssetCheckKey(outcomes.OFFLINE_STORE, outcomes.STORE_READABLE),
        dg.AssetCheckKey(outcomes.OFFLINE_STORE, outcomes.STORE_INTEGRITY),
    ),
    description="Is each store readable and whole?",
)
store_results = dg.define_asset_job(
    "vin_store_results",
    dg.AssetSelection.assets(outcomes.STORE_STATS, outcomes.STORE_COVERAGE),
    description="Statistics and raw coverage of each store, with their checks.",
)

result_checks = dg.define_asset_job(
    "vin_result_checks",
    dg.AssetSelection.checks_for_assets(outcomes.STORE_STATS, outcomes.STORE_COVERAGE),
    description="Judges the published results of each store again, computing nothing.",
)

JOBS = [store_checks, store_results, result_checks]
