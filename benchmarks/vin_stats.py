"""Statistics of a realistic VIN store, measured against row-by-row reading and against the limit of the hardware.

Builds a store of 544 rows with 48^3 backbone fields (2.2 GB decoded, 9,800 chunks) in a temporary folder, and measures
in one run, each with a warm page cache and best of three:

- rows:    zarr-python, one row of one array at a time, with the project's own reductions
- plain:   the same with the statistics of the backbone as NumPy gives them (mean, std, ...), as most programs would
- shards:  TensorStore reading whole arrays, where it is installed, without any reduction
- project: `collect_vin_offline_dataset_stats`
- limit:   plain file reads and zstd of the same chunks on as many threads, without any reduction

Usage: python -m benchmarks.vin_stats [--rows N] [--keep FOLDER]
"""

import argparse
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
import zstandard

from vin_assets.vin_store.diagnostics import NumericSummary, collect_vin_offline_dataset_stats
from vin_assets.vin_store.format import COMPONENTS
from vin_assets.vin_store.moments import Moments
from vin_assets.vin_store.rows import RowLabels
from vin_assets.vin_store.series import RowSeries, Series, series_of
from vin_assets.vin_store.store import VinOfflineStoreConfig

ROWS_PER_SHARD = 32
CANDIDATES = 60
SIDE = 48
FIELDS = ("occ_pr", "occ_input", "free_input", "cent_pr", "counts", "pts_world", "t_world_voxel", "voxel_extent")
LABELS = (
    *(f"oracle/{name}" for name in ("candidate_count", "candidate_indices", "candidate_poses_world_cam", "rri")),
    *(f"oracle/{name}" for name in COMPONENTS),
    "vin/reference_pose_world_rig",
    "vin/lengths",
)
VIN = {"free_input_provenance": "native_evl_v1"}
VARIANTS = 8  # distinct rows; the others repeat their bytes in files of their own


def blocks_of_row(rng: np.random.Generator) -> dict[str, Any]:
    """One row: fields with the ranges and the compressibility of real ones."""
    cells = SIDE**3
    occupied = rng.random((1, 1, SIDE, SIDE, SIDE)) < 0.05
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, SIDE)] * 3, indexing="ij"), -1).reshape(1, cells, 3)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    labels = np.full(CANDIDATES, np.nan, np.float32)
    count = int(rng.integers(30, CANDIDATES))
    row: dict[str, Any] = {
        "backbone.occ_pr": rng.random((1, 1, SIDE, SIDE, SIDE), np.float32),
        "backbone.occ_input": occupied.astype(np.float32),
        "backbone.free_input": (rng.random(occupied.shape) < 0.4).astype(np.float32),
        "backbone.cent_pr": rng.random((1, 1, SIDE, SIDE, SIDE), np.float32) * 0.1,
        "backbone.counts": np.asarray(rng.poisson(2.0, (1, SIDE, SIDE, SIDE))),
        "backbone.pts_world": (grid @ turn.T + rng.normal(size=3)).astype(np.float32),
        "backbone.t_world_voxel": rng.random((1, 12), np.float32),
        "backbone.voxel_extent": np.array([-2, 2, -2, 2, -2, 2], np.float32),
        "oracle.candidate_count": np.asarray(count),
        "oracle.candidate_indices": np.where(np.arange(CANDIDATES) < count, np.arange(CANDIDATES), -1),
        "oracle.candidate_poses_world_cam": rng.random((CANDIDATES, 12), np.float32),
        "vin.reference_pose_world_rig": np.r_[np.eye(3).ravel(), 1, 2, 3].astype(np.float32),
        "vin.lengths": rng.integers(1000, 16000, 1),
        "vin.t_world_snippet": rng.random((1, 12), np.float32),
    }
    for name in ("rri", *COMPONENTS):
        labels[:count] = rng.random(count)
        row[f"oracle.{name}"] = labels.copy()
    return row


