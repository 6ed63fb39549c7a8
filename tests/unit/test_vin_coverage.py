"""Raw coverage: which tars, what they hold, what the join says, and what is never opened."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.files import FileRoot
from resources.findings import Severity
from resources.globbing import glob
from tests.builders.vin import edit_manifest, raw_dataset, tiny_store
from vin_assets.vin_store.coverage import coverage_findings, damaged_tar_findings, join
from vin_assets.vin_store.diagnostics import VinOfflineCoverageStats, collect_vin_offline_dataset_coverage
from vin_assets.vin_store.store import VinOfflineStoreConfig
from vin_assets.vin_store.tar_index import FILENAME


@pytest.fixture
def config(tmp_path: Path) -> VinOfflineStoreConfig:
    return VinOfflineStoreConfig(tiny_store(tmp_path / "stores", 11), raw_data_root=raw_dataset(tmp_path / "data"))


def raw_of(config: VinOfflineStoreConfig) -> Path:
    assert config.raw_data_root is not None
    return config.raw_data_root


def configure(config: VinOfflineStoreConfig, **changes: Any) -> None:
    edit_manifest(config.store_dir, lambda found: found["source"]["dataset_config"].update(changes))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The real paths of every file descriptor that file access opens for reading, folders left out."""
    paths: list[str] = []
    original = FileRoot.open_fd

    def watch(self: FileRoot, path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
        fd = original(self, path, flags)
        if not flags & (os.O_PATH | os.O_DIRECTORY):
            paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        return fd

    monkeypatch.setattr(FileRoot, "open_fd", watch)
    return paths


def tars_in(paths: list[str]) -> list[str]:
    return sorted(path for path in paths if path.endswith(".tar"))


def test_without_scenes_all_tars_below_the_base_count(config: VinOfflineStoreConfig) -> None:
    configure(config, scene_ids=None)
    found = collect_vin_offline_dataset_coverage(config)
    assert found.tar_shards_scanned == 15
    assert found.dataset_scenes == 4


def test_tar_urls_come_first_and_may_be_globs(config: VinOfflineStoreConfig, tmp_path: Path) -> None:
    base = raw_of(config) / "ase_efm"
    globs = ["ase_efm/82004/*.tar", f"{base}/81286/shards-000[01].tar"]
    configure(config, tar_urls=[*globs, "ase_efm/84100/shards-0000.tar"])
    found = collect_vin_offline_dataset_coverage(config)
    assert found.tar_shards_scanned == 3 + 2 + 1
    assert found.searched[0] == f"{raw_of(config)}/ase_efm/82004/*.tar"


def test_repeated_empty_and_irregular_files_count_once_or_not_at_all(config: VinOfflineStoreConfig) -> None:
    folder = raw_of(config) / "ase_efm" / "82004"
    (folder / "empty.tar").touch()
    (folder / "folder.tar").mkdir()
    os.mkfifo(folder / "fifo.tar")
    (folder / "again.tar").symlink_to("shards-0000.tar")
    (folder / "dangling.tar").symlink_to("nowhere.tar")
    configure(config, tar_urls=["ase_efm/82004/*.tar", "ase_efm/82004/shards-0000.tar"])
    found = collect_vin_offline_dataset_coverage(config)
    assert found.tar_shards_scanned == 3
    assert found.damaged_tars == []


def test_a_cap_takes_the_first_by_path_components(config: VinOfflineStoreConfig, opened: list[str]) -> None:
    configure(config, scene_ids=[])
    (raw_of(config) / "ase_efm" / "81286-b").mkdir()
    shutil.copy(raw_of(config) / "ase_efm/83515/shards-0000.tar", raw_of(config) / "ase_efm/81286-b")
    assert collect_vin_offline_dataset_coverage(config, max_tars=11).tar_shards_scanned == 11
    folders = {Path(path).parent.name for path in tars_in(opened)}
    assert folders == {"81286", "81286-b"}  # as text, "81286-b/" comes before "81286/"
    assert collect_vin_offline_dataset_coverage(config, max_tars=0).tar_shards_scanned == 16


def test_nothing_is_opened_where_no_root_is_configured(config: VinOfflineStoreConfig, opened: list[str]) -> None:
    data = raw_of(config)
    configure(config, paths={"root": str(data.parent), "data_root": data.name})
    bare = dataclasses.replace(config, raw_data_root=None)
    found = collect_vin_offline_dataset_coverage(bare)
    assert tars_in(opened) == []
    assert found.tar_shards_scanned == 0
    assert found.refused_paths == [f"{data}/ase_efm/{scene}/*.tar" for scene in ("81286", "82004", "scene-a")]
    trusted = collect_vin_offline_dataset_coverage(bare, trust_manifest_paths=True)
    rooted = collect_vin_offline_dataset_coverage(bare, raw_roots=[data.parent])
    assert trusted.tar_shards_scanned == rooted.tar_shards_scanned == 13
    assert trusted == rooted == collect_vin_offline_dataset_coverage(config)


def test_paths_that_leave_the_roots_are_refused_and_never_opened(
    config: VinOfflineStoreConfig, tmp_path: Path, opened: list[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    source = raw_of(config) / "ase_efm/83515/shards-0000.tar"
    shutil.copy(source, outside / "secret.tar")
    (raw_of(config) / "ase_efm" / "linked").symlink_to(outside)
    (raw_of(config) / "ase_efm" / "82004" / "linked.tar").symlink_to(outside / "secret.tar")
    urls = [
        f"{outside}/secret.tar",
        f"{outside}/*.tar",
        "../outside/secret.tar",
        "ase_efm/../../outside/*.tar",
        "ase_efm/linked/secret.tar",
        "ase_efm/82004/linked.tar",
        "ase_efm/**/*.tar",
    ]
    configure(config, tar_urls=urls)
    found = collect_vin_offline_dataset_coverage(config)
    assert found.tar_shards_scanned == 15
    assert not any(path.startswith(str(outside)) for path in opened)
    assert f"{outside}/secret.tar" in found.refused_paths
    assert f"{outside}/*.tar" in found.refused_paths
    assert f"{raw_of(config)}/ase_efm/82004/linked.tar" in found.refused_paths
    assert f"{raw_of(config)}/ase_efm/linked" in found.refused_paths
    [finding] = coverage_findings(found)
    assert finding.code == "raw_path_refused"
    assert "--trust-manifest-paths" in finding.how_to_fix


@pytest.mark.parametrize(
    ("changes", "unsupported"),
    [
        ({"tar_urls": ["https://example.org/a.tar", "pipe:cat a.tar", "s3://b/c.tar"]}, 3),
        ({"tar_urls": "one text"}, 1),
        ({"tar_urls": [7]}, 1),
        ({"scene_ids": {"a": 1}}, 1),
        ({"atek_variant": 5}, 1),
        ({"scene_ids": ["../../..", "/etc", "*"]}, 0),
        ({"tar_urls": None, "atek_variant": None, "paths": None}, 0),
    ],
)
def test_odd_configurations_are_told_and_never_raise(
    config: VinOfflineStoreConfig, changes: dict[str, Any], unsupported: int
) -> None:
    configure(config, **changes)
    found = collect_vin_offline_dataset_coverage(config)
    assert len(found.unsupported_entries) == unsupported
    assert ("raw_entry_unsupported" in {finding.code for finding in coverage_findings(found)}) == bool(unsupported)


def test_no_tar_at_all_names_the_places_looked_at(config: VinOfflineStoreConfig, tmp_path: Path) -> None:
    empty = dataclasses.replace(config, raw_data_root=tmp_path / "nowhere")
    found = collect_vin_offline_dataset_coverage(empty)
    assert (found.tar_shards_scanned, found.coverage, found.outside_dataset) == (0, None, 6)
    [finding] = coverage_findings(found)
    assert (finding.code, finding.severity) == ("no_tar_found", Severity.WARN)
    assert f"{tmp_path}/nowhere/ase_efm/81286/*.tar" in finding.text
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_tar_costs_only_itself(config: VinOfflineStoreConfig) -> None:
    healthy = collect_vin_offline_dataset_coverage(config)
    tar = raw_of(config) / "ase_efm/81286/shards-0003.tar"
    os.truncate(tar, 3000)
    found = collect_vin_offline_dataset_coverage(config)
    assert [path for path, _ in found.damaged_tars] == [str(tar)]
    assert found.tar_shards_scanned == healthy.tar_shards_scanned
    assert healthy.dataset_snippets - 8 < found.dataset_snippets < healthy.dataset_snippets
    [finding] = damaged_tar_findings(found)
    assert (finding.code, finding.severity, finding.where) == ("tar_damaged", Severity.ERROR, str(tar))
    tar.chmod(0)
    if os.geteuid():  # root reads everything
        assert "can't be read" in collect_vin_offline_dataset_coverage(config).damaged_tars[0][1]


def test_a_low_coverage_is_a_warning_with_its_threshold(config: VinOfflineStoreConfig) -> None:
    found = collect_vin_offline_dataset_coverage(config)
    assert coverage_findings(found, 0.04) == []
    [finding] = coverage_findings(found, 0.5)
    assert (finding.code, finding.count, finding.truncated) == ("coverage_below_minimum", 99, True)
    assert "5 of 104" in finding.text


def without_cost(found: VinOfflineCoverageStats) -> VinOfflineCoverageStats:
    return dataclasses.replace(found, tars_opened=0)


def test_an_unchanged_tar_is_not_opened_again(config: VinOfflineStoreConfig, tmp_path: Path, opened: list[str]) -> None:
    index = FileRoot(tmp_path / "index")
    os.truncate(raw_of(config) / "ase_efm/81286/shards-0009.tar", 3000)
    first = collect_vin_offline_dataset_coverage(config, tar_index=index)
    assert (first.tars_opened, len(tars_in(opened))) == (13, 13)
    opened.clear()
    second = collect_vin_offline_dataset_coverage(config, tar_index=index)
    assert (second.tars_opened, tars_in(opened)) == (0, [])
    assert without_cost(second) == without_cost(first)
    assert second.damaged_tars == first.damaged_tars != []

    changed = raw_of(config) / "ase_efm/82004/shards-0001.tar"
    os.utime(changed, ns=(1, 1))
    assert collect_vin_offline_dataset_coverage(config, tar_index=index).tars_opened == 1
    assert tars_in(opened) == [str(changed)]


@pytest.mark.parametrize("data", [b"", b"garbage", b"[]", b'{"format":1,"tars":{"a":[1]}}', b'{"format":99,"tars":{}}'])
def test_a_broken_index_of_tars_only_costs_time(config: VinOfflineStoreConfig, tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILENAME).write_bytes(data)
    found = collect_vin_offline_dataset_coverage(config, tar_index=FileRoot(tmp_path))
    assert found.tars_opened == 13
    assert collect_vin_offline_dataset_coverage(config, tar_index=FileRoot(tmp_path)).tars_opened == 0


pair_sets = st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from("1234")))


@given(pair_sets, pair_sets)
def test_the_join_is_plain_set_algebra(dataset: set[tuple[str, str]], stored: set[tuple[str, str]]) -> None:
    found = join("s", dataset, stored)
    assert found.covered_snippets + found.missing_in_store == found.dataset_snippets == len(dataset)
    assert found.covered_snippets + found.outside_dataset == found.store_snippets == len(stored)
    assert found.missing_examples == sorted(dataset - stored)
    assert found.outside_examples == sorted(stored - dataset)
    assert found.coverage == (len(dataset & stored) / len(dataset) if dataset else None)
    assert [scene.scene_id for scene in found.per_scene] == sorted({scene for scene, _ in dataset | stored})
    for name in ("dataset_snippets", "store_snippets", "covered_snippets", "missing_in_store", "outside_dataset"):
        assert sum(getattr(scene, name) for scene in found.per_scene) == getattr(found, name)


def test_examples_are_the_first_fifty() -> None:
    found = join("s", {("a", f"{number:03d}") for number in range(80)}, set())
    assert found.missing_examples == [("a", f"{number:03d}") for number in range(50)]


def test_patterns_stay_below_their_root(tmp_path: Path) -> None:
    for name in ("root/a/x.tar", "root/a/b/y.tar", "root/.hidden/z.tar", "secret/s.tar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    root = FileRoot(tmp_path / "root")
    (root.path / "a" / "loop").symlink_to("..")
    (root.path / "out").symlink_to("../secret")
    refused: list[str] = []
    assert glob(root, "**/*.tar", refused) == ["a/b/y.tar", "a/x.tar"]
    assert refused == ["out"]
    assert glob(root, "a/[xy].tar") == ["a/x.tar"]
    assert glob(root, "a/x.tar") == ["a/x.tar"]
    assert glob(root, "../secret/*.tar") == glob(root, "out/*.tar") == glob(root, "nowhere/*") == []
