"""The persistent Dagster instance of `make run` and `make ui`: SQLite below the project, telemetry off."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import dagster as dg

from resources.config import PROJECT


def prepare_home() -> Path:
    """DAGSTER_HOME as an absolute folder that exists and has the embedded default's `dagster.yaml`."""
    home = Path(os.environ.get("DAGSTER_HOME") or PROJECT / ".run" / "dagster_home").absolute()
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(PROJECT / "deploy" / "embedded" / "dagster.yaml", home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def create_storage() -> None:
    """Make the instance's tables once, before several processes would do so at the same time and trip each other."""
    with dg.DagsterInstance.get() as instance:
        instance.get_runs(limit=1)
        instance.all_instigator_state()
        instance.event_log_storage.get_maximum_record_id()
