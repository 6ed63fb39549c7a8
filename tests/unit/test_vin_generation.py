"""A request is of one generation: a store replaced before or during the read is rejected, never mixed."""

import dataclasses
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from resources.files import FileRoot
from tests.builders.vin import edit_manifest, tiny_store
from tests.builders.vin_damage import SHARD, chunk, get, put
from vin_assets.vin_store import diagnostics as d
from vin_assets.vin_store.generation import GenerationEntry
from vin_assets.vin_store.store import (
    StoreReplacedError,
    StoreUnreadableError,
    UnsupportedStoreVersionError,
    VinOfflineStoreConfig,
)


@pytest.fixture
def config(tmp_path: Path) -> VinOfflineStoreConfig:
    return VinOfflineStoreConfig(tiny_store(tmp_path / "stores", 11))


def other_store(folder: Path) -> Path:
    """A store with the same names and sizes as the tiny one, and other values in every row."""
    store = tiny_store(folder, 11)
    for shard in sorted((store / "shards").iterdir()):
        for row in range(3):
            for block in ("oracle.rri", "backbone.pts_world", "vin.lengths"):
                path = chunk(store, block, row, shard.relative_to(store))
                dtype = "<i8" if block == "vin.lengths" else "<f4"
                put(path, (get(path, dtype) + 1).astype(dtype))
    return store


def keep_size_and_time(path: Path, old: bytes, new: bytes) -> None:
    """Rewrite a file in place so that size and modification time are as before."""
    assert len(old) == len(new)
    status = path.stat()
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def rename_root(store: Path, other: Path) -> None:
    target = store.resolve()
    target.rename(target.with_name("old"))
    other.rename(target)


def turn_link(store: Path, other: Path) -> None:
    fresh = store.with_name("fresh-link")
    fresh.symlink_to(other)
    os.replace(fresh, store)


def swap_shard(store: Path, other: Path) -> None:
    (store / SHARD).rename(store / "shards" / "gone")
    (other / SHARD).rename(store / SHARD)


def rewrite_manifest(store: Path, other: Path) -> None:
    keep_size_and_time(store / "manifest.json", b'"max_candidates": 8', b'"max_candidates": 7')
    keep_size_and_time(store / "manifest.json", b'"oracle/rri"', b'"oracle/rrj"')


def rewrite_index(store: Path, other: Path) -> None:
    keep_size_and_time(store / "sample_index.jsonl", b'"row":0', b'"row":2')


def rewrite_array_metadata(store: Path, other: Path) -> None:
    path = store / SHARD / "oracle/rri/zarr.json"
    keep_size_and_time(path, b'"name": "zstd"', b'"name": "zstx"')


def replace_array_metadata(store: Path, other: Path) -> None:
    path = store / SHARD / "vin/lengths/zarr.json"
    fresh = path.with_name("fresh")
    fresh.write_bytes(path.read_bytes().replace(b"int64", b"int32"))
    os.replace(fresh, path)


def rewrite_split(store: Path, other: Path) -> None:
    np.save(store / "splits" / "val.npy", np.array([5]))


KINDS: dict[str, Callable[[Path, Path], None]] = {
    change.__name__: change
    for change in (
        rename_root,
        turn_link,
        swap_shard,
        rewrite_manifest,
        rewrite_index,
        rewrite_array_metadata,
        replace_array_metadata,
        rewrite_split,
    )
}


def arrange(folder: Path) -> tuple[VinOfflineStoreConfig, Path]:
    """A store reached through a link, and another one to replace it by. The manifest is as Python writes it."""
    store = tiny_store(folder / "a", 11)
    edit_manifest(store, lambda found: None)
    link = folder / "current"
    link.symlink_to(store)
    return VinOfflineStoreConfig(link), other_store(folder / "b")


def values(stats: d.VinOfflineDatasetStats) -> d.VinOfflineDatasetStats:
    return dataclasses.replace(stats, store_dir="")


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_replaced_before_the_read_is_rejected_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    config, other = arrange(tmp_path)
    request = d.capture_vin_offline_dataset_stats_request(config)
    KINDS[kind](config.store_dir, other)
    opened: list[str] = []
    read = FileRoot.read

    def watch(self: FileRoot, path: str | os.PathLike[str], limit: int | None = None) -> bytes:
        opened.append(os.fspath(path))
        return read(self, path, limit)

    monkeypatch.setattr(FileRoot, "read", watch)
    with pytest.raises(StoreReplacedError, match="before it was read") as raised:
        d.inspect_vin_offline_dataset_stats(request)
    assert raised.value.expected != raised.value.observed
    assert set(opened) == {"manifest.json"}  # the list of shards; no sample
    assert d.capture_vin_offline_dataset_stats_request(config).digest() != request.digest()


