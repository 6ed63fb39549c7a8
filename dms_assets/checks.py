"""The DMS checks per route: each wraps what `outcomes` judges, for runs of checks alone and for the UI.

The assets record the same evaluations while they materialise; a check executed alone reads what is stored and
computes nothing.
"""

import dagster as dg

from dms_assets import outcomes, store_outcomes
from dms_assets.baselines import Baseline
from dms_assets.files import DmsFiles
from dms_assets.partitions import UIDS
from resources.events import Checked, run_checks

DESCRIPTIONS = {
    outcomes.CACHE_VALID: "Every invariant of the cache contract holds. A route that fails gets no summary.",
    outcomes.SPAN_COVERAGE: "Every wanted span is stored; the metadata names each gap in seconds.",
    outcomes.ROWS_FILL_SPANS: "Every tick inside a stored span has its row, and every row lies in a span.",
    outcomes.PROVENANCE_CURRENT: "The cache was made with the code version and the weights that the registry declares.",
    outcomes.VALID_FRACTION: "Enough rows are valid: the model found what it looks for.",
}


def _route_check(baseline: Baseline, name: str, description: str) -> dg.AssetChecksDefinition:
    key = outcomes.cache_key(baseline.name)

    @dg.asset_check(asset=key, name=name, description=description, partitions_def=UIDS)
    def check(context: dg.AssetCheckExecutionContext, dms_files: dg.ResourceParam[DmsFiles]) -> dg.AssetCheckResult:
        def work(uid: str) -> Checked:
            return outcomes.route_checks(baseline, uid, outcomes.standing(dms_files, baseline, uid))[name]

        return run_checks(context, work, key, name)

    return check


def route_checks(baseline: Baseline) -> list[dg.AssetChecksDefinition]:
    """The checks of one baseline's route caches."""
    return [_route_check(baseline, name, description) for name, description in DESCRIPTIONS.items()]


def store_check(baseline: Baseline) -> dg.AssetChecksDefinition:
    """The check of one baseline's coverage."""

    @dg.asset_check(
        asset=store_outcomes.coverage_key(baseline.name),
        name=store_outcomes.ROUTES_COVERED,
        description="Enough of the wanted routes have everything that is wanted of them.",
    )
    def routes_covered(dms_files: dg.ResourceParam[DmsFiles]) -> dg.AssetCheckResult:
        return store_outcomes.routes_covered(dms_files, baseline).result()

    return routes_covered
