"""What one store's partition yields: a published result, its metadata, its checks. Assets and checks both come here.

Belongs here: the order of domain calls, and which number is shown. Does not belong here: Dagster definitions
(`assets`, `checks`), rules (`vin_store`), the form of events (`resources.events`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dagster as dg
from matplotlib.figure import Figure

from resources.events import Checked, Happened, Materialised, PartitionFailedError
from resources.figures import markdown, svg
from resources.findings import Finding, Severity
from resources.metadata import table
from resources.results import plain
from vin_assets import figures
from vin_assets.changes import is_readable, raw_version, store_version
from vin_assets.files import StoreNameError, VinFiles
from vin_assets.published import frame, load_coverage, stats_document, stats_tables
from vin_assets.vin_store import integrity, judgement
from vin_assets.vin_store.coverage import coverage_findings, damaged_tar_findings
from vin_assets.vin_store.diagnostics import (
    VinOfflineCoverageStats,
    VinOfflineDatasetStats,
    capture_vin_offline_dataset_stats_request,
    collect_vin_offline_dataset_coverage,
    inspect_vin_offline_dataset_stats,
)
from vin_assets.vin_store.drift import PREVIOUS, DriftThresholds, drift_findings, drift_rows
from vin_assets.vin_store.store import VinOfflineStoreConfig, VinStoreError

RAW_DATASET = dg.AssetKey(["vin", "raw_dataset"])
OFFLINE_STORE = dg.AssetKey(["vin", "offline_store"])
STORE_STATS = dg.AssetKey(["vin", "store_stats"])
STORE_COVERAGE = dg.AssetKey(["vin", "store_coverage"])

STORE_READABLE = "store_readable"
STORE_INTEGRITY = "store_integrity"
LABELS_USABLE = "labels_usable"
GENERATION_CURRENT = "generation_current"
DRIFT = "drift"
RAW_COVERAGE = "raw_coverage"
TARS_READABLE = "tars_readable"

STORE_VERSION = "store_version"  # metadata of a check on the store as it is: what the store was when it was asked


def _opened(files: VinFiles, store: str) -> VinOfflineStoreConfig:
    try:
        return files.store(store)
    except StoreNameError as error:
        raise PartitionFailedError(str(error)) from error


def store_stats(files: VinFiles, store: str) -> Iterator[Happened]:
    """Read the store's statistics, publish them, and judge the labels.

    Raises:
        PartitionFailedError: the store is unreadable, was replaced while it was read, or is gone.
    """
    config = _opened(files, store)
    try:
        request = capture_vin_offline_dataset_stats_request(config, max_samples=files.vin.max_samples)
        stats = inspect_vin_offline_dataset_stats(request)
    except VinStoreError as error:
        raise PartitionFailedError(str(error)) from error
    previous = files.previous_stats(store, request.digest())
    drawn = figures.statistics_figures(stats, previous)
    document = stats_document(stats, request.digest())
    published = files.publish("store_stats", store, document, stats_tables(stats), _files(drawn))
    shown = {"figures": dg.MetadataValue.md(markdown(list(drawn.values()))), "result": published.folder}
    told = shown | _stats_metadata(stats)
    yield Materialised(STORE_STATS, store, published.version, told)
    yield labels_usable(files, store, document)
    yield _generation(store, request.digest(), request.digest())
    yield _drift(files, store, stats, previous)


def _files(drawn: Mapping[str, Figure]) -> dict[str, bytes]:
    return {f"{name}.svg": svg(figure) for name, figure in drawn.items()}


def _stats_metadata(stats: VinOfflineDatasetStats) -> dict[str, Any]:
    summaries = {"rri": stats.rri, **stats.rri_component_summaries, **stats.candidate_pose_summaries}
    return {
        "version": stats.version,
        "samples": stats.num_samples,
        "rows_read": stats.rows_read,
        "scenes": stats.num_scenes,
        "snippets": stats.num_snippets,
        "numeric_mib": stats.numeric_bytes / 2**20,
        "labelled_candidates": stats.rri.count,
        "rri_mean": stats.rri.mean,
        "points_mean": stats.vin_points.mean,
        "splits": dict(stats.split_counts),
        "labels_and_poses": table([{"series": name, **plain(item)} for name, item in summaries.items()]),
        "backbone": table([{**plain(item), "shape": str(tuple(item.shape))} for item in stats.backbone_diagnostics]),
        "memory_per_sample": table([plain(item) for item in stats.memory_diagnostics]),
    }


def labels_usable(files: VinFiles, store: str, document: Mapping[str, Any]) -> Checked:
    """The check on the labels of published statistics."""
    minimum = files.vin.finite_labels_min
    found = judgement.labels_usable(
        document["scene_labels_available"],
        document["counted_candidates"],
        document["rri"]["count"],
        document["rri_pairing_unavailable_sample_keys"],
        minimum,
    )
    counted = {"candidates": document["counted_candidates"], "finite_labels": document["rri"]["count"]}
    return Checked.of_findings(STORE_STATS, LABELS_USABLE, store, found, {"finite_labels_min": minimum}, counted)


def drift(files: VinFiles, store: str, document: Mapping[str, Any]) -> Checked:
    """The check on change against the statistics before, and against those of the other stores.

    Raises:
        PartitionFailedError: the published statistics can't be read back.
    """
    stats = files.latest_stats(store)
    if stats is None:
        raise PartitionFailedError(f"the published statistics of {store} can't be read; materialise them again")
    return _drift(files, store, stats, files.previous_stats(store, document["request_digest"]))


def _drift(
    files: VinFiles, store: str, stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None
) -> Checked:
    found = {other: files.latest_stats(other) for other in files.stores() if other != store}
    others = {other: item for other, item in found.items() if item is not None}
    limits = files.vin.drift.model_dump()
    rows = drift_rows(stats, previous, others, DriftThresholds(**limits))
    told = {
        "compared": len(rows),
        "against": [PREVIOUS] * (previous is not None) + sorted(others),
        "drift": table([plain(row) for row in sorted(rows, key=lambda row: not row.exceeded)]),
    }
    return Checked.of_findings(STORE_STATS, DRIFT, store, drift_findings(rows), limits, told)


def generation_current(files: VinFiles, store: str, document: Mapping[str, Any]) -> Checked:
    """The check whether published statistics are of what the store is now; those of an unreadable store are not."""
    return _generation(store, document["request_digest"], store_version(files, store))


def _generation(store: str, computed: str, now: str) -> Checked:
    found = judgement.generation_current(computed, now if is_readable(now) else None)
    told = {"computed": computed, STORE_VERSION: now}
    return Checked.of_findings(STORE_STATS, GENERATION_CURRENT, store, found, None, told)


def store_coverage(files: VinFiles, store: str) -> Iterator[Happened]:
    """Compare the store with the raw dataset, publish the coverage, and judge it.

    Raises:
        PartitionFailedError: the store is unreadable or gone.
    """
    config = _opened(files, store)
    try:
        version = raw_version(files, store)
        coverage = collect_vin_offline_dataset_coverage(
            config, raw_roots=files.vin.raw_roots, tar_index=files.tar_index()
        )
    except VinStoreError as error:
        raise PartitionFailedError(str(error)) from error
    document = plain(coverage) | {"raw_version": version}
    opened = document.pop("tars_opened")
    drawn = figures.coverage(coverage, files.previous_coverage(store))
    tables = {"scenes": frame(coverage.per_scene)}
    published = files.publish("store_coverage", store, document, tables, _files({"coverage": drawn}))
    shown = {"figures": dg.MetadataValue.md(markdown([drawn])), "result": published.folder}
    told = shown | _coverage_metadata(coverage) | {"tars_opened": opened}
    yield Materialised(STORE_COVERAGE, store, published.version, told)
    yield raw_coverage(files, store, document)
    yield tars_readable(files, store, document)


def _coverage_metadata(coverage: VinOfflineCoverageStats) -> dict[str, Any]:
    counts = ("tar_shards_scanned", "dataset_snippets", "store_snippets", "covered_snippets", "missing_in_store")
    return {
        **{name: getattr(coverage, name) for name in counts},
        "outside_dataset": coverage.outside_dataset,
        "coverage": coverage.coverage,
        "per_scene": table([plain(item) for item in coverage.per_scene]),
        "missing_examples": table([{"scene": a, "snippet": b} for a, b in coverage.missing_examples]),
    }


def raw_coverage(files: VinFiles, store: str, document: Mapping[str, Any]) -> Checked:
    """The check on the share of the raw dataset that a store holds."""
    minimum = files.vin.raw_coverage_min
    found = coverage_findings(load_coverage(document), minimum)
    shown = {"coverage": document["coverage"], "missing": document["missing_in_store"]}
    return Checked.of_findings(STORE_COVERAGE, RAW_COVERAGE, store, found, {"raw_coverage_min": minimum}, shown)


def tars_readable(_files: VinFiles, store: str, document: Mapping[str, Any]) -> Checked:
    """The check on damaged raw tars."""
    found = damaged_tar_findings(load_coverage(document))
    shown = {"tars": document["tar_shards_scanned"], "damaged": len(found)}
    return Checked.of_findings(STORE_COVERAGE, TARS_READABLE, store, found, None, shown)


def store_readable(files: VinFiles, store: str) -> Checked:
    """The check whether a store can be used at all; reads metadata only."""
    return _on_store(files, store, STORE_READABLE, integrity.check_readable)


def store_integrity(files: VinFiles, store: str) -> Checked:
    """The check of everything else, every chunk of the indexed rows included.

    An unreadable store is `store_readable`'s finding; here it counts as not whole, with the same reason.
    """
    return _on_store(files, store, STORE_INTEGRITY, integrity.check_store)


def _on_store(
    files: VinFiles, store: str, check: str, judge: Callable[[VinOfflineStoreConfig], list[Finding]]
) -> Checked:
    told = {STORE_VERSION: store_version(files, store)}  # before: a store replaced meanwhile is asked about again
    try:
        found = judge(files.store(store))
    except StoreNameError as error:
        found = [_missing(error)]
    return Checked.of_findings(OFFLINE_STORE, check, store, found, None, told)


def _missing(error: StoreNameError) -> Finding:
    return Finding(
        "store_missing", Severity.ERROR, "the store roots", str(error), "restore it, or retire the partition"
    )
