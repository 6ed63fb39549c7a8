"""Reading a store: what is opened and what never, what is left as it was, and stores that lack labels or blocks."""

import builtins
import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from resources.files import FileRoot
from tests.builders.vin import edit_manifest, raw_dataset, tiny_store
from tests.builders.vin_damage import DAMAGES, Damage, change_chunk, chunk, put
from vin_assets.vin_store import arrays, rows
from vin_assets.vin_store import diagnostics as d
from vin_assets.vin_store.integrity import check_readable, check_store
from vin_assets.vin_store.statistics import _TASK_BYTES
from vin_assets.vin_store.store import VinOfflineStoreConfig, VinStoreError


@pytest.fixture
def config(tmp_path: Path) -> VinOfflineStoreConfig:
    return VinOfflineStoreConfig(tiny_store(tmp_path / "stores", 11))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The real path of everything that is opened, by whatever way."""
    paths: list[str] = []
    through_root, plain_open, os_open = FileRoot.open_fd, builtins.open, os.open

    def watch_root(self: FileRoot, path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
        fd = through_root(self, path, flags)
        paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        return fd

    def watch_open(path: Any, *args: Any, **kwargs: Any) -> Any:
        paths.append(os.path.realpath(path))
        return plain_open(path, *args, **kwargs)

    def watch_os(path: Any, *args: Any, **kwargs: Any) -> int:
        paths.append(os.path.realpath(path))
        return os_open(path, *args, **kwargs)

    monkeypatch.setattr(FileRoot, "open_fd", watch_root)
    monkeypatch.setattr(builtins, "open", watch_open)
    monkeypatch.setattr(os, "open", watch_os)
    yield paths
    monkeypatch.undo()


def everything(config: VinOfflineStoreConfig) -> None:
    """Whatever can be asked of a store."""
    for ask in (
        lambda: d.collect_vin_offline_dataset_stats(config),
        lambda: d.inspect_vin_offline_dataset_stats(d.capture_vin_offline_dataset_stats_request(config)),
        lambda: d.collect_vin_offline_dataset_coverage(config),
        lambda: check_store(config),
        lambda: check_readable(config),
    ):
        try:
            ask()
        except VinStoreError:
            continue


ESCAPES = [damage for damage in DAMAGES if damage.code == "path_escape" or "linked out" in damage.name]


@pytest.mark.parametrize("damage", ESCAPES, ids=lambda damage: str(damage.name))
def test_nothing_outside_the_store_is_opened(config: VinOfflineStoreConfig, damage: Damage, opened: list[str]) -> None:
    damage.change(config.store_dir)
    opened.clear()
    everything(config)
    inside = str(config.store_dir)
    assert opened
    assert {path for path in opened if path != inside and not path.startswith(f"{inside}/")} == set()


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


def test_nothing_is_written_into_a_store_or_its_raw_data(config: VinOfflineStoreConfig, tmp_path: Path) -> None:
    whole = dataclasses.replace(config, raw_data_root=raw_dataset(tmp_path / "data"))
    before = state(tmp_path)
    everything(whole)
    assert state(tmp_path) == before


def test_looking_at_a_store_that_is_not_there_creates_nothing(tmp_path: Path) -> None:
    config = VinOfflineStoreConfig(tmp_path / "nowhere", raw_data_root=tmp_path / "no-data")
    everything(config)
    assert config.shards_dir == tmp_path / "nowhere" / "shards"
    assert list(tmp_path.iterdir()) == []


def test_statistics_open_no_chunk_that_none_of_them_needs(config: VinOfflineStoreConfig, opened: list[str]) -> None:
    d.collect_vin_offline_dataset_stats(config, max_samples=4)
    chunks = [path.split("/shards/")[1] for path in opened if "/c/" in path]
    blocks = {path.split("/", 1)[1].split("/c/")[0] for path in chunks}
    labels = {"candidate_count", "candidate_indices", "candidate_poses_world_cam", "rri"}
    labels |= {f"pm_{kind}_{when}" for kind in ("dist", "acc", "comp") for when in ("before", "after")}
    assert {block for block in blocks if not block.startswith("backbone/")} == {
        *(f"oracle/{name}" for name in labels),
        "vin/lengths",
        "vin/reference_pose_world_rig",
    }
    assert len(chunks) == len(set(chunks))  # none is read twice
    assert not any(path.endswith((".msgpack", ".offsets.npy")) for path in opened)
    scanned = {path.split("/c/")[1].split("/")[0] for path in chunks if path.startswith("shard-000001/vin/lengths/")}
    assert scanned == {"0"}  # the fourth row of the index is row 0 of the second shard


def test_no_more_than_a_few_tasks_are_held_at_a_time() -> None:
    held = peak = 0
    lock = threading.Lock()

    def work(number: int) -> int:
        nonlocal held, peak
        with lock:
            held += 1
            peak = max(peak, held)
        return number

    results = []
    for number in rows.in_order(work, range(500), threads=4):
        with lock:
            held -= 1
        results.append(number)
    assert results == list(range(500))
    assert peak <= 3 * 4 + 1


def test_a_task_of_the_backbone_holds_one_decoded_chunk_at_a_time(
    config: VinOfflineStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _TASK_BYTES <= 8 << 20
    alive: list[int] = []
    peak = [0]
    original = arrays.read_chunk

    class Counted(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            if alive:
                alive.pop()

    def watch(root: FileRoot, meta: arrays.ArrayMeta, index: int) -> arrays.Chunk:
        found = original(root, meta, index)
        if found.values is None:
            return found
        alive.append(1)
        peak[0] = max(peak[0], len(alive))
        return dataclasses.replace(found, values=found.values.view(Counted))

    monkeypatch.setattr("vin_assets.vin_store.statistics.read_chunk", watch)
    d.collect_vin_offline_dataset_stats(config)
    assert 0 < peak[0] <= 2 * len(os.sched_getaffinity(0)) + 2  # of 48 chunks


def undeclare(config: VinOfflineStoreConfig, *names: str) -> None:
    def change(found: dict[str, Any]) -> None:
        for shard in found["shards"]:
            for name in names:
                shard["blocks"].pop(name, None)

    edit_manifest(config.store_dir, change)


@pytest.mark.parametrize(
    "lacking", [("oracle.rri",), ("oracle.candidate_count",), ("oracle.rri", "oracle.candidate_count")]
)
def test_a_store_without_supervision_has_no_labels_and_all_the_rest(
    config: VinOfflineStoreConfig, lacking: tuple[str, ...]
) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    undeclare(config, *lacking)
    found = d.collect_vin_offline_dataset_stats(config)
    assert not found.scene_labels_available
    assert not found.batch_shapes_available
    assert found.batch_shapes == {}
    assert found.candidate_count_values == found.rri_values == []
    assert found.rri == found.candidate_count == d.NumericSummary(0, None, None, None)
    for series in (found.rri_component_values, found.rri_component_pairs, found.candidate_pose_values):
        assert len(series) in (6, 10)
        assert all(values == [] for values in series.values())
    assert found.rri_pairing_unavailable_sample_keys == []
    assert {sample.candidate_count for sample in found.sample_summaries} == {None}
    assert found.vin_point_values == whole.vin_point_values
    assert found.backbone_diagnostics == whole.backbone_diagnostics
    assert found.rows_read == 6
    assert check_store(config) == []


def test_labels_that_are_zero_are_labels(config: VinOfflineStoreConfig) -> None:
    shutil.rmtree(config.shards_dir / "shard-000000/oracle/rri/c")
    for row in range(3):
        put(chunk(config.store_dir, "oracle.rri", row), np.zeros(8, np.float32))
    found = d.collect_vin_offline_dataset_stats(config)
    assert found.scene_labels_available
    assert found.rri_values[:16] == [0.0] * 16


def test_a_store_without_ids_has_marginals_and_no_pairs(config: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    undeclare(config, "oracle.candidate_indices")
    found = d.collect_vin_offline_dataset_stats(config, max_samples=4)
    assert found.rri_pairing_unavailable_sample_keys == [sample.sample_key for sample in whole.sample_summaries[:4]]
    assert all(pairs == [] for pairs in found.rri_component_pairs.values())
    assert found.rri_values == whole.rri_values[:24]


def test_a_repeated_id_is_no_pair(config: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    change_chunk("oracle.candidate_indices", "<i8", 1, 1)(config.store_dir)  # the first is 1 already
    found = d.collect_vin_offline_dataset_stats(config)
    for name, pairs in found.rri_component_pairs.items():
        assert pairs == whole.rri_component_pairs[name][2:]
    assert found.rri_values == whole.rri_values


@pytest.mark.parametrize(("stored", "counted", "labels"), [(-3, 0.0, 0), (99, 99.0, 7), (2, 2.0, 2)])
def test_the_candidate_count_is_clamped_and_labels_end_at_the_capacity(
    config: VinOfflineStoreConfig, stored: int, counted: float, labels: int
) -> None:
    change_chunk("oracle.candidate_count", "<i8", 0, stored)(config.store_dir)
    sample = d.collect_vin_offline_dataset_stats(config).sample_summaries[0]
    assert (sample.candidate_count, sample.rri.count) == (counted, labels)


def test_an_empty_store(config: VinOfflineStoreConfig) -> None:
    config.sample_index_path.write_text("\n\r\n")
    edit_manifest(config.store_dir, lambda found: found.pop("shards"))
    found = d.collect_vin_offline_dataset_stats(config)
    assert (found.num_samples, found.numeric_bytes, found.batch_shapes) == (0, 0, {})
    assert not found.batch_shapes_available


def test_a_store_without_a_backbone_says_none(config: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    undeclare(config, *(name for name in whole.block_shapes if name.startswith(("backbone.", "gt.", "detected."))))
    found = d.collect_vin_offline_dataset_stats(config)
    assert found.batch_shapes_available
    assert found.batch_shapes["backbone"] == "None"
    assert "gt_obbs.obbs" not in found.batch_shapes
    assert found.backbone_diagnostics == []
    assert next(row.component for row in found.memory_diagnostics) == "oracle_rri"


def test_a_reference_pose_with_a_leading_axis_and_the_old_name(config: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    for number in range(2):
        folder = config.shards_dir / f"shard-00000{number}"
        source = folder / "vin/reference_pose_world_rig"
        target = folder / "oracle/reference_pose_world_rig"
        source.rename(target)
        found = json.loads((target / "zarr.json").read_text())
        found["shape"] = [3, 1, 12]
        found["chunk_grid"]["configuration"]["chunk_shape"] = [1, 1, 12]
        (target / "zarr.json").write_text(json.dumps(found))
        for row in range(3):
            path = target / "c" / str(row)
            (path / "0").rename(path / "00")
            (path / "0").mkdir()
            (path / "00").rename(path / "0" / "0")

    def rename(found: dict[str, Any]) -> None:
        for shard in found["shards"]:
            block = shard["blocks"].pop("vin.reference_pose_world_rig")
            new = "oracle.reference_pose_world_rig"
            shard["blocks"][new] = block | {"name": new, "paths": [new.replace(".", "/")], "shape": [3, 1, 12]}

    edit_manifest(config.store_dir, rename)
    stats = d.collect_vin_offline_dataset_stats(config)
    assert check_store(config) == []
    assert stats.candidate_pose_values == whole.candidate_pose_values
    assert stats.batch_shapes == whole.batch_shapes
    assert stats.memory_diagnostics == whole.memory_diagnostics


def test_crlf_blank_lines_and_a_byte_order_mark_in_the_index(config: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    text = config.sample_index_path.read_text().replace("\n", "\r\n\r\n")
    config.sample_index_path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert d.collect_vin_offline_dataset_stats(config) == whole


def test_unknown_fields_are_ignored(config: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    edit_manifest(config.store_dir, lambda found: (found.update(new=1), found["shards"][0].update(new=[])))
    assert d.collect_vin_offline_dataset_stats(config) == whole


def test_a_chunk_that_is_not_compressed_or_has_no_size_in_its_frame_is_read(config: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(config)
    path = chunk(config.store_dir, "oracle.rri")
    data = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    path.write_bytes(zstandard.ZstdCompressor(write_content_size=False).compress(data))
    assert d.collect_vin_offline_dataset_stats(config) == whole
