"""What the diagnostics answer: plain frozen records, with the fields and the order that their readers rely on.

Belongs here: fields and their meaning. Does not belong here: how a value is computed, JSON (`resources.results`).
`diagnostics` gives these out; fields may be added at the end with a default, none may be renamed or moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class NumericSummary:
    """Finite values only, in float64; the three numbers are None when there is none."""

    count: int
    minimum: float | None
    mean: float | None
    maximum: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> NumericSummary:
        """The summary of `values`, of which only the finite ones count."""
        array = np.asarray(values if isinstance(values, (np.ndarray, list)) else list(values), np.float64).ravel()
        array = array[np.isfinite(array)]
        if not array.size:
            return cls(0, None, None, None)
        low, high = float(array.min()), float(array.max())
        with np.errstate(over="ignore"):
            mean = float(array.mean())
        if not np.isfinite(mean):  # the sum left the range of float64; the mean can't
            mean = float((array / array.size).sum())
        return cls(int(array.size), low, min(max(mean, low), high), high)


@dataclass(frozen=True, slots=True)
class VinOfflineBackboneDiagnostic:
    """Moments of one backbone array over the scanned rows: finite values only, population std, share of |x| > 1e-6.

    `shape` and `numel` are of one row; `sampled_rows` is how many rows could be read.
    """

    field: str
    shape: tuple[int, ...]
    numel: int
    sampled_rows: int
    count: int
    mean: float | None
    std: float | None
    abs_mean: float | None
    nz_frac: float | None


@dataclass(frozen=True, slots=True)
class VinOfflineBlockDiagnostic:
    """One block of one shard as the manifest declares it; bytes are uncompressed, None for record blocks."""

    shard_id: str
    name: str
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    optional: bool
    estimated_bytes: int | None


@dataclass(frozen=True, slots=True)
class VinOfflineMemoryDiagnostic:
    """Uncompressed MiB (2^20 bytes) of one sample by component; `p95_mib` is a linear percentile."""

    component: str
    mean_mib: float
    median_mib: float
    p95_mib: float


@dataclass(frozen=True, slots=True)
class VinOfflineSampleDiagnostic:
    """One scanned row; `candidate_count` is None without scene supervision and where the row can't be read."""

    sample_index: int
    sample_key: str
    scene_id: str
    snippet_id: str
    split: str
    shard_id: str
    row: int
    candidate_count: int | None
    rri: NumericSummary
    vin_points: NumericSummary


@dataclass(frozen=True, slots=True)
class VinOfflineDatasetStats:
    """The statistics of one store.

    `sampled_samples` rows of the index were scanned; of these, `rows_read` could be read in every block that the
    statistics need, and `block_rows_read` says so per block. What is missing is named by the integrity findings.
    Angles are degrees, lengths metres. `candidate_pose_values` keep NaN.
    """

    store_dir: str
    version: int
    num_samples: int
    sampled_samples: int
    split_counts: dict[str, int]
    num_scenes: int
    num_snippets: int
    materialized_blocks: dict[str, bool]
    candidate_count: NumericSummary
    rri: NumericSummary
    vin_points: NumericSummary
    numeric_bytes: int
    block_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    block_diagnostics: list[VinOfflineBlockDiagnostic] = field(default_factory=list)
    sample_summaries: list[VinOfflineSampleDiagnostic] = field(default_factory=list)
    candidate_count_values: list[float] = field(default_factory=list)
    rri_values: list[float] = field(default_factory=list)
    vin_point_values: list[float] = field(default_factory=list)
    rri_component_values: dict[str, list[float]] = field(default_factory=dict)
    rri_component_summaries: dict[str, NumericSummary] = field(default_factory=dict)
    candidate_pose_values: dict[str, list[float]] = field(default_factory=dict)
    candidate_pose_summaries: dict[str, NumericSummary] = field(default_factory=dict)
    memory_diagnostics: list[VinOfflineMemoryDiagnostic] = field(default_factory=list)
    backbone_diagnostics: list[VinOfflineBackboneDiagnostic] = field(default_factory=list)
    scene_labels_available: bool = True
    batch_shapes_available: bool = True
    batch_shapes: dict[str, str] = field(default_factory=dict)
    rri_component_pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    rri_pairing_unavailable_sample_keys: list[str] = field(default_factory=list)
    rows_read: int = 0
    block_rows_read: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VinOfflineCoverageSceneDiagnostic:
    """The coverage of one scene; `coverage` is None when the dataset has no snippet of it."""

    scene_id: str
    dataset_snippets: int
    store_snippets: int
    covered_snippets: int
    missing_in_store: int
    outside_dataset: int
    coverage: float | None


@dataclass(frozen=True, slots=True)
class VinOfflineCoverageStats:
    """Which (scene, snippet) pairs of the raw dataset a store holds.

    `damaged_tars` are (path, reason); what was read of them counts. `refused_paths` lie outside the configured raw
    roots and were not opened. `unsupported_entries` are URLs and pipes. `searched` names the places looked at,
    `tars_opened` how many tars were opened (the others were known from the index of scanned tars).
    """

    store_dir: str
    tar_shards_scanned: int
    dataset_scenes: int
    store_scenes: int
    dataset_snippets: int
    store_snippets: int
    covered_snippets: int
    missing_in_store: int
    outside_dataset: int
    coverage: float | None
    per_scene: list[VinOfflineCoverageSceneDiagnostic] = field(default_factory=list)
    missing_examples: list[tuple[str, str]] = field(default_factory=list)
    outside_examples: list[tuple[str, str]] = field(default_factory=list)
    damaged_tars: list[tuple[str, str]] = field(default_factory=list)
    refused_paths: list[str] = field(default_factory=list)
    unsupported_entries: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    tars_opened: int = 0
