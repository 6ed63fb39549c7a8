"""What Dagster is told of the stores on the disk: their partitions, and a new data version when one changed.

Belongs here: the comparison, and events outside runs. Does not belong here: when it happens (`automation`). Absence
never deletes a partition: a root that can't be read raises, and a store that vanished keeps its history.
"""

from __future__ import annotations

from collections.abc import Mapping

from resources.events import Materialised
from vin_assets.changes import is_readable, store_version
from vin_assets.files import VinFiles
from vin_assets.outcomes import OFFLINE_STORE


def changed_stores(files: VinFiles, known: Mapping[str, str]) -> list[Materialised]:
    """A `Materialised` of `vin/offline_store` for each store whose data version differs from the `known` one."""
    found = []
    for store, config in files.stores().items():
        version = store_version(files, store)
        if known.get(store) != version:
            told = {
                "path": config.store_dir,
                "status": "readable" if is_readable(version) else "unreadable",
            }
            found.append(Materialised(OFFLINE_STORE, store, version, told))
    return found
