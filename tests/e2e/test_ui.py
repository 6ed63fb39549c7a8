"""`make ui` with a real browser: both locations load, the lineage shows every asset, an asset page opens."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.e2e.live import ROOT, live

pytestmark = pytest.mark.e2e


def copy_of_the_project(target: Path) -> Path:
    for name in ("vin_assets", "dms_assets", "resources", "demo", "deploy"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "workspace.yaml", target)
    return target


def test_the_definitions_of_both_locations_are_valid(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "dagster")
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [program, "definitions", "validate", "-w", "workspace.yaml"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "All code locations passed validation" in done.stdout + done.stderr


@pytest.mark.parametrize("broken", ["vin_assets", "dms_assets"])
def test_a_syntax_error_in_one_location_leaves_the_other_loading(tmp_path: Path, broken: str) -> None:
    project = copy_of_the_project(tmp_path)
    with (project / broken / "assets.py").open("a") as file:
        file.write("\ndef broken(:\n")
    with live(tmp_path, project=project) as ui:
        found = ui.locations()
    (whole,) = {"vin_assets", "dms_assets"} - {broken}
    assert found == {whole: "RepositoryLocation", broken: "PythonError"}


def test_the_lineage_shows_the_assets_and_an_asset_page_opens(tmp_path: Path, page: Page) -> None:
    with live(tmp_path) as ui:
        assert set(ui.locations().values()) == {"RepositoryLocation"}
        groups = ",".join(f"global@global:{name}" for name in ("vin_raw", "vin_stores", "dms_inputs", "dms_facemesh"))
        page.goto(f"{ui.url}/asset-groups?expanded={groups}")
        page.get_by_text("vin_stores").first.wait_for(timeout=60_000)
        for name in ("raw_dataset", "offline_store", "store_stats", "store_coverage", "driver_video", "anchor_spans"):
            page.get_by_text(name).first.wait_for(timeout=30_000)
        for name in ("route_cache", "route_summary"):
            page.get_by_text(name).first.wait_for(timeout=30_000)
        page.screenshot(path=tmp_path / "lineage.png")
        page.goto(f"{ui.url}/assets/dms/facemesh/route_cache?view=overview")
        page.get_by_text("Only missing spans are extracted").first.wait_for(timeout=60_000)
        page.goto(f"{ui.url}/assets/dms/facemesh/route_cache?view=checks")
        page.get_by_text("span_coverage").first.wait_for(timeout=60_000)
        page.screenshot(path=tmp_path / "asset.png")
