"""The public diagnostics of VIN offline stores: what they answer and the functions that ask.

Belongs here: the names that other code relies on. Does not belong here: how an answer is computed (`statistics`,
`coverage`, `generation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from resources.files import FileRoot
from vin_assets.vin_store import coverage, generation, statistics
from vin_assets.vin_store.generation import (
    VinOfflineDatasetStatsRequest,
    VinOfflineStoreGeneration,
    VinOfflineStoreSelection,
)
from vin_assets.vin_store.results import (
    NumericSummary,
    VinOfflineBackboneDiagnostic,
    VinOfflineBlockDiagnostic,
    VinOfflineCoverageSceneDiagnostic,
    VinOfflineCoverageStats,
    VinOfflineDatasetStats,
    VinOfflineMemoryDiagnostic,
    VinOfflineSampleDiagnostic,
)
from vin_assets.vin_store.store import VinOfflineStoreConfig, open_store

__all__ = [
    "NumericSummary",
    "VinOfflineBackboneDiagnostic",
    "VinOfflineBlockDiagnostic",
    "VinOfflineCoverageSceneDiagnostic",
    "VinOfflineCoverageStats",
    "VinOfflineDatasetStats",
    "VinOfflineDatasetStatsRequest",
    "VinOfflineMemoryDiagnostic",
    "VinOfflineSampleDiagnostic",
    "VinOfflineStoreGeneration",
    "VinOfflineStoreSelection",
    "capture_vin_offline_dataset_stats_request",
    "collect_vin_offline_dataset_coverage",
    "collect_vin_offline_dataset_stats",
    "inspect_vin_offline_dataset_stats",
]


def collect_vin_offline_dataset_stats(
    store: VinOfflineStoreConfig, *, max_samples: int | None = 512
) -> VinOfflineDatasetStats:
    """The statistics of a store over the first `max_samples` rows of its index (all when None, none when <= 0).

    What can't be read is left out; the result says over how many rows each part was taken, and
    `integrity.check_store` says what is missing. Nothing is written.

    Raises:
        StoreUnreadableError: the directory, manifest or index is missing or broken.
        UnsupportedStoreVersionError: the store is of a version that is not read.
    """
    with open_store(store) as opened:
        return statistics.collect(opened, max_samples)


def collect_vin_offline_dataset_coverage(
    store: VinOfflineStoreConfig,
    *,
    max_tars: int | None = None,
    progress_cb: Callable[[int, int], None] | None = None,
    raw_roots: Sequence[Path] = (),
    trust_manifest_paths: bool = False,
    tar_index: FileRoot | None = None,
) -> VinOfflineCoverageStats:
    """Which snippets of the raw dataset a store holds.

    The manifest names the tars, by paths of the machine that built the store. Only tars inside `store.raw_data_root`
    or one of `raw_roots` are opened; the others are listed in `refused_paths`, unless `trust_manifest_paths`. Without
    any such root everything is refused.

    Args:
        store: the store; its `raw_data_root` replaces the one that the manifest names.
        max_tars: open the first so many only, when > 0.
        progress_cb: called as `progress_cb(done, total)` after each tar.
        raw_roots: folders below which tars may be opened.
        trust_manifest_paths: open whatever the manifest names.
        tar_index: where the index of scanned tars is kept, so that an unchanged tar is not opened again; None keeps
            none.

    Raises:
        StoreUnreadableError: the directory, manifest or index is missing or broken.
        UnsupportedStoreVersionError: the store is of a version that is not read.
    """
    with open_store(store) as opened:
        return coverage.collect(
            opened,
            max_tars=max_tars,
            progress=progress_cb,
            raw_roots=raw_roots,
            trust_manifest_paths=trust_manifest_paths,
            tar_index=tar_index,
        )


def capture_vin_offline_dataset_stats_request(
    store: VinOfflineStoreConfig, *, max_samples: int | None = 512
) -> VinOfflineDatasetStatsRequest:
    """A request for the statistics of the store as it is now, from metadata only: no chunk is opened.

    Raises:
        StoreUnreadableError: there is no such directory.
    """
    found = generation.capture(store)
    generation.require_store(found)
    return VinOfflineDatasetStatsRequest(generation.selection_of(store), found, max_samples)


def inspect_vin_offline_dataset_stats(request: VinOfflineDatasetStatsRequest) -> VinOfflineDatasetStats:
    """The statistics that `request` asks for, of its generation and of no other.

    Raises:
        StoreReplacedError: the store is another generation already (nothing is read then), or became one while it was
            read (nothing is returned then).
        StoreUnreadableError: the manifest or index of that generation is missing or broken.
        UnsupportedStoreVersionError: that generation is of a version that is not read.
    """
    config = request.config()
    generation.require_same(request.generation, generation.capture(config), "before it was read")
    try:
        with open_store(config) as opened:
            stats = statistics.collect(opened, request.max_samples)
    finally:  # an error of a half-replaced store is told as the replacement that it is
        generation.require_same(request.generation, generation.capture(config), "while it was read")
    return stats
