"""What lies on disk of a store, gathered once, for the integrity rules to judge.

Belongs here: looking. Does not belong here: judging (`rules_store`, `rules_arrays`).

Only rows that the index names are looked at. Every chunk of every numeric block of theirs is decoded; kept are the few
small blocks that rules need the values of, and for the others what could not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from resources.files import FileRoot, PathRefusedError
from vin_assets.vin_store.arrays import (
    Array,
    ArrayError,
    ArrayMeta,
    Chunk,
    ChunkState,
    block_path,
    read_array_meta,
    read_chunk,
)
from vin_assets.vin_store.format import (
    CANDIDATE_COUNT,
    COMPONENTS,
    LENGTHS,
    RRI,
    ZARR_ARRAY,
    BadLine,
    BlockSpec,
    IndexRow,
    Manifest,
    ShardSpec,
)
from vin_assets.vin_store.generation import VinOfflineStoreGeneration
from vin_assets.vin_store.npy import int_vector
from vin_assets.vin_store.rows import in_order
from vin_assets.vin_store.store import Store, VinOfflineStoreConfig, VinStoreError

MAX_OFFSETS_BYTES = 1 << 30
_KEPT = frozenset([CANDIDATE_COUNT, RRI, LENGTHS, *(f"oracle.{name}" for name in COMPONENTS)])
_TASK_ROWS = 32


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that could not be read: the code of the rule that it breaks, its path in the store, and why."""

    code: str
    path: str
    reason: str


@dataclass(slots=True)
class BlockFacts:
    """One block of one shard. `values` is kept for the small blocks only, row -> row values.

    `absent` are rows whose chunk file is not there, `broken` and `refused` rows whose chunk can't be decoded or leads
    out of the store, each with its path and why.
    """

    shard: ShardSpec
    block: BlockSpec
    fault: Fault | None = None
    meta: ArrayMeta | None = None
    values: dict[int, Array] = field(default_factory=dict)
    absent: dict[int, str] = field(default_factory=dict)
    broken: dict[int, tuple[str, str]] = field(default_factory=dict)
    refused: dict[int, tuple[str, str]] = field(default_factory=dict)
    offsets: npt.NDArray[np.int64] | None = None
    payload_bytes: int = 0


@dataclass(slots=True)
class StoreFacts:
    """Everything the rules judge. `problem` is set when manifest or index can't be read; all else is empty then."""

    config: VinOfflineStoreConfig
    problem: VinStoreError | None = None
    manifest: Manifest | None = None
    rows: tuple[IndexRow, ...] = ()
    lines: tuple[int, ...] = ()
    bad_lines: tuple[BadLine, ...] = ()
    shards: dict[str, ShardSpec] = field(default_factory=dict)
    shard_faults: dict[str, Fault] = field(default_factory=dict)
    blocks: list[BlockFacts] = field(default_factory=list)
    splits: dict[str, npt.NDArray[np.int64] | Fault] = field(default_factory=dict)
    expected: VinOfflineStoreGeneration | None = None
    observed: VinOfflineStoreGeneration | None = None
    sample_keys: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def keys(self, shard_id: str, rows: Iterable[int] | None = None) -> list[str]:
        """The sample keys that the index puts in these rows of a shard (in all when None), in row order."""
        held = self.sample_keys.get(shard_id, {})
        return [key for row in (sorted(held) if rows is None else rows) for key in held.get(row, ())]

    def candidate_counts(self, shard_id: str) -> dict[int, int]:
        """The stored candidate counts of a shard that can be read: row -> value."""
        for block in self.blocks:
            if block.block.name == CANDIDATE_COUNT and block.shard.shard_id == shard_id:
                held = block.values.items()
                return {row: int(value.item()) for row, value in held if row not in block.absent and value.size == 1}
        return {}


def observe(
    store: Store, facts: StoreFacts, *, chunks: bool = True, progress: Callable[[int, int], None] | None = None
) -> None:
    """Fill `facts` from an opened store, chunks only when asked. `progress(done, total)` counts arrays."""
    facts.manifest, facts.shards = store.manifest, store.shards
    facts.rows, facts.lines, facts.bad_lines = store.rows, store.lines, store.bad_lines
    indexed: dict[str, set[int]] = {}
    for row in store.rows:
        if store.shard_of(row) is not None:
            indexed.setdefault(row.shard_id, set()).add(row.row)
        facts.sample_keys.setdefault(row.shard_id, {}).setdefault(row.row, []).append(row.key)
    facts.splits = _splits(store.root, store.config, {row.split for row in store.rows})
    for shard in store.shards.values():
        fault = _shard_fault(store.root, shard)
        if fault is not None:
            facts.shard_faults[shard.shard_id] = fault
        else:
            facts.blocks += [_look_at(store.root, shard, block) for _, block in sorted(shard.blocks.items())]
    if chunks:
        _read_chunks(store.root, facts, indexed, progress)


