"""The DMS location on a real instance: real frames in, caches, summaries, metadata and checks per partition out."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import numpy as np
import pytest

from demo import dms
from demo.prepare import clip_frames, write_video
from demo.steps import Step, execute
from dms_assets import outcomes, store_outcomes
from dms_assets.baselines import registry
from dms_assets.cache_schema import RouteCache
from dms_assets.definitions import build_defs
from dms_assets.extraction.video import VideoRefusedError
from dms_assets.files import DmsFiles
from resources import history
from resources.config import DmsSettings, Settings
from resources.events import Checked, Happened, PartitionFailedError

MET, SHORT, FACELESS, NO_VIDEO = (f"00aa11bb22cc33dd_2026-10-0{n}--08-00-00" for n in range(1, 5))
CHECKS = ("cache_valid", "span_coverage", "rows_fill_spans", "provenance_current", "valid_fraction")


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean route of 4 s in .hevc, one of 2 s in .mp4, and a degraded one of 2 s in .mkv, from the real clip."""
    folder = tmp_path_factory.mktemp("videos")
    routes = (
        (MET, "pristine", ".hevc", 0, 80),
        (SHORT, "pristine", ".mp4", 0, 40),
        (FACELESS, "distorted", ".mkv", 60, 100),
    )
    for uid, clip, suffix, first, last in routes:
        write_video(folder / f"{uid}{suffix}", itertools.islice(itertools.cycle(clip_frames(clip)), first, last))
    return folder


@pytest.fixture
def settings(tmp_path: Path, videos: Path) -> Settings:
    (tmp_path / "caches").mkdir()
    rows = [(MET, 0.0, 1.0), (MET, 2.0, 3.0), (SHORT, 1.0, 2.5), (FACELESS, 0.0, 1.0), (NO_VIDEO, 0.0, 1.0)]
    want(tmp_path, rows)
    roots = DmsSettings(
        cache_root=tmp_path / "caches", video_root=videos, wanted_spans=tmp_path / "wanted.csv", settle_s=0.0
    )
    return Settings(output_root=tmp_path / "out", dms=roots)


def want(folder: Path, rows: list[tuple[str, float, float]]) -> None:
    lines = ["uid,t_start,t_end", *(f"{uid},{start},{end}" for uid, start, end in rows), ""]
    (folder / "wanted.csv").write_text("\n".join(lines))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


def night(instance: dg.DagsterInstance, settings: Settings) -> dict[str, list[str]]:
    dms.update(instance, settings)
    steps = dms.steps(instance, settings)
    for step in steps:
        execute(instance, build_defs(settings), step, instance.get_dynamic_partitions("uid"))
    return {step.job: list(step.partitions) for step in steps}


def states(instance: dg.DagsterInstance, baseline: str = "facemesh") -> dict[tuple[str, str | None], str]:
    keys = [dg.AssetCheckKey(outcomes.cache_key(baseline), name) for name in CHECKS]
    return {(state.check, state.partition): state.outcome.value for state in history.check_states(instance, keys)}


def answer(instance: dg.DagsterInstance, check: str, uid: str) -> history.Evaluation:
    return history.evaluations(instance, dg.AssetCheckKey(outcomes.cache_key("facemesh"), check), uid)[0]


