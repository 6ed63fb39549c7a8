"""Reading wanted rows of a shard's blocks in bulk, and the labels of each row.

Belongs here: which chunks serve which rows, on how many threads, in what order results come back. Does not belong
here: what a chunk file means (`arrays`), what is computed from rows.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from resources.files import FileRoot
from vin_assets.vin_store.arrays import Array, ArrayError, ArrayMeta, ChunkState, read_array_meta, read_chunk
from vin_assets.vin_store.format import (
    CANDIDATE_COUNT,
    CANDIDATE_INDICES,
    CANDIDATE_POSES,
    COMPONENTS,
    LENGTHS,
    RRI,
    ZARR_ARRAY,
    ShardSpec,
)

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], threads: int | None = None) -> Iterator[Result]:
    """The results of `work` on `tasks`, in the order of the tasks, on as many threads as there are cores.

    Few tasks are under way at a time, so that memory stays bounded however many there are.
    """
    count = threads or len(os.sched_getaffinity(0))
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(count) as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(work, task))
                if len(waiting) > 3 * count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def numeric_meta(root: FileRoot, shard: ShardSpec, name: str) -> ArrayMeta | None:
    """The array metadata of a numeric block, None when the shard has no such block or it can't be read."""
    block = shard.blocks.get(name)
    if block is None or block.kind != ZARR_ARRAY:
        return None
    try:
        return read_array_meta(root, shard, block)
    except ArrayError:
        return None


@dataclass(frozen=True, slots=True)
class Rows:
    """Wanted rows of one block: row -> its values (None where the chunk is broken), and which read as fill values."""

    values: dict[int, Array | None]
    absent: frozenset[int] = frozenset()


def read_rows(root: FileRoot, meta: ArrayMeta, rows: Iterable[int]) -> Rows:
    """The values of `rows`, each chunk read once. Rows beyond the array are None."""
    values: dict[int, Array | None] = {}
    absent: set[int] = set()
    held = -1
    chunk = None
    for row in rows:
        if row >= meta.shape[0]:
            values[row] = None
            continue
        if chunk is None or row // meta.chunk_rows != held:
            held = row // meta.chunk_rows
            chunk = read_chunk(root, meta, held)
        values[row] = None if chunk.values is None else chunk.values[row % meta.chunk_rows]
        if chunk.state is ChunkState.ABSENT:
            absent.add(row)
    return Rows(values, frozenset(absent))


@dataclass(frozen=True, slots=True)
class RowLabels:
    """What the statistics need of one row, apart from the backbone.

    `count` is the stored candidate count (clamped to 0 and above), None where it can't be read or isn't labelled. The
    arrays are cut to the first `count` entries; None where the block is not there or can't be read. `unread` names the
    declared blocks that could not be read.
    """

    count: int | None = None
    rri: Array | None = None
    components: dict[str, Array] = field(default_factory=dict)
    indices: Array | None = None
    poses: Array | None = None
    reference: Array | None = None
    points: Array | None = None
    unread: frozenset[str] = frozenset()


def label_blocks(shard: ShardSpec) -> list[str]:
    """The declared blocks that the statistics read row by row, apart from the backbone."""
    names = [LENGTHS]
    if shard.has_labels:
        names += [CANDIDATE_COUNT, RRI, CANDIDATE_INDICES, CANDIDATE_POSES, *(f"oracle.{name}" for name in COMPONENTS)]
        names += [name for name in (shard.reference_pose(),) if name is not None]
    return [name for name in names if name in shard.blocks]


def read_labels(root: FileRoot, shard: ShardSpec, rows: list[int]) -> list[RowLabels]:
    """The labels of `rows` of a shard, in that order; what can't be read is left out and named in `unread`.

    An absent chunk of `oracle.candidate_count` is lost data. So is one of a label where the count is below the
    capacity C: its padding is NaN, which no absent chunk can stand for.
    """
    names = label_blocks(shard)
    metas = {name: numeric_meta(root, shard, name) for name in names}
    found = {name: read_rows(root, meta, rows) for name, meta in metas.items() if meta is not None}
    return [_labels_of(shard, names, metas, found, row) for row in rows]


def _labels_of(
    shard: ShardSpec, names: list[str], metas: dict[str, ArrayMeta | None], found: dict[str, Rows], row: int
) -> RowLabels:
    unread: set[str] = set()

    def get(name: str | None) -> Array | None:
        if name is None or name not in names:
            return None
        value = found[name].values[row] if name in found else None
        if value is None:
            unread.add(name)
        return value

    points = get(LENGTHS)
    stored = get(CANDIDATE_COUNT)
    if stored is not None and (stored.size != 1 or row in found[CANDIDATE_COUNT].absent):
        unread.add(CANDIDATE_COUNT)
        stored = None
    if stored is None:
        for name in names:
            get(name)
        return RowLabels(points=points, unread=frozenset(unread))
    count = max(0, int(stored.reshape(-1)[0]))

    def label(name: str) -> Array | None:
        values = get(name)
        meta = metas.get(name)
        if values is not None and meta is not None:
            if len(meta.row_shape) != 1 or (row in found[name].absent and count < meta.row_shape[0]):
                unread.add(name)
                return None
            return values[:count]
        return None

    components = {name: label(f"oracle.{name}") for name in COMPONENTS}
    poses, reference = get(CANDIDATE_POSES), get(shard.reference_pose())
    if poses is not None and (poses.ndim != 2 or poses.shape[1] != 12):
        unread.add(CANDIDATE_POSES)
        poses = None
    if reference is not None and reference.size != 12:
        unread.add(str(shard.reference_pose()))
        reference = None
    return RowLabels(
        count,
        label(RRI),
        {name: values for name, values in components.items() if values is not None},
        label(CANDIDATE_INDICES),
        None if poses is None else poses[:count],
        reference,
        points,
        frozenset(unread),
    )
