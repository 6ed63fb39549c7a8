"""The VIN checks: each wraps what `outcomes` judges, for runs of checks alone and for the UI.

The assets record the same evaluations while they materialise; a check executed alone judges the last published result
and computes nothing anew.
"""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from resources.events import Checked, run_checks
from vin_assets import outcomes
from vin_assets.files import VinFiles
from vin_assets.partitions import STORES


class NotMaterialisedError(Exception):
    """A check that has nothing to judge yet."""


def _on_store(name: str, description: str, judge: Callable[[VinFiles, str], Checked]) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=outcomes.OFFLINE_STORE, name=name, description=description, partitions_def=STORES)
    def check(context: dg.AssetCheckExecutionContext, vin_files: dg.ResourceParam[VinFiles]) -> dg.AssetCheckResult:
        return run_checks(context, lambda store: judge(vin_files, store), outcomes.OFFLINE_STORE, name)

    return check


def _on_result(
    asset_key: dg.AssetKey,
    name: str,
    description: str,
    judge: Callable[[VinFiles, str, Mapping[str, Any]], Checked],
) -> dg.AssetChecksDefinition:
    asset = asset_key.path[-1]

    @dg.asset_check(asset=asset_key, name=name, description=description, partitions_def=STORES)
    def check(context: dg.AssetCheckExecutionContext, vin_files: dg.ResourceParam[VinFiles]) -> dg.AssetCheckResult:
        def work(store: str) -> Checked:
            document = vin_files.latest(asset, store)
            if document is None:
                raise NotMaterialisedError(f"vin/{asset} of {store} was never materialised; materialise it first")
            return judge(vin_files, store, document)

        return run_checks(context, work, asset_key, name)

    return check


CHECKS = [
    _on_store(
        outcomes.STORE_READABLE,
        "Manifest and index can be read, and the version is a supported one.",
        outcomes.store_readable,
    ),
    _on_store(
        outcomes.STORE_INTEGRITY,
        "Every file, array, row and label of the store is what it should be.",
        outcomes.store_integrity,
    ),
    _on_result(
        outcomes.STORE_STATS,
        outcomes.LABELS_USABLE,
        "The store has labels, and enough of them are finite.",
        outcomes.labels_usable,
    ),
    _on_result(
        outcomes.STORE_STATS,
        outcomes.GENERATION_CURRENT,
        "The statistics are of what the store is now.",
        outcomes.generation_current,
    ),
    _on_result(
        outcomes.STORE_STATS,
        outcomes.DRIFT,
        "Counts, means, quantiles and shapes are near those before, and near those of the other stores.",
        outcomes.drift,
    ),
    _on_result(
        outcomes.STORE_COVERAGE,
        outcomes.RAW_COVERAGE,
        "The store holds enough of the raw dataset.",
        outcomes.raw_coverage,
    ),
    _on_result(
        outcomes.STORE_COVERAGE,
        outcomes.TARS_READABLE,
        "Every raw tar could be read to its end.",
        outcomes.tars_readable,
    ),
]
