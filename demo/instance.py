"""The persistent Dagster instance of `make run` and `make ui`: SQLite below the project, telemetry off."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from resources.config import PROJECT


def prepare_home() -> Path:
    """DAGSTER_HOME as an absolute folder that exists and has the embedded default's `dagster.yaml`."""
    home = Path(os.environ.get("DAGSTER_HOME") or PROJECT / ".run" / "dagster_home").absolute()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(PROJECT / "deploy" / "embedded" / "dagster.yaml", home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)
    return home
