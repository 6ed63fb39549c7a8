"""The pages that people open: an asset's and a check's Partitions tab count as the disk has it; an alert's link."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page

from dms_assets.definitions import build_defs
from resources.config import load_settings
from resources.launching import partition_tags
from resources.liveness import LOCATION_TAG
from tests.builders.dms import frames
from tests.dagster.test_dms_automation import NIGHT
from tests.dagster.ticks import tick_schedule, tick_sensor
from tests.e2e.live import live, wait_for

pytestmark = pytest.mark.e2e

ROUTES = [f"00aa11bb22cc33dd_{number:05}" for number in range(1, 5)]


def adopt(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four routes adopted on an instance below `home`, then damaged, then judged by a range run.

    The first holds less than is wanted; the last was cut short after its adoption.
    """
    (folder / "videos").mkdir(parents=True)
    for number, uid in enumerate(ROUTES):
        cache = frames(uid, 0, 20 if number == 0 else 50, baseline="ext", fail={}, code_version="1")
        cache.save(folder / "caches" / "cache" / "ext" / f"{uid}.npz")
    (folder / "wanted.csv").write_text("uid,t_start,t_end\n" + "".join(f"{uid},0,5\n" for uid in ROUTES))
    config = folder / "pipeline.toml"
    config.write_text(
        'output_root = "out"\n[dms]\ncache_root = "caches"\nvideo_root = "videos"\nwanted_spans = "wanted.csv"\n'
        'settle_s = 0\n[dms.baselines.ext]\nextractor = "external"\nchannels = ["c0", "c1", "c2", "c3"]\n'
        '[alerts]\nfile = "alerts.jsonl"\nsettle_s = 0\ninterval_s = 5\n'
    )
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    defs = build_defs(load_settings(config))
    with dg.DagsterInstance.get() as instance:
        tick_sensor(instance, defs, "dms_partition_sync")
        tick_schedule(instance, defs, "dms_reconcile_schedule", NIGHT)
        last = folder / "caches" / "cache" / "ext" / f"{ROUTES[-1]}.npz"
        last.write_bytes(last.read_bytes()[:-100])
        job = defs.resolve_job_def("dms_ext_routes")
        tags = {LOCATION_TAG: "dms_assets"} | partition_tags(ROUTES[0], ROUTES[-1])
        assert not job.execute_in_process(instance=instance, tags=tags, raise_on_error=False).success
    return config


def test_the_pages_of_an_asset_a_check_and_an_alert_count_passed_and_failed_partitions(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as aside:  # away from the event loop that the browser's library runs in this thread
        config = aside.submit(adopt, tmp_path / "world", tmp_path / "dagster_home", monkeypatch).result()

    def reads(*texts: str) -> None:
        for text in texts:
            page.get_by_text(text, exact=True).first.wait_for(timeout=60_000)

    def links() -> dict[str, str] | None:
        file = config.parent / "alerts.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        told = [item for line in lines for item in json.loads(line)["items"] if item["asset"] == "dms/ext/route_cache"]
        found = {item["check"]: item["link"] for item in told}
        return found if {"cache_valid", "span_coverage"} <= set(found) else None

    with live(tmp_path, {"VIN_DMS_CONFIG": str(config)}) as ui:
        page.goto(f"{ui.url}/assets/dms/ext/route_cache?view=partitions")
        reads("Materialized (3)", "Failed (1)", "Missing (0)")
        page.screenshot(path=tmp_path / "asset.png")

        alerted = wait_for(links, "both failing checks are told")
        assert all(link.startswith(f"{ui.url}/assets/dms/ext/route_cache?") for link in alerted.values())
        for check, counts in (
            ("cache_valid", ("Passed (3)", "Failed (1)", "Missing (0)")),
            ("span_coverage", ("Passed (2)", "Failed (2)", "Missing (0)")),
        ):
            page.goto(alerted[check])
            page.get_by_text(check).first.wait_for(timeout=60_000)
            page.screenshot(path=tmp_path / f"{check}_link.png")
            page.get_by_text("Partitions", exact=True).last.click()
            reads(*counts)
            page.screenshot(path=tmp_path / f"{check}.png")
