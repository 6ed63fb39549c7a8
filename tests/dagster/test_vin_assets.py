"""The VIN location on a real instance: stores in, results, metadata and checks per partition out."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from demo import vin
from demo.steps import Step, execute
from resources import history
from resources.config import Settings
from resources.events import report
from resources.partitions import ranges
from tests.builders.vin import golden_settings
from vin_assets import changes, outcomes
from vin_assets.definitions import build_defs
from vin_assets.files import StoreNameError, VinFiles
from vin_assets.sync import changed_stores

STORES = ["tiny_v11", "tiny_v7", "tiny_v8"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return golden_settings(tmp_path)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture(autouse=True)
def _one_figure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing all six takes a second per store: one test does, and looks at them."""
    if "figures" not in request.node.name:
        monkeypatch.setattr("vin_assets.figures.statistics_figures", lambda *_: {})


def night(instance: dg.DagsterInstance, settings: Settings) -> list[Step]:
    vin.sync(instance, settings)
    steps = vin.steps(instance, settings)
    for step in steps:
        execute(instance, build_defs(settings), step, instance.get_dynamic_partitions("store"))
    return steps


def states(instance: dg.DagsterInstance, settings: Settings) -> dict[tuple[str, str | None], str]:
    keys = [key for check in build_defs(settings).asset_checks or [] for key in check.check_keys]
    return {(state.check, state.partition): state.outcome.value for state in history.check_states(instance, keys)}


