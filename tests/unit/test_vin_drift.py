"""Drift against the previous statistics and against other stores: a table, and findings beyond the thresholds."""

import dataclasses
import math
from pathlib import Path

import pytest

from resources.findings import Severity
from tests.builders.vin import tiny_store
from vin_assets.vin_store.diagnostics import NumericSummary, VinOfflineDatasetStats, collect_vin_offline_dataset_stats
from vin_assets.vin_store.drift import OTHERS, PREVIOUS, DriftRow, DriftThresholds, drift_findings, drift_rows
from vin_assets.vin_store.store import VinOfflineStoreConfig

LIMITS = DriftThresholds()


@pytest.fixture(scope="module")
def stats(tmp_path_factory: pytest.TempPathFactory) -> VinOfflineDatasetStats:
    folder: Path = tmp_path_factory.mktemp("stores")
    return collect_vin_offline_dataset_stats(VinOfflineStoreConfig(tiny_store(folder, 11)))


def exceeded(rows: list[DriftRow]) -> set[str]:
    return {row.quantity for row in rows if row.exceeded}


def with_rri(stats: VinOfflineDatasetStats, values: list[float]) -> VinOfflineDatasetStats:
    return dataclasses.replace(stats, rri_values=values, rri=NumericSummary.of(values))


def test_the_same_statistics_don_t_drift(stats: VinOfflineDatasetStats) -> None:
    rows = drift_rows(stats, stats, {"a": stats, "b": stats}, LIMITS)
    assert {row.against for row in rows} == {PREVIOUS, OTHERS}
    assert exceeded(rows) == set()
    assert drift_findings(rows) == []
    assert {row.change for row in rows} == {0.0}


def test_without_anything_to_compare_there_is_nothing(stats: VinOfflineDatasetStats) -> None:
    assert drift_rows(stats, None, {}, LIMITS) == []


def test_a_shifted_series_is_told_by_mean_and_quantiles(stats: VinOfflineDatasetStats) -> None:
    moved = with_rri(stats, [value + 0.2 for value in stats.rri_values])
    rows = drift_rows(moved, stats, {}, LIMITS)
    assert exceeded(rows) == {"rri mean", "rri p05", "rri p50", "rri p95"}
    [finding] = drift_findings(rows)
    assert (finding.code, finding.severity, finding.count) == ("drift_from_previous", Severity.WARN, 4)
    assert "rri" in finding.text
    assert drift_findings(drift_rows(moved, stats, {}, DriftThresholds(1.0, 1.0))) == []


def test_counts_are_compared_with_the_previous_ones_alone(stats: VinOfflineDatasetStats) -> None:
    smaller = dataclasses.replace(stats, num_samples=3)
    assert exceeded(drift_rows(smaller, stats, {"a": stats}, LIMITS)) == {"num_samples"}
    assert exceeded(drift_rows(smaller, None, {"a": stats}, LIMITS)) == set()


def test_lost_labels_are_told(stats: VinOfflineDatasetStats) -> None:
    bare = dataclasses.replace(with_rri(stats, []), candidate_count_values=[], scene_labels_available=False)
    assert {"rri mean", "candidate_count p50", "share of finite labels"} <= exceeded(
        drift_rows(bare, stats, {}, LIMITS)
    )
    fewer = with_rri(stats, stats.rri_values[:-2])
    [row] = [row for row in drift_rows(fewer, stats, {}, LIMITS) if row.quantity == "share of finite labels"]
    assert row.change == pytest.approx(2 / 38)
    assert row.exceeded
    gained = [row for row in drift_rows(stats, fewer, {}, LIMITS) if row.quantity == "share of finite labels"]
    assert not gained[0].exceeded


def test_another_row_shape_is_told_and_another_number_of_rows_is_not(stats: VinOfflineDatasetStats) -> None:
    shapes = stats.block_shapes | {"oracle.rri": (3, 60), "vin.lengths": (99, 1)}
    rows = drift_rows(dataclasses.replace(stats, block_shapes=shapes), stats, {}, LIMITS)
    assert exceeded(rows) == {"oracle.rri row shape"}
    assert "(8,) -> (60,) (another shape)" in drift_findings(rows)[0].text


def test_other_stores_are_taken_by_their_median(stats: VinOfflineDatasetStats) -> None:
    outlier = with_rri(stats, [value + 5 for value in stats.rri_values])
    assert exceeded(drift_rows(stats, None, {"a": stats, "b": stats, "c": outlier}, LIMITS)) == set()
    rows = drift_rows(outlier, None, {"a": stats, "b": stats}, LIMITS)
    assert {row.quantity for row in rows if row.exceeded} == {"rri mean", "rri p05", "rri p50", "rri p95"}
    assert drift_findings(rows)[0].code == "drift_from_other_stores"


def test_what_was_constant_and_moves_is_told(stats: VinOfflineDatasetStats) -> None:
    constant = dataclasses.replace(stats, vin_point_values=[7.0] * 6)
    rows = [row for row in drift_rows(stats, constant, {}, LIMITS) if row.quantity.startswith("vin_points p")]
    assert {row.change for row in rows} == {math.inf}
