"""Record blocks of one sample: MessagePack, for people who look into a store.

Belongs here: decoding a row's records and describing the tensors in them. Does not belong here: statistics, which never
need records.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import msgpack

from resources.files import FileRoot, PathRefusedError
from vin_assets.vin_store.arrays import ArrayError, block_path
from vin_assets.vin_store.format import DTYPES, RECORDS, BlockSpec, IndexRow, ShardSpec
from vin_assets.vin_store.npy import int_vector
from vin_assets.vin_store.store import Store

MAX_OFFSETS_BYTES = 1 << 30
MAX_RECORD_BYTES = 1 << 28


class RecordError(ValueError):
    """A record that can't be read; the text says why."""


def _extent(root: FileRoot, shard: ShardSpec, block: BlockSpec, row: int) -> tuple[str, int, int]:
    payload, offsets = (block_path(shard, block, part) for part in (0, 1))
    found = int_vector(root.read(offsets, MAX_OFFSETS_BYTES))
    if row + 1 >= found.size:
        raise RecordError(f"{offsets}: {found.size} offsets say nothing of row {row}")
    start, end = int(found[row]), int(found[row + 1])
    if not 0 <= start <= end <= root.stat(payload).size or end - start > MAX_RECORD_BYTES:
        raise RecordError(f"{payload}: row {row} can't lie at bytes {start} to {end}")
    return payload, start, end


def read_record(root: FileRoot, shard: ShardSpec, block: BlockSpec, row: int) -> Any:
    """A row's record as plain Python objects, None for a missing row; tensors are as they are stored.

    Raises:
        RecordError: offsets or payload are missing or broken, or lead out of the store.
    """
    try:
        payload, start, end = _extent(root, shard, block, row)
        with root.open(payload) as file:
            file.seek(start)
            data = file.read(end - start)
        return msgpack.unpackb(data, strict_map_key=False) if data else None
    except RecordError:
        raise
    except (OSError, PathRefusedError, ArrayError, ValueError, msgpack.UnpackException) as error:
        raise RecordError(f"{shard.shard_id} {block.name} row {row}: {error or type(error).__name__}") from error


def describe(record: Any) -> Any:
    """A record with each tensor (a map with `data` in base64, and a shape or a dtype) as a line of text."""
    if isinstance(record, dict):
        if "data" in record and record.keys() & {"shape", "dtype"}:
            return _tensor(record)
        return {str(key): describe(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [describe(value) for value in record]
    return f"{len(record)} bytes" if isinstance(record, bytes) else record


def _tensor(record: dict[Any, Any]) -> str:
    data, shape, dtype = record["data"], record.get("shape"), str(record.get("dtype"))
    try:
        size = len(base64.b64decode(data, validate=True)) if isinstance(data, str) else len(data)
    except (binascii.Error, ValueError, TypeError):
        return f"tensor {dtype} {shape}: its data is no base64"
    name = dtype.rpartition(".")[2]
    text = f"tensor {name} {tuple(shape) if isinstance(shape, (list, tuple)) else shape}, {size} bytes"
    if name in DTYPES and isinstance(shape, (list, tuple)) and all(isinstance(extent, int) for extent in shape):
        bits = 8 if name == "bool" else int("".join(filter(str.isdigit, name)))
        wanted = math.prod(shape) * bits // 8
        if wanted != size:
            text += f" ({wanted} are expected)"
    return text


def sample_records(store: Store, row: IndexRow) -> dict[str, Any]:
    """Every record block of a sample, described; what can't be read is a text that begins with `unreadable`."""
    shard = store.shard_of(row)
    found: dict[str, Any] = {}
    for name, block in sorted(shard.blocks.items()) if shard is not None else ():
        if block.kind == RECORDS:
            try:
                found[name] = describe(read_record(store.root, store.shards[row.shard_id], block, row.row))
            except RecordError as error:
                found[name] = f"unreadable: {error}"
    return found
