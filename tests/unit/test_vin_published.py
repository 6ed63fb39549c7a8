"""Published statistics read back as they were."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from demo.prepare import unpack
from resources.config import load_settings
from resources.files import FileRoot
from resources.results import plain, publish
from vin_assets.files import VinFiles
from vin_assets.published import load_coverage, load_stats, stats_document, stats_tables
from vin_assets.vin_store.diagnostics import VinOfflineCoverageStats, collect_vin_offline_dataset_stats
from vin_assets.vin_store.store import VinOfflineStoreConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "vin"


@pytest.mark.parametrize("version", [7, 8, 11])
def test_statistics_are_read_back_as_they_were_published(tmp_path: Path, version: int) -> None:
    unpack(GOLDEN / f"vin_store_tiny_v{version}.tar.gz", tmp_path)
    stats = collect_vin_offline_dataset_stats(VinOfflineStoreConfig(tmp_path / f"tiny_v{version}"))
    published = publish(FileRoot(tmp_path / "out"), "a", stats_document(stats, "digest"), stats_tables(stats))
    assert plain(load_stats(published.folder)) == plain(stats)


def test_coverage_is_read_back_and_newer_keys_are_left_out() -> None:
    data = (GOLDEN / "tiny_v11.coverage.json").read_bytes()
    expected = TypeAdapter(VinOfflineCoverageStats).validate_json(data)
    assert load_coverage({**json.loads(data), "raw_version": "x"}) == expected


def test_an_earlier_form_of_a_result_is_no_result_before_and_costs_nothing(tmp_path: Path) -> None:
    files = VinFiles(load_settings().model_copy(update={"output_root": tmp_path}))
    assert files.previous_coverage("a") is None
    files.publish("store_coverage", "a", {"coverage": "much"}, {}, {})
    files.publish("store_stats", "a", {"rows": 3}, {}, {})
    assert files.previous_coverage("a") is None
    assert files.latest_stats("a") is None
