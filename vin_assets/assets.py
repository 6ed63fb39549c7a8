"""The VIN assets: definitions only. What a partition yields is in `outcomes`, checks are in `checks`."""

from collections.abc import Iterator

import dagster as dg

from resources.events import run_partitions
from resources.metadata import columns
from vin_assets import outcomes
from vin_assets.files import VinFiles
from vin_assets.partitions import STORES

OWNERS = ["team:data"]
_CODE_VERSION = "1"

raw_dataset = dg.AssetSpec(
    outcomes.RAW_DATASET,
    description="The raw Aria Synthetic Environments dataset: WebDataset tars of ATEK. Fetched outside this pipeline.",
    group_name="vin_raw",
    kinds={"webdataset"},
    owners=OWNERS,
)

offline_store = dg.AssetSpec(
    outcomes.OFFLINE_STORE,
    deps=[outcomes.RAW_DATASET],
    partitions_def=STORES,
    description=(
        "An immutable VIN training dataset (Zarr v3 + MessagePack), written by another program. "
        "Its data version is the digest of its generation: manifest, index, splits and shard folders."
    ),
    group_name="vin_stores",
    kinds={"zarr"},
    owners=OWNERS,
)


@dg.asset(
    key=outcomes.STORE_STATS,
    deps=[outcomes.OFFLINE_STORE],
    partitions_def=STORES,
    output_required=False,
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version=_CODE_VERSION,
    group_name="vin_stores",
    kinds={"json", "parquet"},
    owners=OWNERS,
    metadata={
        "dagster/column_schema": columns(
            {
                "sample_key": ("string", "compact key of the sample"),
                "scene_id": ("string", "ASE scene"),
                "snippet_id": ("string", "compact ID of the ATEK snippet"),
                "split": ("string", "all, train or val"),
                "candidate_count": ("int", "labelled candidates; null without supervision"),
                "rri_mean": ("float", "mean relative reconstruction improvement of the row's finite labels"),
                "vin_points_mean": ("float", "valid semi-dense points of the snippet"),
            }
        )
    },
)
def store_stats(
    context: dg.AssetExecutionContext, vin_files: dg.ResourceParam[VinFiles]
) -> Iterator[dg.AssetMaterialization]:
    """Statistics of a store: labels, candidate poses, points, backbone fields, memory per sample.

    Reads every scanned row once, shard by shard; about a second per gigabyte of decoded numbers on two cores.
    """
    yield from run_partitions(context, lambda store: outcomes.store_stats(vin_files, store))


@dg.asset(
    key=outcomes.STORE_COVERAGE,
    deps=[outcomes.OFFLINE_STORE, outcomes.RAW_DATASET],
    partitions_def=STORES,
    output_required=False,
    backfill_policy=dg.BackfillPolicy.single_run(),
    code_version=_CODE_VERSION,
    group_name="vin_stores",
    kinds={"json", "parquet"},
    owners=OWNERS,
    metadata={
        "dagster/column_schema": columns(
            {
                "scene_id": ("string", "ASE scene, of either side"),
                "dataset_snippets": ("int", "snippets in the raw tars"),
                "store_snippets": ("int", "snippets in the store"),
                "covered_snippets": ("int", "in both"),
                "missing_in_store": ("int", "in the raw tars only"),
                "outside_dataset": ("int", "in the store only"),
                "coverage": ("float", "covered / dataset; null when the dataset has none"),
            }
        )
    },
)
def store_coverage(
    context: dg.AssetExecutionContext, vin_files: dg.ResourceParam[VinFiles]
) -> Iterator[dg.AssetMaterialization]:
    """Which raw snippets a store holds, by scene. Opens only tars that changed since the last look."""
    yield from run_partitions(context, lambda store: outcomes.store_coverage(vin_files, store))


ASSETS: list[dg.AssetSpec | dg.AssetsDefinition] = [raw_dataset, offline_store, store_stats, store_coverage]
