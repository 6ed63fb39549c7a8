"""Backfills as people start them, under a live webserver and daemon: only what is missing is computed, ever."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from dms_assets.cache_schema import RouteCache
from resources.config import PROJECT
from tests.builders import third_party
from tests.builders.dms import frames
from tests.builders.video import encode, numbered
from tests.e2e.live import NEVER, Live, live, night, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(400)]

ROUTES = [f"00aa11bb22cc33dd_{number:05}" for number in range(1, 7)]
MISSING = [ROUTES[1], ROUTES[2], ROUTES[4]]
ASSETS = [["dms", "numbers", name] for name in ("route_cache", "route_summary")]


def build(world: Path) -> Path:
    """Six routes with a video of 3 s, 2 s wanted of each; three caches are there, by another program."""
    (world / "videos").mkdir(parents=True)
    third_party.install(world)
    video = encode(numbered(60), world / "numbers.hevc")
    for uid in ROUTES:
        os.link(video, world / "videos" / f"{uid}.hevc")
        if uid not in MISSING:
            cache = frames(uid, 0, 20, baseline="numbers", channels=2, fail={}, code_version="1")
            cache.channels = ["number", "left"]
            cache.save(world / "caches" / "cache" / "numbers" / f"{uid}.npz")
    want(world, dict.fromkeys(ROUTES, 2.0))
    (world / "pipeline.toml").write_text(
        f"""
output_root = "out"
[dms]
cache_root = "caches"
video_root = "videos"
wanted_spans = "wanted.csv"
settle_s = 0
{night(2)}
[alerts]
digest_cron = "{NEVER}"
[dms.baselines.numbers]
extractor = "numbers"
channels = ["number", "left"]
code_version = "1"
"""
    )
    return world / "pipeline.toml"


def want(world: Path, seconds: dict[str, float]) -> None:
    lines = ["uid,t_start,t_end", *(f"{uid},0,{end}" for uid, end in seconds.items()), ""]
    (world / "wanted.csv").write_text("\n".join(lines))


def backfill(ui: Live, partitions: Iterable[str]) -> int:
    """What the page's *Materialize* starts for the selected partitions; the number of its runs when it succeeded."""
    query = """mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename
        ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
    params = {"assetSelection": [{"path": path} for path in ASSETS], "partitionNames": list(partitions)}
    answer = ui.graphql(query, p=params)["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    query = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
        status runs(limit: 50) { status } } } }"""

    def ended() -> dict[str, object] | None:
        found: dict[str, object] = ui.graphql(query, id=answer["backfillId"])["partitionBackfillOrError"]
        return found if str(found["status"]).startswith(("COMPLETED", "FAILED", "CANCELED")) else None

    found = wait_for(ended, "the backfill ends", 150)
    assert found["status"] == "COMPLETED_SUCCESS", found
    assert isinstance(found["runs"], list)
    return len(found["runs"])


def stats(ui: Live) -> tuple[int, int]:
    query = """query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { partitionStats {
        numPartitions numMaterialized } } } }"""
    found = ui.graphql(query, k={"path": ASSETS[0]})["assetNodeOrError"]["partitionStats"]
    return found["numPartitions"], found["numMaterialized"]


def test_backfills_of_selected_routes_of_all_routes_and_from_the_command_line_compute_only_what_is_missing(
    tmp_path: Path,
) -> None:
    world = tmp_path / "world"
    environment = {"VIN_DMS_CONFIG": str(build(world)), "PYTHONPATH": f"{PROJECT}{os.pathsep}{world}"}
    environment["VIN_DMS_ALERTS__FILE"] = str(world / "alerts.jsonl")

    def stored() -> dict[str, tuple[int, int]]:
        """Inode and time of each cache: a cache that is extracted into is replaced."""
        found = {path.stem: path.stat() for path in (world / "caches" / "cache" / "numbers").glob("*.npz")}
        return {uid: (stat.st_ino, stat.st_mtime_ns) for uid, stat in found.items()}

    def renewed(before: dict[str, tuple[int, int]]) -> list[str]:
        return sorted(uid for uid, identity in stored().items() if before.get(uid) != identity)

    with live(tmp_path, environment) as ui:
        wait_for(lambda: stats(ui) == (6, 0), "the routes are partitions")
        before = stored()
        assert backfill(ui, [MISSING[0], MISSING[2]]) == 2, "a run for each range of neighbours"
        assert renewed(before) == [MISSING[0], MISSING[2]]
        assert stats(ui) == (6, 2)

        before = stored()
        assert backfill(ui, ROUTES) == 1
        assert renewed(before) == [MISSING[1]]
        assert stats(ui) == (6, 6), "healthy routes are judged and recorded; their files stay"

        before = stored()
        want(world, dict.fromkeys(ROUTES, 2.0) | {MISSING[1]: 2.5})
        names = " or ".join(f'key:"{"/".join(path)}"' for path in ASSETS)
        command = [str(Path(sys.executable).parent / "dagster"), "asset", "materialize", "-m", "dms_assets.definitions"]
        command += ["--select", names, "--partition-range", f"{ROUTES[0]}...{ROUTES[-1]}"]
        variables = {**os.environ, **environment, "DAGSTER_HOME": str(ui.home)}
        done = subprocess.run(
            command, env=variables, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert renewed(before) == [MISSING[1]]
    cache = RouteCache.load(world / "caches" / "cache" / "numbers" / f"{MISSING[1]}.npz")
    assert cache.covers([[0, 2.5]])
