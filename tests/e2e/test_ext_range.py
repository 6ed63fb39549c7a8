"""Twenty routes in one backfill under a live daemon, three of them bad: each bad one costs itself and nothing else."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dms_assets.cache_schema import RouteCache
from dms_assets.checks import DESCRIPTIONS
from resources.config import PROJECT
from tests.builders import third_party
from tests.builders.video import access_units, encode, numbered
from tests.e2e.live import NEVER, Live, live, night, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(300)]

ROUTES = [f"00aa11bb22cc33dd_{number:05}" for number in range(1, 21)]
NO_VIDEO, REFUSED, RAISING = ROUTES[3], ROUTES[9], ROUTES[16]
BAD = {NO_VIDEO, REFUSED, RAISING}
GOOD = [uid for uid in ROUTES if uid not in BAD]
CACHE, SUMMARY = ["dms", "raises", "route_cache"], ["dms", "raises", "route_summary"]


def build(world: Path) -> Path:
    """Seventeen healthy routes and three bad ones; the configuration file."""
    for name in ("caches", "videos", "stores/none"):
        (world / name).mkdir(parents=True)
    third_party.install(world)
    videos = world / "videos"
    healthy = encode(numbered(40), world / "healthy.hevc")
    for uid in GOOD:
        shutil.copy(healthy, videos / f"{uid}.hevc")
    (videos / f"{REFUSED}.hevc").write_bytes(b"".join(access_units(healthy)[7:]))
    encode(numbered(160), videos / f"{RAISING}.mp4")  # its extractor raises from frame 120 on
    ends = dict.fromkeys(ROUTES, 1.5) | {RAISING: 7.0}
    (world / "wanted.csv").write_text("uid,t_start,t_end\n" + "".join(f"{uid},0,{ends[uid]}\n" for uid in ROUTES))
    config = world / "pipeline.toml"
    config.write_text(
        f"""
output_root = "out"
[vin]
store_roots = ["stores"]
[dms]
cache_root = "caches"
video_root = "videos"
wanted_spans = "wanted.csv"
settle_s = 0
block_ticks = 25
{night()}
[alerts]
digest_cron = "{NEVER}"
[dms.baselines.raises]
extractor = "raises"
channels = ["number", "left"]
code_version = "1"
"""
    )
    return config


def launch(ui: Live, *assets: list[str]) -> str:
    """Launch all routes of `assets` with the request of the page's "Materialize" dialog; the backfill's id."""
    mutation = """mutation LaunchPartitionBackfill($backfillParams: LaunchBackfillParams!) {
        launchPartitionBackfill(backfillParams: $backfillParams) { __typename
        ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
    params = {
        "tags": [],
        "assetSelection": [{"path": path} for path in assets],
        "partitionNames": ROUTES,
        "fromFailure": False,
    }
    answer = ui.graphql(mutation, backfillParams=params)["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    return str(answer["backfillId"])


def backfill(ui: Live, name: str) -> dict[str, Any]:
    query = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
        status runs { runId status }
        assetBackfillData { assetBackfillStatuses { ... on AssetPartitionsStatusCounts { assetKey { path }
        numPartitionsTargeted numPartitionsMaterialized numPartitionsFailed } } } } } }"""
    found: dict[str, Any] = ui.graphql(query, id=name)["partitionBackfillOrError"]
    return found


def counted(ended: dict[str, Any], asset: list[str]) -> tuple[int, int, int]:
    """Partitions of `asset` that a backfill targeted, materialised, and that failed in it."""
    counts = ended["assetBackfillData"]["assetBackfillStatuses"]
    (found,) = [item for item in counts if item["assetKey"]["path"] == asset]
    return found["numPartitionsTargeted"], found["numPartitionsMaterialized"], found["numPartitionsFailed"]


def asset_partitions(ui: Live, asset: list[str]) -> dict[str, set[str]]:
    query = """query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
        assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions failedPartitions } } } } }"""
    found = ui.graphql(query, k={"path": asset})["assetNodeOrError"]["assetPartitionStatuses"]
    return {name: set(uids) for name, uids in found.items()}


def check_partitions(ui: Live, check: str) -> dict[str, set[str]]:
    query = """query($k: AssetKeyInput!, $c: String!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
        assetCheckOrError(checkName: $c) { ... on AssetCheck { partitionStatuses {
        ... on AssetCheckDefaultPartitionStatuses { succeededPartitions failedPartitions inProgressPartitions
        skippedPartitions executionFailedPartitions } } } } } } }"""
    found = ui.graphql(query, k={"path": CACHE}, c=check)["assetNodeOrError"]["assetCheckOrError"]["partitionStatuses"]
    return {name.removesuffix("Partitions"): set(uids) for name, uids in found.items()}


def remedies(ui: Live, check: str) -> dict[str, str]:
    """What to do about the latest evaluation of `check`, by partition; empty where it passed."""
    query = """query($k: AssetKeyInput!, $c: String!) { assetCheckExecutions(assetKey: $k, checkName: $c, limit: 200) {
        partition evaluation { metadataEntries { label ... on MarkdownMetadataEntry { mdStr } } } } }"""
    found: dict[str, str] = {}
    for item in ui.graphql(query, k={"path": CACHE}, c=check)["assetCheckExecutions"]:
        entries = {entry["label"]: entry for entry in item["evaluation"]["metadataEntries"]}
        found.setdefault(item["partition"], entries.get("how_to_fix", {}).get("mdStr", ""))
    return found


def told(ui: Live, uid: str) -> dict[str, Any]:
    """The numbers and texts of a route's latest materialisation."""
    query = """query($k: AssetKeyInput!, $p: [String!]) { assetOrError(assetKey: $k) { ... on Asset {
        assetMaterializations(partitions: $p, limit: 1) { metadataEntries { label ... on IntMetadataEntry { intValue }
        ... on TextMetadataEntry { text } } } } } }"""
    (event,) = ui.graphql(query, k={"path": CACHE}, p=[uid])["assetOrError"]["assetMaterializations"]
    return {e["label"]: e.get("intValue", e.get("text")) for e in event["metadataEntries"]}