def build(folder: Path, rows: int) -> None:
    """Write a store of version 11 as its writer lays it out."""
    rng = np.random.default_rng(11)
    variants = [blocks_of_row(rng) for _ in range(VARIANTS)]
    encode = zstandard.ZstdCompressor(level=0).compress
    encoded = [{name: encode(np.ascontiguousarray(v).tobytes()) for name, v in row.items()} for row in variants]
    shards, index = [], []
    for first in range(0, rows, ROWS_PER_SHARD):
        number, count = first // ROWS_PER_SHARD, min(ROWS_PER_SHARD, rows - first)
        relative = f"shards/shard-{number:06d}"
        blocks = {}
        for name, sample in variants[0].items():
            path, shape = name.replace(".", "/"), [count, *sample.shape]
            array = folder / relative / path
            write_metadata(array, shape, sample.dtype.name)
            blocks[name] = {"name": name, "kind": "zarr_array", "paths": [path], "dtype": sample.dtype.name}
            blocks[name]["shape"] = shape
            if len(shape) == 1:
                values = np.array([variants[(first + row) % VARIANTS][name] for row in range(count)])
                (array / "c").mkdir()
                (array / "c" / "0").write_bytes(encode(values.tobytes()))
                continue
            for row in range(count):
                chunk = array.joinpath("c", str(row), *["0"] * sample.ndim)
                chunk.parent.mkdir(parents=True)
                chunk.write_bytes(encoded[(first + row) % VARIANTS][name])
        (folder / relative / "zarr.json").write_text('{"attributes":{},"zarr_format":3,"node_type":"group"}')
        shard = {"shard_id": f"shard-{number:06d}", "relative_dir": relative, "row_start": first, "num_rows": count}
        shards.append({**shard, "blocks": blocks})
        index += [
            {"sample_index": first + row, "sample_key": f"key-{first + row}", "scene_id": f"{number}"}
            | {"snippet_id": f"snippet-{row}", "split": "train", "shard_id": shard["shard_id"], "row": row}
            for row in range(count)
        ]
    materialized = {"backbone": True, "depths": False, "candidate_pcs": False}
    manifest = {"version": 11, "created_at": "2026-01-01T00:00:00Z", "source": {"dataset_config": {}}, "shards": shards}
    manifest |= {"oracle": {"max_candidates": CANDIDATES}, "vin": VIN, "materialized_blocks": materialized}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "splits").mkdir()
    for name in ("all", "train"):
        np.save(folder / "splits" / f"{name}.npy", np.arange(rows))
    (folder / "sample_index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in index))


def write_metadata(array: Path, shape: list[int], dtype: str) -> None:
    array.mkdir(parents=True)
    chunk = [min(shape[0], 1024)] if len(shape) == 1 else [1, *shape[1:]]
    found = {
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": 0, "checksum": False}},
        ],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    (array / "zarr.json").write_text(json.dumps(found))


def arrays(folder: Path) -> Iterator[tuple[Path, str]]:
    for metadata in sorted(folder.glob("shards/*/*/**/zarr.json")):
        yield metadata.parent, metadata.parent.relative_to(folder / "shards").as_posix()


def plain(values: npt.NDArray[Any]) -> Moments:
    """What `Moments.of` gives, in the words of NumPy."""
    wide = values[np.isfinite(values)].astype(np.float64)
    sizes = np.abs(wide)
    return Moments(
        wide.size, float(wide.mean()), float(wide.var() * wide.size), float(sizes.sum()), int((sizes > 1e-6).sum())
    )


def row_by_row(folder: Path, reduce: Callable[[npt.NDArray[Any]], Moments] = Moments.of) -> None:
    """Every row of every array through zarr-python, with the project's own reductions."""
    moments: dict[str, Moments] = {}
    rows: list[RowSeries] = []
    for shard in sorted((folder / "shards").iterdir()):
        group: Any = zarr.open_group(shard, mode="r")
        found = {name: group[name] for name in (*(f"backbone/{field}" for field in FIELDS), *LABELS)}
        for row in range(group["oracle/rri"].shape[0]):
            for field in FIELDS:
                values = np.asarray(found[f"backbone/{field}"][row])
                moments[field] = moments.get(field, Moments()).merge(reduce(values))
            held = {name: np.asarray(found[name][row]) for name in LABELS}
            count = int(held["oracle/candidate_count"])
            labels = RowLabels(
                count,
                held["oracle/rri"][:count],
                {name: held[f"oracle/{name}"][:count] for name in COMPONENTS},
                held["oracle/candidate_indices"][:count],
                held["oracle/candidate_poses_world_cam"][:count],
                held["vin/reference_pose_world_rig"],
                held["vin/lengths"],
            )
            rows += series_of([labels])
            NumericSummary.of(rows[-1].rri)
            NumericSummary.of(rows[-1].points)
    series = Series.of(rows)
    for numbers in (series.counts, series.rri, series.points, *series.components.values(), *series.poses):
        NumericSummary.of(numbers)


def whole_shards(folder: Path) -> None:
    """Every array wholly through TensorStore; nothing is computed."""
    import tensorstore

    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})
    for path, _ in arrays(folder):
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
        tensorstore.open(spec, context=context, open=True).result().read().result()


