"""The on-disk format: versions, names, manifest, index, identifiers.

Belongs here: what the bytes of `manifest.json` and `sample_index.jsonl` mean, and the names of blocks. Does not belong
here: opening files, arrays, statistics.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

SUPPORTED_VERSIONS = (7, 8, 10, 11)

ZARR_ARRAY = "zarr_array"
RECORDS = "msgpack_indexed_records"

# The numeric data types of Zarr v3 that numpy names alike.
DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"] + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)

RRI = "oracle.rri"
CANDIDATE_COUNT = "oracle.candidate_count"
CANDIDATE_INDICES = "oracle.candidate_indices"
CANDIDATE_POSES = "oracle.candidate_poses_world_cam"
REFERENCE_POSES = ("vin.reference_pose_world_rig", "oracle.reference_pose_world_rig")
LENGTHS = "vin.lengths"
COMPONENTS = ("pm_dist_before", "pm_dist_after", "pm_acc_before", "pm_acc_after", "pm_comp_before", "pm_comp_after")
BACKBONE = "backbone."
# The blocks that a version-11 store with a backbone holds in every row, with their dtypes.
BACKBONE_BLOCKS = {
    f"{BACKBONE}{field}": "int64" if field == "counts" else "float32"
    for field in (
        "t_world_voxel",
        "voxel_extent",
        "occ_pr",
        "occ_input",
        "free_input",
        "counts",
        "cent_pr",
        "pts_world",
    )
}
FREE_INPUT_PROVENANCES = ("native_evl_v1", "derived_observed_complement_occ_input_v1")

_RAW_KEY = re.compile(r"AriaSyntheticEnvironment_([^_]+)_AtekDataSample_([^_:/.\s]+)")


def compact(text: str) -> str:
    """`text` with every raw ATEK key in it in its compact form: `ASE_<scene>_Atek_<sample>`."""
    return _RAW_KEY.sub(r"ASE_\1_Atek_\2", text)


def scene_of_raw_key(text: str) -> str | None:
    """The scene of the raw ATEK key that `text` begins with, None when it begins with none."""
    match = _RAW_KEY.match(text)
    return match.group(1) if match else None


class FormatError(ValueError):
    """Bytes that are not what the format says; the text names the field or line."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


def _none_as_empty(value: Any) -> Any:
    return {} if value is None else value


# Beyond these no array can lie on a disk, and sizes in bytes no longer fit a float.
_Size = Annotated[int, Field(le=2**63 - 1)]
_Shape = Annotated[tuple[_Size, ...], Field(max_length=16)]
_Object = Annotated[dict[str, Any], BeforeValidator(_none_as_empty)]


class BlockSpec(_Part):
    """One block of one shard, as the manifest declares it; `shape` includes the row axis."""

    name: str
    kind: Literal["zarr_array", "msgpack_indexed_records"]
    paths: tuple[str, ...]
    dtype: str | None = None
    shape: _Shape | None = None
    optional: bool = False

    @property
    def itemsize(self) -> int | None:
        """Bytes of one element, None for record blocks and for unknown dtypes."""
        return np.dtype(self.dtype).itemsize if self.kind == ZARR_ARRAY and self.dtype in DTYPES else None

    @property
    def estimated_bytes(self) -> int | None:
        """Uncompressed bytes of all rows, None where dtype or shape are not known."""
        size = self.itemsize
        return None if size is None or self.shape is None else size * _product(self.shape)

    @property
    def row_bytes(self) -> int:
        """Uncompressed bytes of one row; 0 where dtype or shape are not known."""
        return (self.itemsize or 0) * _product(self.shape[1:]) if self.shape else 0


class ShardSpec(_Part):
    """One shard of the manifest."""

    shard_id: str
    relative_dir: str
    row_start: Annotated[int, Field(ge=0)]
    num_rows: Annotated[_Size, Field(ge=0)]
    blocks: dict[str, BlockSpec]

    def reference_pose(self) -> str | None:
        """The name under which this shard holds the reference pose, None when it holds none."""
        return next((name for name in REFERENCE_POSES if name in self.blocks), None)

    @property
    def has_labels(self) -> bool:
        """Whether the shard declares measured scene supervision."""
        return CANDIDATE_COUNT in self.blocks and RRI in self.blocks