def _shard_fault(root: FileRoot, shard: ShardSpec) -> Fault | None:
    try:
        root.scan(shard.relative_dir)
    except PathRefusedError as error:
        return Fault("path_escape", shard.relative_dir, str(error))
    except OSError as error:
        return Fault("shard_directory_missing", shard.relative_dir, error.strerror or str(error))
    return None


def _look_at(root: FileRoot, shard: ShardSpec, block: BlockSpec) -> BlockFacts:
    facts = BlockFacts(shard, block)
    try:
        if block.kind == ZARR_ARRAY:
            facts.meta = read_array_meta(root, shard, block)
        else:
            facts.fault = _records(root, shard, facts)
    except ArrayError as error:
        facts.fault = Fault(error.code, error.path, error.reason)
    return facts


def _records(root: FileRoot, shard: ShardSpec, facts: BlockFacts) -> Fault | None:
    payload, offsets = (block_path(shard, facts.block, part) for part in (0, 1))
    path, missing = payload, "payload_missing"
    try:
        facts.payload_bytes = root.stat(payload).size
        path, missing = offsets, "offsets_missing"
        facts.offsets = int_vector(root.read(offsets, MAX_OFFSETS_BYTES))
    except PathRefusedError as error:
        return Fault("path_escape", path, str(error))
    except (FileNotFoundError, NotADirectoryError):
        return Fault(missing, path, "no such file")
    except (OSError, ValueError) as error:
        return Fault("offsets_unreadable", path, str(error))
    return None


def _splits(root: FileRoot, config: VinOfflineStoreConfig, names: set[str]) -> dict[str, npt.NDArray[np.int64] | Fault]:
    try:
        names = names | {entry.name.removesuffix(".npy") for entry in root.scan(config.splits_dirname, ".npy")}
    except PathRefusedError as error:
        return {"": Fault("path_escape", config.splits_dirname, str(error))}
    except OSError as error:
        return {"": Fault("splits_unreadable", config.splits_dirname, error.strerror or str(error))}
    found: dict[str, npt.NDArray[np.int64] | Fault] = {}
    for name in sorted(names | {"all"}):
        path = f"{config.splits_dirname}/{name}.npy"
        try:
            found[name] = int_vector(root.read(path, MAX_OFFSETS_BYTES))
        except PathRefusedError as error:
            found[name] = Fault("path_escape", path, str(error))
        except OSError as error:
            found[name] = Fault("splits_unreadable", path, error.strerror or str(error))
        except ValueError as error:
            found[name] = Fault("splits_unreadable", path, str(error))
    return found


@dataclass(frozen=True, slots=True)
class _Task:
    facts: BlockFacts
    meta: ArrayMeta
    chunks: list[tuple[int, list[int]]]
    last: bool


def _tasks(facts: StoreFacts, indexed: dict[str, set[int]]) -> Iterator[_Task]:
    for block in facts.blocks:
        meta = block.meta
        if meta is None:
            continue
        by_chunk: dict[int, list[int]] = {}
        for row in sorted(indexed.get(block.shard.shard_id, ())):
            if row < meta.shape[0]:
                by_chunk.setdefault(row // meta.chunk_rows, []).append(row)
        chunks = list(by_chunk.items())
        for start in range(0, max(1, len(chunks)), _TASK_ROWS):
            yield _Task(block, meta, chunks[start : start + _TASK_ROWS], start + _TASK_ROWS >= len(chunks))


def _read_chunks(
    root: FileRoot,
    facts: StoreFacts,
    indexed: dict[str, set[int]],
    progress: Callable[[int, int], None] | None,
) -> None:
    def work(task: _Task) -> tuple[_Task, list[Chunk]]:
        keep = task.facts.block.name in _KEPT
        found = []
        for index, _ in task.chunks:
            chunk = read_chunk(root, task.meta, index)
            found.append(chunk if keep else Chunk(chunk.state, None, chunk.path, chunk.reason))
        return task, found

    done, total = 0, sum(block.meta is not None for block in facts.blocks)
    for task, chunks in in_order(work, _tasks(facts, indexed)):
        for (_, rows), chunk in zip(task.chunks, chunks, strict=True):
            _note(task.facts, task.meta, rows, chunk)
        done += task.last
        if progress is not None and task.last:
            progress(done, total)


def _note(facts: BlockFacts, meta: ArrayMeta, rows: list[int], chunk: Chunk) -> None:
    for row in rows:
        if chunk.state is ChunkState.ABSENT:
            facts.absent[row] = chunk.path
        elif chunk.state is ChunkState.BROKEN:
            facts.broken[row] = (chunk.path, chunk.reason)
        elif chunk.state is ChunkState.REFUSED:
            facts.refused[row] = (chunk.path, chunk.reason)
        if chunk.values is not None:
            value: Any = chunk.values[row % meta.chunk_rows]
            facts.values[row] = np.asarray(value)