def replace_during(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moment: float) -> bool:
    """Replace a store at a share of the opens of a read; whether it was rejected. A mixture fails."""
    config, other = arrange(tmp_path)
    request = d.capture_vin_offline_dataset_stats_request(config)
    count = 0
    at = -1
    original = FileRoot.open_fd

    def interrupted(self: FileRoot, path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
        nonlocal count
        count += 1
        if count == at:
            KINDS[kind](config.store_dir, other)
        return original(self, path, flags)

    monkeypatch.setattr(FileRoot, "open_fd", interrupted)
    before = values(d.inspect_vin_offline_dataset_stats(request))
    at, count = max(1, int(count * moment)), 0
    try:
        found = values(d.inspect_vin_offline_dataset_stats(request))
    except StoreReplacedError:
        return True
    at = -1
    try:
        after = values(d.collect_vin_offline_dataset_stats(config))
    except (StoreUnreadableError, UnsupportedStoreVersionError):
        after = before
    assert found in (before, after)
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_replaced_in_the_middle_of_the_read_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert replace_during(tmp_path, monkeypatch, kind, 0.5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(50))
def test_a_store_replaced_at_any_moment_is_never_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    replace_during(tmp_path, monkeypatch, chance.choice(list(KINDS)), chance.random())


def test_a_digest_is_the_same_in_every_process_and_in_any_order(config: VinOfflineStoreConfig) -> None:
    request = d.capture_vin_offline_dataset_stats_request(config)
    assert d.capture_vin_offline_dataset_stats_request(config) == request
    code = (
        "import sys; from vin_assets.vin_store import diagnostics as d, store as s;"
        "print(d.capture_vin_offline_dataset_stats_request(s.VinOfflineStoreConfig(sys.argv[1])).digest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, config.store_dir], capture_output=True, text=True, check=True, env=os.environ
    )
    assert run.stdout.strip() == request.digest()
    entries = list(request.generation.entries)
    random.Random(1).shuffle(entries)
    shuffled = dataclasses.replace(request.generation, entries=tuple(entries))
    assert dataclasses.replace(request, generation=shuffled).digest() == request.digest()


def test_a_digest_tells_what_was_asked(config: VinOfflineStoreConfig, tmp_path: Path) -> None:
    digests = {
        d.capture_vin_offline_dataset_stats_request(config, max_samples=samples).digest() for samples in (1, 512, None)
    }
    other = VinOfflineStoreConfig(tiny_store(tmp_path / "other", 11))
    digests.add(d.capture_vin_offline_dataset_stats_request(other).digest())
    assert len(digests) == 4


def test_a_device_number_counts_within_a_process_and_not_in_the_digest(config: VinOfflineStoreConfig) -> None:
    request = d.capture_vin_offline_dataset_stats_request(config)
    moved = tuple(dataclasses.replace(entry, device=entry.device + 1) for entry in request.generation.entries)
    here = dataclasses.replace(request.generation, entries=moved)
    assert here.digest() == request.generation.digest()
    assert here.differences(request.generation) != []
    elsewhere = dataclasses.replace(here, captured_in="another process")
    assert elsewhere.differences(request.generation) == []
    restored: d.VinOfflineDatasetStatsRequest = pickle.loads(pickle.dumps(request))  # noqa: S301  # our own bytes
    assert restored == request


def test_payload_chunks_are_outside_a_generation(config: VinOfflineStoreConfig) -> None:
    request = d.capture_vin_offline_dataset_stats_request(config)
    assert not any("/c/" in entry.path for entry in request.generation.entries)
    path = chunk(config.store_dir, "oracle.rri")
    path.write_bytes(path.read_bytes())
    d.inspect_vin_offline_dataset_stats(request)


def test_capturing_opens_the_manifest_and_nothing_else(
    config: VinOfflineStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config.splits_dir / "val.npy").unlink()
    os.mkfifo(config.splits_dir / "val.npy")
    opened: list[str] = []
    original = FileRoot.open_fd

    def watch(self: FileRoot, path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
        if not flags & (os.O_PATH | os.O_DIRECTORY):
            opened.append(os.fspath(path))
        return original(self, path, flags)

    monkeypatch.setattr(FileRoot, "open_fd", watch)
    d.capture_vin_offline_dataset_stats_request(config)
    assert set(opened) == {"manifest.json"}


def test_a_selection_and_a_generation_of_two_stores_don_t_go_together(
    config: VinOfflineStoreConfig, tmp_path: Path
) -> None:
    one = d.capture_vin_offline_dataset_stats_request(config)
    two = d.capture_vin_offline_dataset_stats_request(VinOfflineStoreConfig(tiny_store(tmp_path / "other", 8)))
    with pytest.raises(ValueError, match="capture both together"):
        d.VinOfflineDatasetStatsRequest(one.selection, two.generation)
    renamed = dataclasses.replace(one.selection, manifest_filename="other.json")
    with pytest.raises(ValueError, match=r"says nothing of other\.json"):
        d.VinOfflineDatasetStatsRequest(renamed, one.generation)


def test_a_missing_store_can_t_be_captured_and_a_broken_one_says_why_when_read(config: VinOfflineStoreConfig) -> None:
    config.manifest_path.write_text(json.dumps({"version": 9}))
    request = d.capture_vin_offline_dataset_stats_request(config)
    with pytest.raises(UnsupportedStoreVersionError, match="version 9"):
        d.inspect_vin_offline_dataset_stats(request)
    shutil.rmtree(config.store_dir)
    with pytest.raises(StoreUnreadableError, match="No such file"):
        d.capture_vin_offline_dataset_stats_request(config)
    with pytest.raises(StoreReplacedError, match="before it was read"):
        d.inspect_vin_offline_dataset_stats(request)


def test_an_entry_without_its_device_is_equal_after_a_reboot() -> None:
    entry = GenerationEntry("a", "there", None, 1, 2, 3, 4, device=5)
    assert entry.without_device() == dataclasses.replace(entry, device=0)