def test_a_backfill_of_twenty_routes_with_three_bad_ones_materialises_seventeen(tmp_path: Path) -> None:
    world = tmp_path / "world"
    world.mkdir()
    environment = {
        "VIN_DMS_CONFIG": str(build(world)),
        "VIN_DMS_ALERTS__FILE": str(world / "alerts.jsonl"),
        "PYTHONPATH": f"{PROJECT}{os.pathsep}{world}",
    }
    with live(tmp_path, environment) as ui:
        keys = "query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { partitionKeys } } }"

        def known() -> bool:
            return bool(ui.graphql(keys, k={"path": CACHE})["assetNodeOrError"]["partitionKeys"] == ROUTES)

        wait_for(known, "the routes are partitions")
        name = launch(ui, CACHE, SUMMARY)
        wait_for(lambda: backfill(ui, name)["status"].startswith("COMPLETED"), "the backfill ends", 150)
        ended = backfill(ui, name)
        assert ended["status"] == "COMPLETED_FAILED"
        assert [run["status"] for run in ended["runs"]] == ["FAILURE"], "one run for the range"
        for asset in (CACHE, SUMMARY):
            assert counted(ended, asset) == (20, 17, 3)
            assert asset_partitions(ui, asset) == {"materializedPartitions": set(GOOD), "failedPartitions": BAD}

        for check in DESCRIPTIONS:
            failed = BAD if check == "span_coverage" else set()
            found = check_partitions(ui, check)
            assert found.pop("failed") == failed, check
            assert found.pop("succeeded") == set(ROUTES) - failed, check
            assert set().union(*found.values()) == set(), f"{check} was planned and not told"
        fix = remedies(ui, "span_coverage")
        assert {uid for uid, text in fix.items() if text} == BAD
        assert f"put the driver video {NO_VIDEO}.hevc, .mp4 or .mkv into the video root" in fix[NO_VIDEO]
        assert f"{REFUSED}.hevc: a slice names parameter set 0, which is missing before it" in fix[REFUSED]
        assert "fetch the video again" in fix[REFUSED]
        assert "the extraction failed: RuntimeError: out of luck" in fix[RAISING]

        # Of the route whose extractor raised, the blocks before are stored; of the healthy ones nothing is done again.
        folder = world / "caches" / "cache" / "raises"
        assert {path.stem for path in folder.glob("*.npz")} == {*GOOD, RAISING}
        assert RouteCache.load(folder / f"{RAISING}.npz").n == 50
        assert told(ui, GOOD[0])["frames_decoded"] == 30  # 29 of the first group, 1 of the next
        before = {uid: (folder / f"{uid}.npz").stat() for uid in [*GOOD, RAISING]}
        name = launch(ui, CACHE)
        wait_for(lambda: [r["status"] for r in backfill(ui, name)["runs"]] == ["FAILURE"], "the second run ends", 150)
        assert asset_partitions(ui, CACHE) == {"materializedPartitions": set(GOOD), "failedPartitions": BAD}
        assert {uid: (folder / f"{uid}.npz").stat() for uid in before} == before
        for uid in GOOD:
            assert told(ui, uid)["decoded"] == "nothing: what is stored was kept"
