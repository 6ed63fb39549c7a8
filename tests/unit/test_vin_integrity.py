"""Every kind of damage gives its finding, costs only itself, and reaches nobody as a raw error."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.findings import Severity
from tests.builders.vin import VERSIONS, raw_dataset, tiny_store
from tests.builders.vin_damage import CORRUPTORS, DAMAGES, Damage
from vin_assets.vin_store import diagnostics as d
from vin_assets.vin_store.generation import capture
from vin_assets.vin_store.integrity import BLOCKING_CODES, RULES, check_readable, check_store, store_is_readable
from vin_assets.vin_store.store import StoreUnreadableError, UnsupportedStoreVersionError, VinOfflineStoreConfig

# What no store can be opened without; a path that leaves the store blocks too, but costs only what it names.
CLOSED = BLOCKING_CODES - {"path_escape"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[int, d.VinOfflineDatasetStats]:
    folder = tmp_path_factory.mktemp("healthy")
    return {
        version: d.collect_vin_offline_dataset_stats(VinOfflineStoreConfig(tiny_store(folder, version)))
        for version in VERSIONS
    }


@pytest.mark.parametrize("version", [*VERSIONS, 10])
def test_a_healthy_store_has_no_finding(tmp_path: Path, version: int) -> None:
    config = VinOfflineStoreConfig(tiny_store(tmp_path, version))
    calls: list[tuple[int, int]] = []
    assert check_store(config, progress_cb=lambda done, total: calls.append((done, total))) == []
    assert check_readable(config) == []
    total = calls[-1][1]
    assert calls == [(number, total) for number in range(1, total + 1)]


def test_every_rule_has_a_corruptor_and_every_corruptor_a_rule() -> None:
    assert set(CORRUPTORS) == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_the_corruptor_of_a_rule_trips_it(tmp_path: Path, code: str) -> None:
    config = VinOfflineStoreConfig(tiny_store(tmp_path, 11))
    before = capture(config) if code == "generation_changed" else None
    CORRUPTORS[code](config.store_dir)
    assert code in {finding.code for finding in check_store(config, expected=before)}


def cases() -> Iterator[object]:
    """Each kind of damage in every version that has its rule: one of them in each test run, the rest when soaking."""
    for number, damage in enumerate(DAMAGES):
        chosen = damage.versions[number % len(damage.versions)]
        for version in damage.versions:
            marks = () if version == chosen else (pytest.mark.soak,)
            yield pytest.param(damage, version, id=f"{damage.name}-{version}", marks=marks)


@pytest.mark.parametrize(("damage", "version"), list(cases()))
def test_damage_is_found_and_costs_only_itself(
    tmp_path: Path, healthy: dict[int, d.VinOfflineDatasetStats], damage: Damage, version: int
) -> None:
    config = VinOfflineStoreConfig(tiny_store(tmp_path, version))
    damage.change(config.store_dir)

    findings = check_store(config)
    right = [finding for finding in findings if finding.code == damage.code]
    assert right, findings
    assert any(damage.place in finding.where for finding in right), right
    for finding in findings:
        assert finding.where
        assert finding.text
        assert finding.how_to_fix.endswith(".")
        assert finding.count >= 1
    assert store_is_readable(findings) == (damage.code not in BLOCKING_CODES)

    if damage.code in CLOSED:
        with pytest.raises((StoreUnreadableError, UnsupportedStoreVersionError), match=r"\. ") as raised:
            d.collect_vin_offline_dataset_stats(config)
        assert str(config.store_dir) in str(raised.value)
        return
    assert_the_rest_is_computed(config, healthy[version], {key for finding in findings for key in finding.samples})
    d.collect_vin_offline_dataset_coverage(dataclasses.replace(config, raw_data_root=tmp_path))


def assert_the_rest_is_computed(
    config: VinOfflineStoreConfig, healthy: d.VinOfflineDatasetStats, touched: set[str]
) -> None:
    stats = d.collect_vin_offline_dataset_stats(config)
    whole = {sample.sample_key: sample for sample in healthy.sample_summaries}
    for sample in stats.sample_summaries:
        if sample.sample_key not in touched:
            assert sample == whole[sample.sample_key]
    assert stats.sampled_samples >= stats.rows_read >= len({*whole} - touched - {"new"}) - 6 + stats.num_samples


@pytest.mark.parametrize("version", VERSIONS)
def test_chunks_that_are_absent_legally_are_no_finding(tmp_path: Path, version: int) -> None:
    config = VinOfflineStoreConfig(tiny_store(tmp_path, version))
    shard = config.shards_dir / "shard-000000"
    for block in ("oracle/candidate_poses_world_cam", "vin/t_world_rig", "backbone/occ_pr", "oracle/p3d/in_ndc"):
        for file in (shard / block / "c").rglob("*"):
            if file.is_file():
                file.unlink()
    assert check_store(config) == []
    stats = d.collect_vin_offline_dataset_stats(config)
    assert stats.rows_read == 6
    occupied = next(row for row in stats.backbone_diagnostics if row.field == "occ_pr")
    assert occupied.count == 6 * 64


def test_an_absent_full_row_of_labels_is_legal_zeros_and_a_padded_one_is_lost(tmp_path: Path) -> None:
    config = VinOfflineStoreConfig(tiny_store(tmp_path, 11))
    healthy = d.collect_vin_offline_dataset_stats(config)
    assert healthy.candidate_count_values == [7, 4, 5, 8, 7, 7]
    shard = config.shards_dir / "shard-000001"
    (shard / "oracle/rri/c/0/0").unlink()  # 8 candidates of 8: no padding, so all zeros is possible
    assert check_store(config) == []
    assert d.collect_vin_offline_dataset_stats(config).rri_values[16:24] == [0.0] * 8
    (shard / "oracle/rri/c/1/0").unlink()  # 7 candidates of 8
    [finding] = check_store(config)
    assert (finding.code, finding.severity, finding.samples) == (
        "chunk_absent",
        Severity.ERROR,
        ("ASE_82004_Atek_000001",),
    )
    stats = d.collect_vin_offline_dataset_stats(config)
    assert stats.rri.count == healthy.rri.count - 7
    assert stats.rows_read == 5
    assert stats.block_rows_read["oracle.rri"] == 5


def test_absent_components_and_points_are_a_warning(tmp_path: Path) -> None:
    config = VinOfflineStoreConfig(tiny_store(tmp_path, 8))
    (config.shards_dir / "shard-000000/oracle/pm_acc_after/c/1/0").unlink()
    (config.shards_dir / "shard-000000/vin/points_world/c/2/0/0").unlink()
    findings = check_store(config)
    assert [(f.code, f.severity, f.samples) for f in findings] == [
        ("chunk_absent", Severity.WARN, ("ASE_81286_Atek_000001",)),
        ("chunk_absent", Severity.WARN, ("ASE_81286_Atek_000002",)),
    ]


def test_a_bad_shard_leaves_coverage_whole(tmp_path: Path) -> None:
    config = VinOfflineStoreConfig(tiny_store(tmp_path, 8), raw_data_root=raw_dataset(tmp_path))
    before = d.collect_vin_offline_dataset_coverage(config)
    (config.shards_dir / "shard-000000").rename(tmp_path / "elsewhere")
    assert d.collect_vin_offline_dataset_coverage(config) == before