class MaterializedBlocks(_Part):
    """Which groups of blocks the writer was asked for."""

    backbone: bool
    depths: bool
    candidate_pcs: bool
    gt_obbs: bool = False
    detected_obbs: bool = False
    trajectory: bool = False


class _Source(_Part):
    dataset_config: _Object = {}
    dataset_signature: str | None = None


class _Oracle(_Part):
    max_candidates: int


class Manifest(_Part):
    """`manifest.json`; unknown fields are ignored."""

    version: int
    created_at: str
    source: _Source
    oracle: _Oracle
    vin: dict[str, Any]
    materialized_blocks: MaterializedBlocks
    stats: _Object = {}
    provenance: _Object = {}
    shards: tuple[ShardSpec, ...] = ()

    def shards_by_id(self) -> dict[str, ShardSpec]:
        """The shards by id; of a repeated id the first, as the writer of a duplicate can't be told from its victim."""
        found: dict[str, ShardSpec] = {}
        for shard in self.shards:
            found.setdefault(shard.shard_id, shard)
        return found


class IndexRow(_Part):
    """One line of `sample_index.jsonl`."""

    sample_index: int
    sample_key: str
    scene_id: str
    snippet_id: str
    split: str
    shard_id: str
    row: int

    @property
    def key(self) -> str:
        """The sample key in compact form."""
        return compact(self.sample_key)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line of the index that can't be used: its number (from 1) and why."""

    number: int
    reason: str


_ROW = TypeAdapter(IndexRow)


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= max(extent, 0)
    return product


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    place = ""
    for part in first["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    what = "is missing" if first["type"] == "missing" else f"{first['msg']}, found {str(first['input'])[:80]!r}"
    return f"field {place}: {what}{more}" if place else f"{first['msg']}{more}"


def manifest_version(data: bytes) -> tuple[dict[str, Any], int]:
    """The JSON object in `data` and its version, before anything else is judged.

    Raises:
        FormatError: no JSON, no object, or no integer version.
    """
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # ValueError alone: an integer beyond what Python converts
        raise FormatError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise FormatError(f"one JSON object is expected, found {type(found).__name__}")
    if "version" not in found:
        raise FormatError("field version: is missing")
    if type(found["version"]) is not int:
        raise FormatError(f"field version: an integer is expected, found {found['version']!r}")
    return found, found["version"]


def parse_manifest(found: dict[str, Any]) -> Manifest:
    """The manifest in a JSON object of a supported version.

    Raises:
        FormatError: a required field is missing, a field has the wrong type, or a text is none; names it.
    """
    try:
        return Manifest.model_validate_json(json.dumps(found))  # JSON mode: lists are tuples, and nothing else is bent
    except RecursionError as error:
        raise FormatError(f"no JSON: {error}") from None
    except ValidationError as error:
        place = _surrogate(found)
        what = _explain(error) if place is None else f"field {place}: no text, it holds half of a surrogate pair"
        raise FormatError(what) from None


def _surrogate(found: Any) -> str | None:
    """The place of a text (or the object of a name) with a lone surrogate, None when there is none."""
    waiting: list[tuple[str, Any]] = [("", found)]
    while waiting:
        place, item = waiting.pop()
        if isinstance(item, str):
            if any("\ud800" <= character <= "\udfff" for character in item):
                return place
        elif isinstance(item, dict):
            for name, value in item.items():
                inner = f"{place}.{name}" if place else name
                waiting += [(inner, value), (ascii(inner), name)]
        elif isinstance(item, list):
            waiting += [(f"{place}[{number}]", value) for number, value in enumerate(item)]
    return None


def parse_index(data: bytes) -> tuple[list[IndexRow], list[int], list[BadLine]]:
    """The rows of an index in file order, their line numbers, and the lines that can't be used.

    Blank lines and CRLF are accepted.
    """
    rows: list[IndexRow] = []
    numbers: list[int] = []
    bad: list[BadLine] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(_ROW.validate_json(line))
        except ValidationError as error:
            bad.append(BadLine(number, _explain(error)))
        else:
            numbers.append(number)
    return rows, numbers, bad
