"""The VIN half of `make run`: partitions, what Dagster is told of the stores, and the steps that are needed."""

from __future__ import annotations

import dagster as dg

from demo.steps import Step, whole_steps
from resources import history
from resources.config import Settings
from resources.configuration_check import NAME
from resources.events import report
from vin_assets import automation, changes, outcomes
from vin_assets.files import VinFiles
from vin_assets.partitions import STORES
from vin_assets.sync import changed_stores


def sync(instance: dg.DagsterInstance, settings: Settings) -> int:
    """Register new stores and report changed ones; the number of events written."""
    files = VinFiles(settings)
    known = set(instance.get_dynamic_partitions(STORES.name or ""))
    instance.add_dynamic_partitions(STORES.name or "", [name for name in files.stores() if name not in known])
    return report(instance, changed_stores(files, history.data_versions(instance, outcomes.OFFLINE_STORE)))


def steps(instance: dg.DagsterInstance, settings: Settings) -> list[Step]:
    """The jobs that have to run, and over which stores."""
    files = VinFiles(settings)
    done = instance.get_materialized_partitions(outcomes.STORE_STATS)
    done &= instance.get_materialized_partitions(outcomes.STORE_COVERAGE)
    needed = changes.reasons(files, done)
    found = []
    if needed:
        why = ", ".join(sorted({reason for reasons in needed.values() for reason in reasons}))
        found = [Step("vin_store_checks", list(needed), why), Step("vin_store_results", list(needed), why)]
    whole = [dg.AssetCheckKey(outcomes.OFFLINE_STORE, name) for name in (automation.BELIEF, NAME)]
    return found + whole_steps(instance, found, whole, ["vin_belief", "vin_configuration", "vin_report"])
