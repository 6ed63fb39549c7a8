"""Kinds of damage to a tiny VIN store, each with the finding that it has to give.

`DAMAGES` holds every kind; `CORRUPTORS` one per integrity rule.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from tests.builders.vin import edit_manifest

SHARD = Path("shards") / "shard-000000"
OTHER = Path("shards") / "shard-000001"


@dataclass(frozen=True)
class Damage:
    """`change` damages the store at a path; `code` is the finding that it gives, `place` a part of its `where`."""

    name: str
    code: str
    change: Callable[[Path], object]
    place: str = ""
    versions: tuple[int, ...] = (7, 8, 11)


def chunk(store: Path, block: str, row: int = 0, shard: Path = SHARD) -> Path:
    """The file of a row's chunk."""
    array = store / shard / block.replace(".", "/")
    rank = len(json.loads((array / "zarr.json").read_text())["shape"])
    return array.joinpath("c", str(row), *["0"] * (rank - 1))


def put(path: Path, values: npt.NDArray[Any]) -> None:
    """Write a chunk as the writer does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.ZstdCompressor(level=0).compress(values.tobytes()))


def get(path: Path, dtype: str) -> npt.NDArray[Any]:
    """The values of a chunk, flat."""
    return np.frombuffer(zstandard.ZstdDecompressor().decompress(path.read_bytes()), dtype).copy()


def change_chunk(block: str, dtype: str, position: int, value: float, row: int = 0) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        path = chunk(store, block, row)
        values = get(path, dtype)
        values[position] = value
        put(path, values)

    return change


def manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda store: edit_manifest(store, change)


def metadata(block: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(store: Path) -> None:
        path = store / SHARD / block.replace(".", "/") / "zarr.json"
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))

    return edit


def index(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[Path], None]:
    def edit(store: Path) -> None:
        path = store / "sample_index.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return edit


def replace(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda store: (store / name).write_bytes(data)


def truncate(name: str, keep: int) -> Callable[[Path], object]:
    return lambda store: os.truncate(store / name, keep if keep >= 0 else (store / name).stat().st_size + keep)


def as_folder(name: str) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        (store / name).unlink()
        (store / name).mkdir()

    return change


def as_file(name: str) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        shutil.rmtree(store / name)
        (store / name).write_bytes(b"")

    return change


def cut_chunk(block: str, keep: int = 9, row: int = 0) -> Callable[[Path], None]:
    return lambda store: os.truncate(chunk(store, block, row), keep)


def as_fifo(name: str) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        (store / name).unlink()
        os.mkfifo(store / name)

    return change


def link_out(name: str) -> Callable[[Path], None]:
    """Move a file or folder out of the store and leave a link to it."""

    def change(store: Path) -> None:
        outside = store.parent / "outside"
        outside.mkdir(exist_ok=True)
        shutil.move(store / name, outside / Path(name).name)
        (store / name).symlink_to(outside / Path(name).name)

    return change


def copy_chunk(source: str, target: str) -> Callable[[Path], object]:
    return lambda store: shutil.copy(chunk(store, source), chunk(store, target))


def offsets(change: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]) -> Callable[[Path], None]:
    def edit(store: Path) -> None:
        path = store / SHARD / OFFSETS
        np.save(path, change(np.load(path)))

    return edit


def shard_entry(key: str, value: object) -> Callable[[Path], None]:
    return manifest(lambda found: found["shards"][0].update({key: value}))


def block_entry(block: str, key: str, value: object) -> Callable[[Path], None]:
    return manifest(lambda found: found["shards"][0]["blocks"][block].update({key: value}))


OFFSETS = "gt__obb_sem_id_to_name.offsets.npy"
PAYLOAD = "gt__obb_sem_id_to_name.msgpack"
RRI_ROW = "shard-000000 oracle.rri rows 0"
_LINE = b'{"sample_index":0}\n'
_GONE = "no-such-folder"


def _bomb(store: Path) -> None:
    """A frame that claims to hold 1 TiB: magic, single segment with an 8-byte size, then nothing of use."""
    chunk(store, "oracle.rri").write_bytes(b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00")


def _append(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda store: (store / name).write_bytes((store / name).read_bytes() + data)


def _pickled(store: Path) -> None:
    np.save(store / SHARD / OFFSETS, np.array([{}, 1, 2, 3], dtype=object), allow_pickle=True)


def _extra_row(store: Path) -> None:
    index(lambda rows: rows.append(dict(rows[0], sample_index=6, sample_key="new")))(store)


def _lacking_backbone(store: Path) -> None:
    """A row without a backbone, as the writer leaves it: zeros, so no chunk at all."""
    for path in (store / SHARD / "backbone").glob("*/c/1"):
        shutil.rmtree(path)


DAMAGES = (
    Damage("store folder gone", "manifest_unreadable", shutil.rmtree),
    Damage("manifest gone", "manifest_unreadable", lambda store: (store / "manifest.json").unlink(), "manifest.json"),
    Damage("manifest empty", "manifest_unreadable", replace("manifest.json", b""), "manifest.json"),
    Damage("manifest cut", "manifest_unreadable", truncate("manifest.json", 900), "manifest.json"),
    Damage("manifest no UTF-8", "manifest_unreadable", replace("manifest.json", b"\xff\xfe\x00"), "manifest.json"),
    Damage("manifest a list", "manifest_unreadable", replace("manifest.json", b"[11]"), "manifest.json"),
    Damage("manifest nested too deep", "manifest_unreadable", replace("manifest.json", b"[" * 200_000)),
    Damage("manifest a folder", "manifest_unreadable", as_folder("manifest.json"), "manifest.json"),
    Damage("manifest a fifo", "manifest_unreadable", as_fifo("manifest.json"), "manifest.json"),
    Damage("manifest linked out", "manifest_unreadable", link_out("manifest.json"), "manifest.json"),
    Damage("max_candidates gone", "manifest_unreadable", manifest(lambda m: m["oracle"].pop("max_candidates"))),
    Damage("num_rows a text", "manifest_unreadable", shard_entry("num_rows", "3")),
    Damage("num_rows negative", "manifest_unreadable", shard_entry("num_rows", -3)),
    Damage("unknown block kind", "manifest_unreadable", block_entry("oracle.rri", "kind", "parquet")),
    Damage("version a text", "manifest_unreadable", manifest(lambda m: m.update(version="11"))),
    Damage("version 9", "unsupported_version", manifest(lambda m: m.update(version=9)), "manifest.json"),
    Damage("version 12", "unsupported_version", manifest(lambda m: m.update(version=12)), "manifest.json"),
    Damage("index gone", "index_unreadable", lambda store: (store / "sample_index.jsonl").unlink(), "sample_index"),
    Damage("index garbage", "index_unreadable", replace("sample_index.jsonl", b"\x00\x01\x02"), "sample_index"),
    Damage("index a folder", "index_unreadable", as_folder("sample_index.jsonl"), "sample_index"),
    Damage("index linked out", "index_unreadable", link_out("sample_index.jsonl"), "sample_index"),
    Damage("index line without fields", "index_line_unreadable", _append("sample_index.jsonl", _LINE), ":7"),
    Damage("index cut in a line", "index_line_unreadable", truncate("sample_index.jsonl", -20), ":6"),
    Damage("index row a text", "index_line_unreadable", index(lambda rows: rows[2].update(row="2")), ":3"),
    Damage("index cut at a line", "sample_count_differs", index(lambda rows: rows.pop()), "sample_index"),
    Damage("index empty", "splits_disagree", replace("sample_index.jsonl", b""), "splits/all.npy"),
    Damage(
        "shard id twice",
        "duplicate_shard_id",
        manifest(lambda m: m["shards"].append(dict(m["shards"][0], relative_dir=m["shards"][1]["relative_dir"]))),
    ),
    Damage("sample index twice", "duplicate_sample_index", index(lambda rows: rows[4].update(sample_index=3)), "4, 5"),
    Damage(
        "key twice, once in raw form",
        "duplicate_sample_key",
        index(
            lambda rows: (
                rows[0].update(sample_key="AriaSyntheticEnvironment_1_AtekDataSample_2"),
                rows[1].update(sample_key="ASE_1_Atek_2"),
            )
        ),
        "1, 2",
    ),
    Damage("unknown shard", "unknown_shard", index(lambda rows: rows[2].update(shard_id="shard-7")), "lines 3"),
    Damage("row negative", "row_out_of_range", index(lambda rows: rows[2].update(row=-1)), "lines 3"),
    Damage("row beyond", "row_out_of_range", index(lambda rows: rows[2].update(row=3)), "lines 3"),
    Damage("two lines, one row", "sample_count_differs", _extra_row),
    Damage("split file gone", "splits_unreadable", lambda store: (store / "splits/val.npy").unlink(), "val.npy"),
    Damage("split file garbage", "splits_unreadable", replace("splits/val.npy", b"garbage"), "val.npy"),
    Damage("split file cut", "splits_unreadable", truncate("splits/all.npy", -8), "all.npy"),
    Damage("split folder gone", "splits_unreadable", lambda store: shutil.rmtree(store / "splits"), "splits"),
    Damage("other split", "splits_disagree", lambda s: np.save(s / "splits/val.npy", np.array([97])), "val.npy"),
    Damage("split reversed", "splits_disagree", lambda s: np.save(s / "splits/all.npy", np.arange(6)[::-1]), "all"),
    Damage("shard folder gone", "shard_directory_missing", lambda s: shutil.rmtree(s / SHARD), "shard-000000"),
    Damage(
        "shard folder a file",
        "shard_directory_missing",
        as_file(str(SHARD)),
        "shard-000000",
    ),
    Damage("snippet pose not declared", "block_missing", lambda s: _undeclare(s, "vin.t_world_snippet"), "", (8, 11)),
    Damage("array gone", "array_missing", lambda s: shutil.rmtree(s / SHARD / "oracle/rri"), "oracle.rri"),
    Damage("array metadata gone", "array_missing", lambda s: (s / SHARD / "oracle/rri/zarr.json").unlink(), "rri"),
    Damage("array without path", "array_missing", block_entry("oracle.rri", "paths", []), "oracle.rri"),
    Damage("array metadata cut", "array_unreadable", truncate(f"{SHARD}/oracle/rri/zarr.json", 80), "oracle.rri"),
    Damage("array metadata empty", "array_unreadable", truncate(f"{SHARD}/vin/lengths/zarr.json", 0), "vin.lengths"),
    Damage("array metadata a list", "array_unreadable", replace(f"{SHARD}/oracle/rri/zarr.json", b"[]"), "rri"),
    Damage("array a group", "array_unreadable", metadata("oracle.rri", lambda m: m.update(node_type="group"))),
    Damage("array of Zarr v2", "array_unreadable", metadata("oracle.rri", lambda m: m.update(zarr_format=2))),
    Damage("other codecs", "array_unreadable", metadata("oracle.rri", lambda m: m["codecs"][1].update(name="blosc"))),
    Damage("codecs not objects", "array_unreadable", metadata("oracle.rri", lambda m: m.update(codecs=["bytes"]))),
    Damage("array shape a text", "array_unreadable", metadata("oracle.rri", lambda m: m.update(shape=["3", 8]))),
    Damage("half-row chunks", "array_unreadable", metadata("oracle.rri", lambda m: _grid(m, [1, 4]))),
    Damage("giant chunks", "array_unreadable", metadata("oracle.candidate_count", lambda m: _grid(m, [1 << 60]))),
    Damage("manifest shape lies", "shape_mismatch", block_entry("oracle.rri", "shape", [3, 60]), "oracle.rri"),
    Damage("num_rows lies", "shape_mismatch", shard_entry("num_rows", 1 << 50), "shard-000000"),
    Damage("array shape lies", "shape_mismatch", metadata("vin.lengths", lambda m: m.update(shape=[2, 1])), "lengths"),
    Damage("manifest dtype lies", "dtype_mismatch", block_entry("oracle.rri", "dtype", "float64"), "oracle.rri"),
    Damage("manifest dtype unknown", "dtype_mismatch", block_entry("oracle.rri", "dtype", "O"), "oracle.rri"),
    Damage("array dtype lies", "chunk_undecodable", metadata("oracle.rri", lambda m: m.update(data_type="float64"))),
    Damage("payload gone", "payload_missing", lambda s: (s / SHARD / PAYLOAD).unlink(), "gt.obb_sem_id_to_name"),
    Damage("offsets gone", "offsets_missing", lambda s: (s / SHARD / OFFSETS).unlink(), "gt.obb_sem_id_to_name"),
    Damage("offsets cut", "offsets_unreadable", truncate(f"{SHARD}/{OFFSETS}", -8), "gt.obb_sem_id_to_name"),
    Damage("offsets of floats", "offsets_unreadable", offsets(lambda o: o.astype(float)), "gt.obb_sem_id_to_name"),
    Damage("offsets too few", "offsets_unreadable", offsets(lambda o: o[:-1]), "gt.obb_sem_id_to_name"),
    Damage("offsets pickled", "offsets_unreadable", _pickled, "gt.obb_sem_id_to_name"),
    Damage("offsets go back", "offsets_not_ascending", offsets(lambda o: o[[0, 2, 1, 3]]), "rows 1"),
    Damage("offsets begin late", "offsets_not_ascending", offsets(lambda o: o.clip(1)), "rows 0"),
    Damage("payload cut", "offsets_beyond_payload", truncate(f"{SHARD}/{PAYLOAD}", -1), "rows 2"),
    Damage("count chunk gone", "chunk_absent", lambda s: chunk(s, "oracle.candidate_count").unlink(), "rows 0, 1, 2"),
    Damage("RRI chunk gone", "chunk_absent", lambda s: chunk(s, "oracle.rri").unlink(), RRI_ROW),
    Damage("chunk folder gone", "chunk_absent", lambda s: shutil.rmtree(s / SHARD / "oracle/rri/c"), "rows 0, 1, 2"),
    Damage("component gone", "chunk_absent", lambda s: chunk(s, "oracle.pm_acc_after").unlink(), "pm_acc_after rows 0"),
    Damage("points gone", "chunk_absent", lambda s: chunk(s, "vin.points_world", 2).unlink(), "points_world rows 2"),
    Damage("chunk cut", "chunk_undecodable", cut_chunk("oracle.rri"), RRI_ROW),
    Damage("chunk empty", "chunk_undecodable", cut_chunk("oracle.rri", 0), RRI_ROW),
    Damage("chunk garbage", "chunk_undecodable", lambda s: chunk(s, "oracle.rri").write_bytes(b"\0" * 40), RRI_ROW),
    Damage(
        "chunk with a tail",
        "chunk_undecodable",
        lambda s: chunk(s, "oracle.rri").write_bytes(chunk(s, "oracle.rri").read_bytes() + b"tail"),
        RRI_ROW,
    ),
    Damage("chunk of another array", "chunk_undecodable", copy_chunk("vin.points_world", "oracle.rri"), RRI_ROW),
    Damage("chunk a bomb", "chunk_undecodable", _bomb, RRI_ROW),
    Damage(
        "chunk a folder",
        "chunk_undecodable",
        as_folder(f"{SHARD}/oracle/rri/c/0/0"),
        RRI_ROW,
    ),
    Damage("count chunk cut", "chunk_undecodable", cut_chunk("oracle.candidate_count", 5)),
    Damage("field chunk cut", "chunk_undecodable", cut_chunk("backbone.occ_pr", 9, 1), "rows 1"),
    Damage("pose chunk cut", "chunk_undecodable", cut_chunk("oracle.candidate_poses_world_cam")),
    Damage("depth chunk cut", "chunk_undecodable", cut_chunk("oracle.depths"), "depths rows 0"),
    Damage("count negative", "candidate_count_out_of_range", change_chunk("oracle.candidate_count", "<i8", 1, -1), "1"),
    Damage("count beyond C", "candidate_count_out_of_range", change_chunk("oracle.candidate_count", "<i8", 1, 9), "1"),
    Damage("label NaN", "non_finite_labels", change_chunk("oracle.rri", "<f4", 0, np.nan), RRI_ROW),
    Damage("label infinite", "non_finite_labels", change_chunk("oracle.pm_acc_after", "<f4", 0, np.inf), "rows 0"),
    Damage("length negative", "negative_lengths", change_chunk("vin.lengths", "<i8", 0, -5), "vin.lengths rows 0"),
    Damage("shard path with ..", "path_escape", shard_entry("relative_dir", "../outside"), "shard-000000"),
    Damage("shard path absolute", "path_escape", shard_entry("relative_dir", "/etc"), "shard-000000"),
    Damage("shard path with NUL", "path_escape", shard_entry("relative_dir", "shards\0"), "shard-000000"),
    Damage("array path with ..", "path_escape", block_entry("oracle.rri", "paths", ["../../../x"]), "oracle.rri"),
    Damage("array path absolute", "path_escape", block_entry("oracle.rri", "paths", ["/etc"]), "oracle.rri"),
    Damage("shard linked out", "path_escape", link_out(str(SHARD)), "shard-000000"),
    Damage("array linked out", "path_escape", link_out(f"{SHARD}/oracle/rri"), "oracle.rri"),
    Damage("chunk linked out", "path_escape", link_out(f"{SHARD}/oracle/rri/c/0/0"), RRI_ROW),
    Damage("payload linked out", "path_escape", link_out(f"{SHARD}/{PAYLOAD}"), "gt.obb_sem_id_to_name"),
    Damage("split linked out", "path_escape", link_out("splits/train.npy"), "train.npy"),
    Damage("backbone block gone", "backbone_incomplete", lambda s: _undeclare(s, "backbone.cent_pr"), "", (11,)),
    Damage("row without backbone", "backbone_incomplete", _lacking_backbone, "rows 1", (11,)),
    Damage(
        "other backbone dtype",
        "backbone_inconsistent",
        metadata("backbone.counts", lambda m: m.update(data_type="int32")),
        "backbone.counts",
        (11,),
    ),
    Damage("provenance unknown", "free_input_provenance_unknown", manifest(lambda m: m["vin"].clear()), "", (11,)),
)


def _undeclare(store: Path, block: str) -> None:
    edit_manifest(store, lambda found: found["shards"][0]["blocks"].pop(block))


def _grid(found: dict[str, Any], shape: list[int]) -> None:
    found["chunk_grid"]["configuration"]["chunk_shape"] = shape


# One per rule. `generation_changed` isn't about a store's bytes: its test captures before it damages.
CORRUPTORS: dict[str, Callable[[Path], object]] = {damage.code: damage.change for damage in reversed(DAMAGES)}
CORRUPTORS["generation_changed"] = lambda store: os.utime(store / "manifest.json")
