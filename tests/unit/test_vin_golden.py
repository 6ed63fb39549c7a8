"""The golden stores give the reference answers, field by field."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from resources.results import plain
from tests.builders.vin import GOLDEN, VERSIONS, raw_dataset, tiny_store
from vin_assets.vin_store import diagnostics as d
from vin_assets.vin_store.store import VinOfflineStoreConfig

# What the reference's version did not have yet, and what this project adds.
NEWER = {
    "scene_labels_available",
    "batch_shapes_available",
    "rri_component_pairs",
    "rri_pairing_unavailable_sample_keys",
    "rows_read",
    "block_rows_read",
}


def expected_stats(version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"tiny_v{8 if version == 10 else version}.stats.json").read_text())
    if version == 10:
        found["version"] = 10
    return found


@pytest.fixture(params=(*VERSIONS, 10))
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def store(tmp_path: Path, version: int) -> VinOfflineStoreConfig:
    return VinOfflineStoreConfig(tiny_store(tmp_path / "stores", version), raw_data_root=raw_dataset(tmp_path / "raw"))


def assert_close(found: Any, wanted: Any, where: str, tolerance: float = 1e-12) -> None:
    if isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for key, value in wanted.items():
            assert_close(found[key], value, f"{where}.{key}", tolerance)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for number, value in enumerate(wanted):
            assert_close(found[number], value, f"{where}[{number}]", tolerance)
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance), (where, found, wanted)
    else:
        assert found == wanted, where


def test_statistics_are_the_reference_answers(store: VinOfflineStoreConfig, version: int) -> None:
    stats = plain(d.collect_vin_offline_dataset_stats(store))
    wanted = expected_stats(version)
    assert set(stats) == set(wanted) | NEWER
    for name, value in wanted.items():
        if name == "store_dir":
            assert stats[name] == store.store_dir.resolve().as_posix()
        elif name == "memory_diagnostics":
            assert_memory(stats[name], value, version)
        elif name in ("candidate_pose_values", "candidate_pose_summaries"):
            for key, values in value.items():
                assert_close(stats[name][key], values, f"{name}.{key}", 0.05 if key.endswith("_deg") else 2e-5)
            assert list(stats[name]) == list(value)
        else:
            assert_close(stats[name], value, name)


def assert_memory(found: list[dict[str, Any]], wanted: list[dict[str, Any]], version: int) -> None:
    """The reference counts version 11's reference pose, 48 bytes of a sample, as part of the snippet."""
    moved = 48 / 2**20 if version == 11 else 0.0
    for row, reference in zip(found, wanted, strict=True):
        assert row["component"] == reference["component"]
        shift = {"vin_snippet": -moved, "pose_camera": moved}.get(row["component"], 0.0)
        for key in ("mean_mib", "median_mib", "p95_mib"):
            assert math.isclose(row[key], reference[key] + shift, rel_tol=1e-12), row["component"]


def test_coverage_is_the_reference_answer(store: VinOfflineStoreConfig, version: int) -> None:
    calls: list[tuple[int, int]] = []
    found = plain(
        d.collect_vin_offline_dataset_coverage(store, progress_cb=lambda done, total: calls.append((done, total)))
    )
    wanted = json.loads((GOLDEN / f"tiny_v{8 if version == 10 else version}.coverage.json").read_text())
    for name, value in wanted.items():
        if name != "store_dir":
            assert_close(found[name], value, name)
    assert found["damaged_tars"] == found["refused_paths"] == []
    assert calls == [(number, 13) for number in range(1, 14)]


def test_the_newer_fields_hold_what_the_arrays_hold(store: VinOfflineStoreConfig) -> None:
    stats = d.collect_vin_offline_dataset_stats(store)
    assert stats.scene_labels_available
    assert stats.batch_shapes_available
    assert stats.rri_pairing_unavailable_sample_keys == []
    assert stats.rows_read == 6
    assert set(stats.block_rows_read.values()) == {6}
    # All candidates of these stores are labelled and have an ID, so pairs and marginals are the same series.
    for name, pairs in stats.rri_component_pairs.items():
        assert pairs == list(zip(stats.rri_values, stats.rri_component_values[name], strict=True))


def test_inspecting_a_request_gives_what_collecting_gives(store: VinOfflineStoreConfig) -> None:
    request = d.capture_vin_offline_dataset_stats_request(store)
    assert d.inspect_vin_offline_dataset_stats(request) == d.collect_vin_offline_dataset_stats(store)


@pytest.mark.parametrize("samples", [-3, 0])
def test_no_rows_still_give_all_that_manifest_and_index_say(store: VinOfflineStoreConfig, samples: int) -> None:
    whole = d.collect_vin_offline_dataset_stats(store, max_samples=None)
    none = d.collect_vin_offline_dataset_stats(store, max_samples=samples)
    assert none.sampled_samples == none.rows_read == 0
    for name in ("num_samples", "split_counts", "num_scenes", "numeric_bytes", "block_diagnostics", "batch_shapes"):
        assert getattr(none, name) == getattr(whole, name)
    assert none.rri == d.NumericSummary(0, None, None, None)
    for name in ("sample_summaries", "backbone_diagnostics", "memory_diagnostics", "rri_values"):
        assert getattr(none, name) == []
    assert all(values == [] for values in none.rri_component_pairs.values())


def test_fewer_rows_are_the_first_of_the_index(store: VinOfflineStoreConfig) -> None:
    whole = d.collect_vin_offline_dataset_stats(store)
    some = d.collect_vin_offline_dataset_stats(store, max_samples=4)
    assert some.sample_summaries == whole.sample_summaries[:4]
    assert some.candidate_count_values == whole.candidate_count_values[:4]
    assert {row.sampled_rows for row in some.backbone_diagnostics} == {4}


def test_results_are_plain_json(store: VinOfflineStoreConfig) -> None:
    for found in (d.collect_vin_offline_dataset_stats(store), d.collect_vin_offline_dataset_coverage(store)):
        text = json.dumps(plain(found), allow_nan=False)
        assert TypeAdapter(type(found)).validate_json(text) == found
