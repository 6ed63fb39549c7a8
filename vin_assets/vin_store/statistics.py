"""The statistics of an opened store: one pass over the scanned rows, reading and reducing at the same time.

Belongs here: which rows and blocks are scanned, and how pieces become `VinOfflineDatasetStats`. Does not belong here:
chunks and threads (`rows`), formulas (`moments`, `poses`), what needs only the manifest (`manifest_facts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resources.files import FileRoot
from vin_assets.vin_store.arrays import ArrayMeta, ChunkState, read_chunk
from vin_assets.vin_store.format import BACKBONE, ZARR_ARRAY, IndexRow, ShardSpec, compact
from vin_assets.vin_store.manifest_facts import (
    batch_shapes,
    block_diagnostics,
    block_shapes,
    memory_diagnostics,
    numeric_bytes,
)
from vin_assets.vin_store.moments import Moments
from vin_assets.vin_store.poses import POSE_KEYS
from vin_assets.vin_store.results import (
    NumericSummary,
    VinOfflineBackboneDiagnostic,
    VinOfflineDatasetStats,
    VinOfflineSampleDiagnostic,
)
from vin_assets.vin_store.rows import RowLabels, in_order, label_blocks, numeric_meta, read_labels
from vin_assets.vin_store.series import RowSeries, Series, series_of
from vin_assets.vin_store.store import Store

_TASK_BYTES = 8 << 20  # decoded bytes of one task: large against a task's overhead, small against the memory


@dataclass(frozen=True, slots=True)
class _Fields:
    """A task: reduce `rows` of one backbone array."""

    shard_id: str
    name: str
    meta: ArrayMeta
    rows: list[int]


@dataclass(frozen=True, slots=True)
class _Labels:
    """A task: read the labels of `rows` of one shard."""

    shard: ShardSpec
    rows: list[int]


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of a task."""

    task: _Fields | _Labels
    moments: Moments = field(default_factory=Moments)
    unread: tuple[int, ...] = ()
    series: tuple[RowSeries, ...] = ()


@dataclass(slots=True)
class _Backbone:
    row_shape: tuple[int, ...]
    moments: Moments = field(default_factory=Moments)
    rows: int = 0


