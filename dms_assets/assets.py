"""The DMS assets: definitions only, one set per baseline. What a partition yields is in `outcomes`."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from dms_assets import outcomes, store_outcomes
from dms_assets.baselines import Baseline
from dms_assets.files import DmsFiles
from dms_assets.partitions import UIDS
from resources.events import Happened, run_partitions

OWNERS = ["team:data"]

driver_video = dg.AssetSpec(
    outcomes.DRIVER_VIDEO,
    partitions_def=UIDS,
    description="Driver-camera video of a route (.hevc, .mp4 or .mkv, 20 frames a second), from the recorder.",
    group_name="dms_inputs",
    kinds={"video"},
    owners=OWNERS,
)
driver_boxes = dg.AssetSpec(
    outcomes.DRIVER_BOXES,
    partitions_def=UIDS,
    description="Pose caches of other programs with the driver's box per frame. Optional: extractors find their own.",
    group_name="dms_inputs",
    kinds={"numpy"},
    owners=OWNERS,
)
anchor_spans = dg.AssetSpec(
    outcomes.ANCHOR_SPANS,
    partitions_def=UIDS,
    description="The time spans of a route that somebody wants features for: one table, rows of uid, t_start, t_end.",
    group_name="dms_inputs",
    kinds={"csv"},
    owners=OWNERS,
)


def route_assets(baseline: Baseline) -> dg.AssetsDefinition:
    """The route caches and route summaries of one baseline, computed by one step, so that a range run makes both."""
    cache, summary = outcomes.cache_key(baseline.name), outcomes.summary_key(baseline.name)
    inputs = (
        [outcomes.ANCHOR_SPANS]
        if baseline.external
        else [
            outcomes.DRIVER_VIDEO,
            outcomes.DRIVER_BOXES,
            outcomes.ANCHOR_SPANS,
        ]
    )
    source = "Written by other programs and adopted." if baseline.external else "Only missing spans are extracted."
    group = f"dms_{baseline.name}"
    tags = {"dms/extractor": baseline.extractor, "dms/kind": baseline.kind}

    @dg.multi_asset(
        name=f"dms_{baseline.name}_route",
        specs=[
            dg.AssetSpec(
                cache,
                deps=inputs,
                description=f"{baseline.description} One .npz per route. {source}".strip(),
                kinds={"numpy"},
                code_version=baseline.code_version or None,
                tags=tags,
                metadata={"channels": list(baseline.channels), "code_version": baseline.code_version},
                group_name=group,
                owners=OWNERS,
                partitions_def=UIDS,
                skippable=True,
            ),
            dg.AssetSpec(
                summary,
                deps=[cache],
                description="Per-channel statistics, failure counts, gaps and provenance of a route's cache, as JSON.",
                kinds={"json"},
                tags=tags,
                group_name=group,
                owners=OWNERS,
                partitions_def=UIDS,
                skippable=True,
            ),
        ],
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=baseline.pool,
    )
    def route(
        context: dg.AssetExecutionContext, dms_files: dg.ResourceParam[DmsFiles]
    ) -> Iterator[dg.AssetMaterialization]:
        selected = context.selected_asset_keys

        def work(uid: str) -> Iterator[Happened]:
            if cache in selected:
                yield from outcomes.route_cache(dms_files, baseline, uid)
            if summary in selected:
                yield from outcomes.route_summary(dms_files, baseline, uid)

        yield from run_partitions(context, work)

    return route


def store_assets(baseline: Baseline) -> dg.AssetsDefinition:
    """Coverage and statistics of one baseline's whole cache store, from one sweep over it."""
    keys = store_outcomes.coverage_key(baseline.name), store_outcomes.stats_key(baseline.name)
    cache = outcomes.cache_key(baseline.name)
    group = f"dms_{baseline.name}"

    @dg.multi_asset(
        name=f"dms_{baseline.name}_store",
        specs=[
            dg.AssetSpec(
                keys[0],
                deps=[cache, outcomes.ANCHOR_SPANS],
                description="Which wanted spans are stored, and why the rest is not. Opens changed files only.",
                kinds={"json", "parquet"},
                group_name=group,
                owners=OWNERS,
                skippable=True,
            ),
            dg.AssetSpec(
                keys[1],
                deps=[cache],
                description="Failure codes, channel distributions and runtime over every cache of the baseline.",
                kinds={"json"},
                group_name=group,
                owners=OWNERS,
                skippable=True,
            ),
        ],
        can_subset=True,
    )
    def store(
        context: dg.AssetExecutionContext, dms_files: dg.ResourceParam[DmsFiles]
    ) -> Iterator[dg.MaterializeResult[Any]]:
        result = store_outcomes.swept(dms_files, baseline)
        if keys[0] in context.selected_asset_keys:
            yield store_outcomes.coverage(dms_files, baseline, result)
        if keys[1] in context.selected_asset_keys:
            yield store_outcomes.stats(dms_files, baseline, result)

    return store


def overview_asset(baselines: Sequence[Baseline]) -> dg.AssetsDefinition:
    """The picture of every baseline and route."""

    @dg.asset(
        key=store_outcomes.OVERVIEW,
        deps=[store_outcomes.coverage_key(baseline.name) for baseline in baselines],
        description="Baselines x routes: what is covered and what is not, as a picture and a table.",
        group_name="dms_overview",
        kinds={"json"},
        owners=OWNERS,
    )
    def overview(dms_files: dg.ResourceParam[DmsFiles]) -> dg.MaterializeResult[Any]:
        return store_outcomes.overview(dms_files, baselines)

    return overview
