"""What an alert's link leads to: the check's page counts passed and failed partitions as the disk has them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page

from dms_assets.definitions import build_defs
from resources.config import load_settings
from tests.builders.dms import frames
from tests.dagster.test_dms_automation import NIGHT
from tests.dagster.ticks import tick_schedule, tick_sensor
from tests.e2e.live import live

pytestmark = pytest.mark.e2e

ROUTES = [f"00aa11bb22cc33dd_{number:05}" for number in range(1, 5)]


def adopt(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three routes that hold what is wanted and one that does not, adopted on an instance below `home`."""
    (folder / "videos").mkdir(parents=True)
    for number, uid in enumerate(ROUTES):
        cache = frames(uid, 0, 20 if number == 0 else 50, baseline="ext", fail={}, code_version="1")
        cache.save(folder / "caches" / "cache" / "ext" / f"{uid}.npz")
    (folder / "wanted.csv").write_text("uid,t_start,t_end\n" + "".join(f"{uid},0,5\n" for uid in ROUTES))
    config = folder / "pipeline.toml"
    config.write_text(
        'output_root = "out"\n[dms]\ncache_root = "caches"\nvideo_root = "videos"\nwanted_spans = "wanted.csv"\n'
        'settle_s = 0\n[dms.baselines.ext]\nextractor = "external"\nchannels = ["c0", "c1", "c2", "c3"]\n'
    )
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    defs = build_defs(load_settings(config))
    with dg.DagsterInstance.get() as instance:
        tick_sensor(instance, defs, "dms_partition_sync")
        tick_schedule(instance, defs, "dms_reconcile_schedule", NIGHT)
    return config


def test_the_check_page_of_an_alert_counts_passed_and_failed_partitions(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as aside:  # away from the event loop that the browser's library runs in this thread
        config = aside.submit(adopt, tmp_path / "world", tmp_path / "dagster_home", monkeypatch).result()
    with live(tmp_path, {"VIN_DMS_CONFIG": str(config)}) as ui:
        page.goto(f"{ui.url}/assets/dms/ext/route_cache?view=checks&checkDetail=span_coverage")
        page.get_by_text("span_coverage").first.wait_for(timeout=60_000)
        page.get_by_text("Partitions", exact=True).last.click()
        for counted in ("Passed (3)", "Failed (1)", "Missing (0)"):
            page.get_by_text(counted, exact=True).first.wait_for(timeout=60_000)
        page.screenshot(path=tmp_path / "check.png")
