"""The machine goes down in the middle of a night's run: what was running is found, done once more, and nothing else."""

import datetime
import json
import os
import shutil
from pathlib import Path

import psutil
import pytest

from dms_assets.cache_schema import RouteCache
from resources.config import PROJECT
from tests.builders import third_party
from tests.builders.video import encode, numbered
from tests.e2e.live import NEVER, Live, live, night, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(600)]

ROUTES = [f"00aa11bb22cc33dd_{number:05}" for number in (1, 2)]
JOB = "dms_slow_routes"


def runs(ui: Live) -> list[dict[str, str]]:
    data = ui.graphql(
        "query($j: String!) { runsOrError(filter: {pipelineName: $j}) { ... on Runs { results { runId status } } } }",
        j=JOB,
    )
    return list(data["runsOrError"]["results"])


def kill(ui: Live) -> None:
    """End every process of the UI at once, as a power cut does."""
    top = psutil.Process(ui.process.pid)
    everybody = [*top.children(recursive=True), top]
    for process in everybody:
        process.kill()
    psutil.wait_procs(everybody, timeout=10)


def test_a_power_cut_during_a_night_loses_nothing_and_repeats_only_the_run_it_cut(tmp_path: Path) -> None:
    world = tmp_path / "world"
    for name in ("caches", "videos", "stores/none"):
        (world / name).mkdir(parents=True)
    third_party.install(world)
    video = encode(numbered(700), world / "videos" / f"{ROUTES[0]}.hevc")
    shutil.copy(video, world / "videos" / f"{ROUTES[1]}.hevc")
    (world / "wanted.csv").write_text("uid,t_start,t_end\n" + "".join(f"{uid},0,34\n" for uid in ROUTES))
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=100)
    (world / "pipeline.toml").write_text(
        f"""
output_root = "out"
[vin]
store_roots = ["stores"]
[dms]
cache_root = "caches"
video_root = "videos"
wanted_spans = "wanted.csv"
settle_s = 0
block_ticks = 20
{night(dms_cron=f"{soon.minute} {soon.hour} * * *")}
[alerts]
digest_cron = "{NEVER}"
[dms.baselines.slow]
extractor = "slow"
channels = ["number", "left"]
code_version = "1"
"""
    )
    environment = {
        "VIN_DMS_CONFIG": str(world / "pipeline.toml"),
        "VIN_DMS_ALERTS__FILE": str(world / "alerts.jsonl"),
        "PYTHONPATH": f"{PROJECT}{os.pathsep}{world}",
    }
    cache = world / "caches" / "cache" / "slow" / f"{ROUTES[0]}.npz"
    with live(tmp_path, environment) as ui:
        wait_for(lambda: any(run["status"] == "STARTED" for run in runs(ui)), "the night begins", 200)
        wait_for(cache.exists, "a block is stored", 60, every=0.05)
        kill(ui)
    begun = RouteCache.load(cache)
    with live(tmp_path, environment) as ui:
        wait_for(lambda: any(run["status"] == "SUCCESS" for run in runs(ui)), "it is done once more", 200)
        found = {run["runId"]: run["status"] for run in runs(ui)}
    assert sorted(found.values()) == ["FAILURE", "SUCCESS"], json.dumps(found)
    for uid in ROUTES:
        assert RouteCache.load(cache.with_name(f"{uid}.npz")).covers([[0, 34]])
    assert begun.n <= RouteCache.load(cache).n