def test_every_store_is_computed_and_checked_and_a_second_night_does_nothing(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    jobs = {"vin_store_checks", "vin_store_results", "vin_belief", "vin_configuration", "vin_report"}
    assert {step.job for step in night(instance, settings)} == jobs
    for key in (outcomes.OFFLINE_STORE, outcomes.STORE_STATS, outcomes.STORE_COVERAGE):
        assert instance.get_materialized_partitions(key) == set(STORES)
    found = states(instance, settings)
    checks = (
        outcomes.STORE_READABLE,
        outcomes.STORE_INTEGRITY,
        outcomes.LABELS_USABLE,
        outcomes.GENERATION_CURRENT,
        outcomes.RAW_COVERAGE,
        outcomes.TARS_READABLE,
    )
    assert {found[check, store] for check in checks for store in STORES} == {"PASSED"}
    newest = history.newest_event(instance)
    assert night(instance, settings) == []
    assert history.newest_event(instance) == newest


def test_metadata_has_the_key_numbers_tables_and_figures(instance: dg.DagsterInstance, settings: Settings) -> None:
    night(instance, settings)
    wanted = dg.AssetRecordsFilter(asset_key=outcomes.STORE_STATS, asset_partitions=["tiny_v11"])
    event = instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
    assert event is not None
    assert event.metadata["samples"].value == 6
    assert event.metadata["labelled_candidates"].value == 38
    assert event.metadata["rri_mean"].value == pytest.approx(0.29405864558525774)
    assert str(event.metadata["figures"].value).count("data:image/svg+xml") == 6
    result = Path(str(event.metadata["result"].value))
    assert json.loads((result / "result.json").read_text())["rri"]["count"] == 38
    wanted = dg.AssetRecordsFilter(asset_key=outcomes.STORE_COVERAGE, asset_partitions=["tiny_v11"])
    event = instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
    assert event is not None
    assert (event.metadata["covered_snippets"].value, event.metadata["dataset_snippets"].value) == (5, 104)


def test_an_unreadable_store_costs_only_itself_and_its_repair_is_news(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    manifest = tmp_path / "stores" / "tiny_v7" / "manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:100])
    night(instance, settings)
    assert instance.get_materialized_partitions(outcomes.STORE_STATS) == {"tiny_v11", "tiny_v8"}
    found = states(instance, settings)
    assert found["store_readable", "tiny_v7"] == "FAILED"
    assert found["store_readable", "tiny_v8"] == "PASSED"
    evaluation = history.evaluations(
        instance, dg.AssetCheckKey(outcomes.OFFLINE_STORE, outcomes.STORE_READABLE), "tiny_v7"
    )[0]
    assert "manifest.json" in evaluation.description
    assert evaluation.metadata["table"].records[0].data["code"] == "manifest_unreadable"
    manifest.write_bytes(whole)
    assert [step.partitions for step in night(instance, settings) if step.partitions] == [["tiny_v7"]] * 2
    assert states(instance, settings)["store_readable", "tiny_v7"] == "PASSED"
    assert instance.get_materialized_partitions(outcomes.STORE_STATS) == set(STORES)


def test_a_changed_raw_tar_asks_for_the_stores_that_use_it(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    night(instance, settings)
    tar = next((tmp_path / "raw").rglob("82004/shards-0000.tar"))
    data = tar.read_bytes()
    tar.write_bytes(data[: len(data) // 2 + 100])
    assert set(changes.reasons(VinFiles(settings), STORES)) == set(STORES)
    night(instance, settings)
    assert states(instance, settings)["tars_readable", "tiny_v8"] == "FAILED"


def test_a_replaced_store_is_told_and_computed_again(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    night(instance, settings)
    stores = tmp_path / "stores"
    shutil.copytree(stores / "tiny_v8", stores / ".new")
    (stores / "tiny_v8").rename(stores / ".old")
    (stores / ".new").rename(stores / "tiny_v8")
    assert [
        item.partition
        for item in changed_stores(VinFiles(settings), history.data_versions(instance, outcomes.OFFLINE_STORE))
    ] == ["tiny_v8"]
    stale = Step("vin_result_checks", ["tiny_v8"], "")
    execute(instance, build_defs(settings), stale, instance.get_dynamic_partitions("store"))
    assert states(instance, settings)["generation_current", "tiny_v8"] == "FAILED"
    night(instance, settings)
    assert states(instance, settings)["generation_current", "tiny_v8"] == "PASSED"


def test_an_unreadable_root_is_an_error_and_deletes_nothing(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    night(instance, settings)
    (tmp_path / "stores").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        vin.sync(instance, settings)
    assert instance.get_dynamic_partitions("store") == STORES


def test_two_stores_of_one_name_are_an_error_that_names_both(settings: Settings, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "tiny_v8").mkdir(parents=True)
    roots = settings.vin.model_copy(update={"store_roots": (tmp_path / "stores", other)})
    files = VinFiles(settings.model_copy(update={"vin": roots}))
    with pytest.raises(StoreNameError, match=r"stores/tiny_v8 and .*other/tiny_v8"):
        files.stores()
    aliased = roots.model_copy(update={"aliases": {"second": other / "tiny_v8"}})
    assert list(VinFiles(settings.model_copy(update={"vin": aliased})).stores()) == ["second", *STORES]


def test_reports_outside_runs_are_only_of_what_changed(instance: dg.DagsterInstance, settings: Settings) -> None:
    files = VinFiles(settings)
    instance.add_dynamic_partitions("store", STORES)
    assert report(instance, changed_stores(files, {})) == 3
    assert changed_stores(files, history.data_versions(instance, outcomes.OFFLINE_STORE)) == []


def test_wanted_keys_become_ranges_of_neighbours() -> None:
    assert ranges(list("abcdef"), ["a", "b", "d", "f"]) == [("a", "b"), ("d", "d"), ("f", "f")]
    assert ranges(list("abc"), []) == []


def test_a_store_that_lost_samples_drifts_from_its_previous_statistics(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    stores = tmp_path / "stores"
    for name in ("tiny_v11", "tiny_v7"):
        shutil.rmtree(stores / name)
    night(instance, settings)
    assert states(instance, settings)["drift", "tiny_v8"] == "PASSED"
    index = stores / "tiny_v8" / "sample_index.jsonl"
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:3]))
    night(instance, settings)
    key = dg.AssetCheckKey(outcomes.STORE_STATS, outcomes.DRIFT)
    answer = history.evaluations(instance, key, "tiny_v8")[0]
    assert (answer.passed, answer.severity) == (False, "WARN")
    assert "num_scenes 3 -> 1 (changed by 67%, 25% allowed)" in answer.description
    assert answer.metadata["threshold_max_relative_change"] == 0.25
    execute(instance, build_defs(settings), Step("vin_result_checks", ["tiny_v8"], ""), ["tiny_v8"])
    assert states(instance, settings)["drift", "tiny_v8"] == "FAILED"