def _reduce(root: FileRoot, task: _Fields) -> _Done:
    """Decode and reduce chunk by chunk, so that no more than one decoded chunk is held."""
    meta = task.meta
    moments = Moments()
    unread: list[int] = []
    by_chunk: dict[int, list[int]] = {}
    for row in task.rows:
        by_chunk.setdefault(row // meta.chunk_rows, []).append(row)
    for index, rows in by_chunk.items():
        readable = [row for row in rows if row < meta.shape[0]]
        unread += [row for row in rows if row >= meta.shape[0]]
        chunk = read_chunk(root, meta, index) if readable else None
        if chunk is None:
            continue
        if chunk.values is None:
            unread += readable
        elif chunk.state is ChunkState.ABSENT:
            moments = moments.merge(Moments.constant(float(meta.fill), len(readable) * chunk.values[0].size))
        elif meta.chunk_rows == len(readable) == 1:
            moments = moments.merge(Moments.of(chunk.values))
        else:
            moments = moments.merge(Moments.of(chunk.values[[row % meta.chunk_rows for row in readable]]))
        del chunk  # its memory serves the next one while it is still in the core's cache
    return _Done(task, moments, tuple(unread))


class _Scan:
    """What one pass over the wanted rows of each shard gathers."""

    def __init__(self, store: Store, wanted: dict[str, list[int]]) -> None:
        self.series: dict[tuple[str, int], RowSeries] = {}
        self.backbone: dict[str, _Backbone] = {}
        self.unread: dict[tuple[str, int], set[str]] = {}
        self._store, self._wanted = store, wanted
        for done in in_order(self._work, self._tasks()):
            if isinstance(done.task, _Fields):
                self._add_fields(done.task, done)
            else:
                for row, series in zip(done.task.rows, done.series, strict=True):
                    self.series[done.task.shard.shard_id, row] = series
                    for name in series.unread:
                        self._missed(done.task.shard.shard_id, row, name)

    def _tasks(self) -> Iterator[_Fields | _Labels]:
        for shard_id, rows in self._wanted.items():
            shard = self._store.shards[shard_id]
            for start in range(0, len(rows), 64):
                yield _Labels(shard, rows[start : start + 64])
            for name, block in sorted(shard.blocks.items()):
                if not name.startswith(BACKBONE) or block.kind != ZARR_ARRAY:
                    continue
                meta = numeric_meta(self._store.root, shard, name)
                if meta is None:
                    for row in rows:
                        self._missed(shard_id, row, name)
                    continue
                step = max(1, _TASK_BYTES // max(1, meta.chunk_bytes)) * meta.chunk_rows
                for start in range(0, len(rows), step):
                    yield _Fields(shard_id, name, meta, rows[start : start + step])

    def _work(self, task: _Fields | _Labels) -> _Done:
        if isinstance(task, _Fields):
            return _reduce(self._store.root, task)
        found = read_labels(self._store.root, task.shard, task.rows)
        return _Done(task, series=tuple(series_of(found)))

    def _missed(self, shard_id: str, row: int, name: str) -> None:
        self.unread.setdefault((shard_id, row), set()).add(name)

    def _add_fields(self, task: _Fields, done: _Done) -> None:
        entry = self.backbone.setdefault(task.name, _Backbone(task.meta.row_shape))
        entry.moments = entry.moments.merge(done.moments)
        entry.rows += len(task.rows) - len(done.unread)
        for row in done.unread:
            self._missed(task.shard_id, row, task.name)

    def backbone_diagnostics(self) -> list[VinOfflineBackboneDiagnostic]:
        return [
            VinOfflineBackboneDiagnostic(
                field=name.removeprefix(BACKBONE),
                shape=entry.row_shape,
                numel=int(np.prod(entry.row_shape, dtype=np.int64)),
                sampled_rows=entry.rows,
                count=entry.moments.count,
                mean=entry.moments.mean if entry.moments.count else None,
                std=entry.moments.std,
                abs_mean=entry.moments.abs_mean,
                nz_frac=entry.moments.nz_frac,
            )
            for name, entry in sorted(self.backbone.items())
        ]


def collect(store: Store, max_samples: int | None) -> VinOfflineDatasetStats:
    """The statistics over the first `max_samples` rows of the index, all of them when None.

    What can't be read is left out and counted; nothing is raised for it.
    """
    manifest, index = store.manifest, store.rows
    scanned = index if max_samples is None else index[: max(0, max_samples)]
    wanted: dict[str, list[int]] = {}
    shards: list[ShardSpec] = []
    for row in scanned:
        shard = store.shard_of(row)
        if shard is not None:
            wanted.setdefault(row.shard_id, []).append(row.row)
            shards.append(shard)
    scan = _Scan(store, wanted)
    (nothing,) = series_of([RowLabels()])
    found = [scan.series.get((row.shard_id, row.row), nothing) for row in scanned]
    series = Series.of(found)
    poses = dict(zip(POSE_KEYS, series.poses, strict=True))
    shapes = batch_shapes(store)
    return VinOfflineDatasetStats(
        store_dir=store.real_path,
        version=manifest.version,
        num_samples=len(index),
        sampled_samples=len(scanned),
        split_counts=dict(Counter(row.split for row in index)),
        num_scenes=len({row.scene_id for row in index}),
        num_snippets=len({(row.scene_id, row.snippet_id) for row in index}),
        materialized_blocks={
            name: getattr(manifest.materialized_blocks, name) for name in ("backbone", "depths", "candidate_pcs")
        },
        candidate_count=NumericSummary.of(series.counts),
        rri=NumericSummary.of(series.rri),
        vin_points=NumericSummary.of(series.points),
        numeric_bytes=numeric_bytes(manifest),
        block_shapes=block_shapes(manifest),
        block_diagnostics=block_diagnostics(manifest),
        sample_summaries=[_sample(row, own) for row, own in zip(scanned, found, strict=True)],
        candidate_count_values=series.counts.tolist(),
        rri_values=series.rri.tolist(),
        vin_point_values=series.points.tolist(),
        rri_component_values={name: values.tolist() for name, values in series.components.items()},
        rri_component_summaries={name: NumericSummary.of(values) for name, values in series.components.items()},
        candidate_pose_values={key: values.tolist() for key, values in poses.items()},
        candidate_pose_summaries={key: NumericSummary.of(values) for key, values in poses.items()},
        memory_diagnostics=memory_diagnostics(shards),
        backbone_diagnostics=scan.backbone_diagnostics(),
        scene_labels_available=any(shard.has_labels for shard in manifest.shards),
        batch_shapes_available=shapes is not None,
        batch_shapes=shapes or {},
        rri_component_pairs={name: list(zip(*pairs.tolist(), strict=True)) for name, pairs in series.pairs.items()},
        rri_pairing_unavailable_sample_keys=[
            row.key for row, own in zip(scanned, found, strict=True) if own.count is not None and not own.paired
        ],
        **_rows_read(store, scanned, scan),
    )


def _sample(row: IndexRow, found: RowSeries) -> VinOfflineSampleDiagnostic:
    return VinOfflineSampleDiagnostic(
        row.sample_index,
        row.key,
        row.scene_id,
        compact(row.snippet_id),
        row.split,
        row.shard_id,
        row.row,
        found.count,
        NumericSummary.of(found.rri),
        NumericSummary.of(found.points),
    )


def _rows_read(store: Store, scanned: tuple[IndexRow, ...], scan: _Scan) -> dict[str, Any]:
    whole = 0
    by_block: Counter[str] = Counter()
    needed: dict[str, list[str]] = {}
    for row in scanned:
        shard = store.shard_of(row)
        if shard is None:
            continue
        if shard.shard_id not in needed:
            fields = [n for n, block in shard.blocks.items() if n.startswith(BACKBONE) and block.kind == ZARR_ARRAY]
            needed[shard.shard_id] = sorted([*label_blocks(shard), *fields])
        missed = scan.unread.get((row.shard_id, row.row), set())
        whole += not missed
        by_block.update(name for name in needed[shard.shard_id] if name not in missed)
    return {"rows_read": whole, "block_rows_read": dict(sorted(by_block.items()))}