def project(folder: Path) -> None:
    """What this project does."""
    stats = collect_vin_offline_dataset_stats(VinOfflineStoreConfig(folder), max_samples=None)
    if stats.rows_read != stats.num_samples:
        raise SystemExit(f"only {stats.rows_read} of {stats.num_samples} rows were read")


def limit(folder: Path) -> None:
    """Read and decode every chunk, on as many threads as there are cores; nothing is computed."""
    chunks = [path for path, _ in chunk_files(folder)]
    threads = len(os.sched_getaffinity(0))

    def work(part: list[str]) -> None:
        decoder = zstandard.ZstdDecompressor()
        for path in part:
            fd = os.open(path, os.O_RDONLY)
            decoder.decompress(os.read(fd, os.fstat(fd).st_size))
            os.close(fd)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, [chunks[start : start + 64] for start in range(0, len(chunks), 64)]))


_chunks: list[tuple[str, int]] = []


def chunk_files(folder: Path) -> list[tuple[str, int]]:
    if not _chunks:
        for top, _, names in os.walk(folder / "shards"):
            _chunks.extend((f"{top}/{n}", os.stat(f"{top}/{n}").st_size) for n in sorted(names) if n != "zarr.json")
    return _chunks


def best_of(work: Callable[[Path], None], folder: Path, repeats: int) -> tuple[float, float]:
    """The shortest wall time, and the processor time of that run (which tells a busy machine from slow code)."""
    times = []
    for _ in range(repeats):
        start, spent = time.perf_counter(), time.process_time()
        work(folder)
        times.append((time.perf_counter() - start, time.process_time() - spent))
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=544)
    parser.add_argument("--keep", type=Path, help="build the store here, or use the one that is there, and keep it")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="vin-stats-"))
    try:
        if not (folder / "manifest.json").exists():
            folder.mkdir(exist_ok=True)
            build(folder, options.rows)
        files = chunk_files(folder)
        print(f"{options.rows} rows, {len(files)} chunks, {sum(size for _, size in files) / 1e9:.2f} GB on disk")
        limit(folder)  # warm the page cache
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        times = {"project": best_of(project, folder, 3)}
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        times["limit"] = best_of(limit, folder, 3)
        times["project"] = min(times["project"], best_of(project, folder, 2))
        try:
            times["shards"] = best_of(whole_shards, folder, 1)
        except ImportError:
            print("TensorStore is not installed: its line is left out")
        times["rows"] = best_of(row_by_row, folder, 1)
        times["plain"] = best_of(partial(row_by_row, reduce=plain), folder, 1)
        for name in ("plain", "rows", "shards", "project", "limit"):
            if name in times:
                wall, spent = times[name]
                ratio = wall / times["limit"][0]
                print(f"{name:8} {wall:7.2f} s   {ratio:6.2f} x the limit   {spent:6.2f} s of processor")
        faster = {name: times[name][0] / times["project"][0] for name in ("rows", "plain")}
        print(f"project is {faster['rows']:.1f} times faster than row by row with its own reductions,")
        print(f"and {faster['plain']:.1f} times faster than row by row with NumPy's")
        print(f"project needed {grown:.0f} MB more than the limit's run")
    finally:
        if options.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