def test_a_night_extracts_judges_and_summarises_and_the_next_one_does_nothing(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    done = night(instance, settings)
    whole: dict[str, list[str]] = {
        job: [] for job in ("dms_stores", "dms_reconcile", "dms_configuration", "dms_report")
    }
    assert done == whole | {f"dms_{name}_routes": [MET, SHORT, FACELESS, NO_VIDEO] for name in ("facemesh", "flow")}
    for baseline in ("facemesh", "flow"):
        for key in (outcomes.cache_key(baseline), outcomes.summary_key(baseline)):
            assert instance.get_materialized_partitions(key) == {MET, SHORT, FACELESS}
    found = states(instance)
    assert {found[check, MET] for check in CHECKS} == {"PASSED"}
    failed = {pair for pair, outcome in found.items() if outcome != "PASSED"}
    assert failed == {
        ("span_coverage", SHORT),
        ("span_coverage", NO_VIDEO),
        ("valid_fraction", FACELESS),
    }

    short = answer(instance, "span_coverage", SHORT)
    assert short.metadata["beyond_video_spans"] == [[2.0, 2.5]]
    assert "beyond_video" in str(short.metadata["table"])
    assert "0.6 s of the wanted spans lie past the end of the video: 2.0-2.5 s" in short.description
    assert "there is no driver video" in answer(instance, "span_coverage", NO_VIDEO).description

    cache = RouteCache.load(tmp_path / "caches" / "cache" / "facemesh" / f"{SHORT}.npz")
    assert cache.t.tolist() == [np.float32(k / 10) for k in range(10, 26)]
    assert cache.fail[-6:].tolist() == [2] * 6
    clean = RouteCache.load(tmp_path / "caches" / "cache" / "facemesh" / f"{MET}.npz")
    assert clean.valid.mean() > 0.95
    assert clean.spans.tolist() == [[0.0, 1.0], [2.0, 3.0]]

    summary = json.loads((tmp_path / "caches" / "summ" / "facemesh" / f"{SHORT}.json").read_text())
    assert (summary["n"], summary["wanted_s"], summary["beyond_video_s"]) == (16, 1.6, 0.6)
    assert summary["failed"]["no_frame"] == 6

    store = instance.get_latest_materialization_event(store_outcomes.coverage_key("facemesh"))
    assert store is not None
    assert store.asset_materialization is not None
    told = {name: item.value for name, item in store.asset_materialization.metadata.items()}
    assert (told["routes_wanted"], told["routes_covered"], told["missing_s"]) == (4, 2, 1.1)
    covered = dg.AssetCheckKey(store_outcomes.coverage_key("facemesh"), store_outcomes.ROUTES_COVERED)
    assert "2 of 4 wanted routes are covered" in history.evaluations(instance, covered, None)[0].description
    document = json.loads((settings.output_root / "dms/overview/latest/result.json").read_text())
    assert document["states"]["facemesh"] == {
        MET: "covered",
        SHORT: "unmeetable",
        FACELESS: "covered",
        NO_VIDEO: "no_video",
    }

    newest = history.newest_event(instance)
    assert night(instance, settings) == {}
    assert history.newest_event(instance) == newest


def test_a_wanted_span_that_is_added_is_all_that_the_next_night_extracts(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    want(tmp_path, [(MET, 0.0, 1.0)])
    night(instance, settings)
    want(tmp_path, [(MET, 0.0, 2.0)])
    done = night(instance, settings)
    assert {job: uids for job, uids in done.items() if uids} == {
        f"dms_{name}_routes": [MET] for name in ("facemesh", "flow")
    }
    wanted = dg.AssetRecordsFilter(asset_key=outcomes.cache_key("facemesh"), asset_partitions=[MET])
    event = instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
    assert event is not None
    assert (event.metadata["ticks_extracted"].value, event.metadata["ticks_reused"].value) == (10, 11)


def test_a_check_executed_alone_sees_a_cache_that_was_damaged_since(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    want(tmp_path, [(MET, 0.0, 0.5)])
    night(instance, settings)
    file = tmp_path / "caches" / "cache" / "facemesh" / f"{MET}.npz"
    file.write_bytes(file.read_bytes()[:-100])
    alone = Step("dms_facemesh_route_checks", [MET], "")
    execute(instance, build_defs(settings), alone, instance.get_dynamic_partitions("uid"))
    assert states(instance)["cache_valid", MET] == "FAILED"
    assert file.exists()


def test_a_broken_configuration_leaves_the_location_with_a_failing_check(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[dms.baselines.facemesh]\nchannels = ['x']\n")
    monkeypatch.setenv("VIN_DMS_CONFIG", str(file))
    defs = build_defs()
    assert outcomes.cache_key("facemesh") in defs.resolve_all_asset_keys()
    key = dg.AssetCheckKey(outcomes.ANCHOR_SPANS, "configuration")
    job = dg.Definitions(
        assets=defs.assets,
        asset_checks=defs.asset_checks,
        jobs=[dg.define_asset_job("only", dg.AssetSelection.checks(key))],
        resources=defs.resources,
        executor=dg.in_process_executor,
    ).resolve_job_def("only")
    assert job.execute_in_process(instance=instance).success
    evaluation = history.evaluations(instance, key, None)[0]
    assert not evaluation.passed
    assert "baselines.facemesh.channels" in evaluation.description


def test_a_sweep_opens_only_what_changed(instance: dg.DagsterInstance, settings: Settings, tmp_path: Path) -> None:
    want(tmp_path, [(MET, 0.0, 0.5), (SHORT, 0.0, 0.5)])
    night(instance, settings)
    files, baseline = DmsFiles(settings), registry({})["facemesh"]
    assert store_outcomes.swept(files, baseline).read == 0
    (tmp_path / "caches" / "cache" / "facemesh" / f"{MET}.npz").touch()
    assert store_outcomes.swept(files, baseline).read == 1
    first = settings.output_root / "dms/facemesh/stats/latest/result.json"
    before = json.loads(first.read_text())["histograms"]["yaw_deg"]
    store_outcomes.stats(files, baseline, store_outcomes.swept(files, baseline))
    assert json.loads(first.read_text())["histograms"]["yaw_deg"] == before


def test_a_scarce_device_is_a_pool_of_its_baselines_routes_and_nothing_is_retried_inside_a_run(
    settings: Settings,
) -> None:
    entry = {"extractor": "flow", "kind": "windows", "code_version": "1", "pool": "gpu"}
    with_pool = settings.model_copy(
        update={"dms": settings.dms.model_copy(update={"baselines": {**settings.dms.baselines, "scarce": entry}})}
    )
    defs = build_defs(with_pool)
    for name, pool in (("scarce", "gpu"), ("flow", None)):
        nodes = [node.definition for node in defs.resolve_job_def(f"dms_{name}_routes").nodes]
        (op,) = [node for node in nodes if isinstance(node, dg.OpDefinition) and node.name == f"dms_{name}_route"]
        assert (op.pool, op.retry_policy) == (pool, None)


def test_a_failed_extraction_is_no_materialisation_and_its_finding_says_why(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want(tmp_path, [(MET, 0.0, 0.5)])
    files, baseline = DmsFiles(settings), registry({})["flow"]
    list(outcomes.route_cache(files, baseline, MET))  # a cache is stored
    want(tmp_path, [(MET, 0.0, 1.5)])

    def refuse(*_: object, **__: object) -> None:
        raise VideoRefusedError("frames were lost")

    monkeypatch.setattr(outcomes, "run_route", refuse)
    happened: list[Happened] = []

    def work() -> None:
        for item in outcomes.route_cache(DmsFiles(settings), baseline, MET):
            happened.append(item)  # noqa: PERF402  (what comes before the failure counts)

    with pytest.raises(PartitionFailedError, match="frames were lost"):
        work()
    assert {type(item) for item in happened} == {Checked}
    (coverage,) = [item for item in happened if isinstance(item, Checked) and item.check_name == "span_coverage"]
    assert not coverage.passed
    assert "the extraction failed: frames were lost" in str(coverage.metadata["how_to_fix"])
