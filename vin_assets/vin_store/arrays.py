"""Zarr v3 arrays of one shard: their metadata and single chunks, read below the store's root.

Belongs here: what `zarr.json` and a chunk file mean. Does not belong here: which rows are wanted, threads, statistics.

Chunks are read as plain files and decoded with zstandard: every open goes through `FileRoot` (the kernel decides
containment), a chunk that is missing and one that is broken are told apart, and no decoded array outlives its use.
"""

from __future__ import annotations

import json
import math
import posixpath
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from resources.files import FileRoot, PathRefusedError
from vin_assets.vin_store.format import DTYPES, BlockSpec, ShardSpec

MAX_METADATA_BYTES = 1 << 24
MAX_CHUNK_BYTES = 1 << 28
Array = npt.NDArray[Any]


class ArrayError(Exception):
    """An array that can't be read at all: `code` names the rule it breaks, the text says why."""

    def __init__(self, code: str, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.code, self.path, self.reason = code, path, reason


class ChunkState(Enum):
    """What became of one chunk."""

    STORED = "stored"
    ABSENT = "absent"  # reads as fill values; legal for some blocks, lost data for others
    BROKEN = "broken"
    REFUSED = "refused"  # a link that leaves the store


@dataclass(frozen=True, slots=True)
class Chunk:
    """One decoded chunk: `values` has the chunk's shape and is None unless it is stored or absent."""

    state: ChunkState
    values: Array | None
    path: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ArrayMeta:
    """An array's own metadata.

    A chunk holds `chunk_rows` rows with their full trailing shape: decoded (the last one too) it has `chunk_shape` and
    `chunk_bytes` bytes.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int
    separator: str
    compressed: bool
    fill: Any
    chunk_shape: tuple[int, ...]
    chunk_bytes: int

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.shape[1:]

    def chunk_path(self, index: int) -> str:
        """The file of the chunk that is number `index` along the rows."""
        return f"{self.path}/c{self.separator}{index}" + f"{self.separator}0" * (len(self.shape) - 1)

    def filled(self) -> Array:
        """A chunk of fill values, as an absent chunk reads."""
        return np.broadcast_to(np.asarray(self.fill, self.dtype), self.chunk_shape)


def block_path(shard: ShardSpec, block: BlockSpec, part: int = 0) -> str:
    """The path of a block's array or record file, relative to the store; not yet judged.

    Raises:
        ArrayError: the manifest names no such path.
    """
    try:
        return posixpath.join(shard.relative_dir, block.paths[part])
    except IndexError:
        reason = f"the manifest names {len(block.paths)} paths, {part + 1} are needed"
        raise ArrayError("array_missing", f"{shard.shard_id}/{block.name}", reason) from None


def read_array_meta(root: FileRoot, shard: ShardSpec, block: BlockSpec) -> ArrayMeta:
    """The metadata of a numeric block's array.

    Raises:
        ArrayError: `path_escape` when its path leaves the store, `array_missing` when there is none,
            `array_unreadable` when its `zarr.json` is broken or of a kind that is not read here.
    """
    path = block_path(shard, block)
    file = f"{path}/zarr.json"
    try:
        found = json.loads(root.read(file, MAX_METADATA_BYTES))
    except PathRefusedError as error:
        raise ArrayError("path_escape", file, str(error)) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArrayError("array_missing", file, "no such file") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ArrayError("array_unreadable", file, f"{error}") from error
    try:
        return _parse_meta(path, found)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = (
            f"{error}"
            if type(error) is ValueError
            else f"no array metadata of Zarr v3 ({type(error).__name__}: {error})"
        )
        raise ArrayError("array_unreadable", file, what) from error


def _parse_meta(path: str, found: Any) -> ArrayMeta:
    if found["zarr_format"] != 3 or found["node_type"] != "array":
        raise ValueError(f"a Zarr v3 array is expected, found format {found['zarr_format']}, {found['node_type']}")
    shape = tuple(found["shape"])
    if not shape or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"shape {found['shape']} has no row axis or is no list of sizes")
    if found["data_type"] not in DTYPES:
        raise ValueError(f"data type {found['data_type']!r} is not supported")
    grid = found["chunk_grid"]
    chunk_shape = tuple(grid["configuration"]["chunk_shape"])
    trailing = tuple(max(extent, 1) for extent in shape[1:])
    if grid["name"] != "regular" or tuple(max(extent, 1) for extent in chunk_shape[1:]) != trailing:
        raise ValueError(f"chunks of shape {chunk_shape} don't hold whole rows of {shape}")
    if type(chunk_shape[0]) is not int or chunk_shape[0] < 1:
        raise ValueError(f"chunks of shape {chunk_shape} hold no rows")
    encoding = found.get("chunk_key_encoding", {"name": "default"})
    if encoding["name"] != "default":
        raise ValueError(f"chunk key encoding {encoding['name']!r} is not supported")
    codecs = [codec["name"] for codec in found["codecs"]]
    endian = found["codecs"][0].get("configuration", {}).get("endian", "little") if codecs else None
    if codecs not in (["bytes"], ["bytes", "zstd"]) or endian != "little":
        raise ValueError(f"codecs {codecs} ({endian} endian) are not supported; bytes and zstd are")
    dtype = np.dtype(found["data_type"]).newbyteorder("<")
    fill = found["fill_value"]
    fill = np.dtype(dtype).type(float(fill) if isinstance(fill, str) else fill)
    separator = encoding.get("configuration", {}).get("separator", "/")
    if separator not in ("/", "."):
        raise ValueError(f"chunk key separator {separator!r} is not supported")
    whole = (chunk_shape[0], *shape[1:])
    size = math.prod(whole) * dtype.itemsize
    if size > MAX_CHUNK_BYTES:
        raise ValueError(f"a chunk of {size} bytes is beyond the {MAX_CHUNK_BYTES} that are read")
    return ArrayMeta(path, shape, dtype, chunk_shape[0], separator, "zstd" in codecs, fill, whole, size)


class _PerThread(threading.local):
    """A decompressor belongs to one thread at a time."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()


_per_thread = _PerThread()


def read_chunk(root: FileRoot, meta: ArrayMeta, index: int) -> Chunk:
    """The chunk that is number `index` along the rows. Never raises for what a chunk file holds."""
    path = meta.chunk_path(index)
    size = meta.chunk_bytes
    try:
        data = root.read(path, size + (size >> 7) + 1024)  # a chunk that zstd could not shrink is this long at most
    except (FileNotFoundError, NotADirectoryError):
        return Chunk(ChunkState.ABSENT, meta.filled(), path)
    except PathRefusedError as error:
        return Chunk(ChunkState.REFUSED, None, path, str(error))
    except OSError as error:
        return Chunk(ChunkState.BROKEN, None, path, error.strerror or str(error))
    if meta.compressed:
        try:
            declared = zstandard.frame_content_size(data)
            if declared not in (-1, size):
                return Chunk(ChunkState.BROKEN, None, path, f"it declares {declared} bytes, {size} are expected")
            data = _per_thread.zstd.decompress(data, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            return Chunk(ChunkState.BROKEN, None, path, f"no zstd data of {size} bytes: {error}")
    if len(data) != size:
        return Chunk(ChunkState.BROKEN, None, path, f"{len(data)} bytes, {size} are expected")
    return Chunk(ChunkState.STORED, np.frombuffer(data, meta.dtype).reshape(meta.chunk_shape), path)
