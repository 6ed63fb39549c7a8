"""Raw-dataset coverage: which snippets of the raw tars a store holds.

Belongs here: the join, and what is wrong with a coverage result. Does not belong here: finding tars (`raw_paths`),
reading them (`tars`), remembering them (`tar_index`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from resources.files import FileRoot, Identity
from resources.findings import MAX_SAMPLES, Finding, Severity
from vin_assets.vin_store.format import compact
from vin_assets.vin_store.raw_paths import RawTar, find_tars
from vin_assets.vin_store.results import VinOfflineCoverageSceneDiagnostic, VinOfflineCoverageStats
from vin_assets.vin_store.rows import in_order
from vin_assets.vin_store.store import Store, remedy_for
from vin_assets.vin_store.tar_index import TarIndex
from vin_assets.vin_store.tars import Pair, TarScan, scan_tar

EXAMPLES = 50


def collect(
    store: Store,
    *,
    max_tars: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    raw_roots: Sequence[Path] = (),
    trust_manifest_paths: bool = False,
    tar_index: FileRoot | None = None,
) -> VinOfflineCoverageStats:
    """The coverage of an opened store; `diagnostics.collect_vin_offline_dataset_coverage` explains the arguments."""
    found = find_tars(store.manifest, store.config.raw_data_root, raw_roots, trust_manifest_paths)
    tars = found.tars[:max_tars] if max_tars is not None and max_tars > 0 else found.tars
    index = TarIndex(tar_index)
    opened = 0
    pairs: set[Pair] = set()
    damaged: list[tuple[str, str]] = []

    def scan(tar: RawTar) -> tuple[RawTar, Identity | None, TarScan]:
        known = index.get(tar.path, tar.identity)
        if known is not None:
            return tar, None, known
        return tar, *_scan(tar)

    for done, (tar, identity, result) in enumerate(in_order(scan, tars), start=1):
        if identity is not None:
            opened += 1
            index.put(tar.path, identity, result)
        pairs |= result.pairs
        if result.damage is not None:
            damaged.append((tar.path, result.damage))
        if progress is not None:
            progress(done, len(tars))
    index.save()
    stored = {(row.scene_id, compact(row.snippet_id)) for row in store.rows}
    return join(
        store.real_path,
        pairs,
        stored,
        tar_shards_scanned=len(tars),
        damaged_tars=damaged,
        refused_paths=found.refused,
        unsupported_entries=found.unsupported,
        searched=found.searched,
        tars_opened=opened,
    )


def _scan(tar: RawTar) -> tuple[Identity, TarScan]:
    try:
        with tar.root.open(tar.path) as file:
            return Identity.of(os.fstat(file.fileno())), scan_tar(file)
    except OSError as error:
        return tar.identity, TarScan(frozenset(), f"can't be read: {error.strerror or error}")


def join(
    store_dir: str,
    dataset: Set[Pair],
    stored: Set[Pair],
    *,
    tar_shards_scanned: int = 0,
    damaged_tars: Sequence[tuple[str, str]] = (),
    refused_paths: Sequence[str] = (),
    unsupported_entries: Sequence[str] = (),
    searched: Sequence[str] = (),
    tars_opened: int = 0,
) -> VinOfflineCoverageStats:
    """The coverage of two sets of (scene, snippet) pairs; linear in the pairs, apart from sorting them."""
    covered, missing, outside = dataset & stored, dataset - stored, stored - dataset
    dataset_count, stored_count, covered_count, missing_count, outside_count = (
        Counter(scene for scene, _ in side) for side in (dataset, stored, covered, missing, outside)
    )
    scenes = sorted(dataset_count.keys() | stored_count.keys())
    return VinOfflineCoverageStats(
        store_dir=store_dir,
        tar_shards_scanned=tar_shards_scanned,
        dataset_scenes=len(dataset_count),
        store_scenes=len(stored_count),
        dataset_snippets=len(dataset),
        store_snippets=len(stored),
        covered_snippets=len(covered),
        missing_in_store=len(missing),
        outside_dataset=len(outside),
        coverage=len(covered) / len(dataset) if dataset else None,
        per_scene=[
            VinOfflineCoverageSceneDiagnostic(
                scene,
                dataset_count[scene],
                stored_count[scene],
                covered_count[scene],
                missing_count[scene],
                outside_count[scene],
                covered_count[scene] / dataset_count[scene] if dataset_count[scene] else None,
            )
            for scene in scenes
        ],
        missing_examples=sorted(missing)[:EXAMPLES],
        outside_examples=sorted(outside)[:EXAMPLES],
        damaged_tars=list(damaged_tars),
        refused_paths=list(refused_paths),
        unsupported_entries=list(unsupported_entries),
        searched=list(searched),
        tars_opened=tars_opened,
    )


def damaged_tar_findings(result: VinOfflineCoverageStats) -> list[Finding]:
    """One ERROR finding per damaged tar; what was read of it counts in the coverage."""
    return [
        Finding("tar_damaged", Severity.ERROR, path, reason, remedy_for(reason, "Download or copy the tar again."))
        for path, reason in result.damaged_tars
    ]


def coverage_findings(result: VinOfflineCoverageStats, minimum: float = 0.0) -> list[Finding]:
    """What is wrong with a coverage result, apart from damaged tars: WARN findings.

    `minimum` is the share of the dataset's snippets below which a store has fallen behind.
    """
    findings = []
    if result.refused_paths:
        findings.append(
            Finding(
                "raw_path_refused",
                Severity.WARN,
                "manifest.json: source.dataset_config",
                f"{len(result.refused_paths)} raw paths lie outside the configured raw roots and were not opened",
                "Set the raw data root, add a raw root, or accept the manifest's paths with --trust-manifest-paths.",
                len(result.refused_paths),
                tuple(result.refused_paths[:MAX_SAMPLES]),
            )
        )
    if result.unsupported_entries:
        findings.append(
            Finding(
                "raw_entry_unsupported",
                Severity.WARN,
                "manifest.json: source.dataset_config",
                f"{len(result.unsupported_entries)} entries can't be looked at (URLs, pipes, relative paths)",
                "Copy these tars to a local folder and set it as the raw data root.",
                len(result.unsupported_entries),
                tuple(result.unsupported_entries[:MAX_SAMPLES]),
            )
        )
    if not result.tar_shards_scanned:
        places = ", ".join(result.searched[:5]) or "nowhere: the manifest names no raw data"
        findings.append(
            Finding(
                "no_tar_found",
                Severity.WARN,
                "manifest.json: source.dataset_config",
                f"no raw tar was found; looked at {places}",
                "Set the raw data root to the folder that holds the raw dataset on this machine.",
                max(1, len(result.searched)),
                tuple(result.searched[:MAX_SAMPLES]),
            )
        )
    elif result.coverage is not None and result.coverage < minimum:
        findings.append(
            Finding(
                "coverage_below_minimum",
                Severity.WARN,
                result.store_dir,
                f"{result.covered_snippets} of {result.dataset_snippets} raw snippets are in the store "
                f"({result.coverage:.1%}), {minimum:.1%} are wanted",
                "Extend the store with the missing snippets, or lower the threshold.",
                result.missing_in_store,
                tuple("/".join(pair) for pair in result.missing_examples[:MAX_SAMPLES]),
            )
        )
    return findings
