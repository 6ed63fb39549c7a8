"""Where the VIN stores, their raw datasets and their results lie: the location's file-access resource.

Belongs here: names of stores, roots, and where results go. Does not belong here: what a store means (`vin_store`).
No Dagster: the definitions bind one of these as the resource `vin_files`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from resources import results
from resources.config import Settings, VinSettings
from resources.files import FileRoot
from resources.partitions import is_partition_key
from vin_assets.published import load_coverage, load_stats
from vin_assets.vin_store.results import VinOfflineCoverageStats, VinOfflineDatasetStats
from vin_assets.vin_store.store import VinOfflineStoreConfig


class StoreNameError(ValueError):
    """Two stores with one name, or a name that no store has."""


@dataclass(frozen=True)
class VinFiles:
    """The configured VIN roots."""

    settings: Settings

    @property
    def vin(self) -> VinSettings:
        """The location's own settings."""
        return self.settings.vin

    @cached_property
    def output(self) -> FileRoot:
        """The root below which results are published."""
        return FileRoot(self.settings.output_root)

    def stores(self) -> dict[str, VinOfflineStoreConfig]:
        """Every store by name, sorted: the aliases, and each folder of a store root that no alias names.

        Raises:
            OSError: a root is missing or can't be read; never an empty answer for that.
            StoreNameError: two folders have one name, both are named; or a name can't be a partition key.
        """
        found: dict[str, Path] = dict(self.vin.aliases)
        aliased = {path.resolve() for path in self.vin.aliases.values()}
        for folder in self.vin.store_roots:
            for entry in FileRoot(folder).scan():
                path = folder / entry.name
                if not entry.is_dir or path.resolve() in aliased:
                    continue
                if entry.name in found:
                    raise StoreNameError(
                        f"two stores are named {entry.name!r}: {found[entry.name]} and {path};"
                        f" give one of them another name under [vin.aliases]"
                    )
                found[entry.name] = path
        if bad := [name for name in found if not is_partition_key(name)]:
            raise StoreNameError(
                f"{bad[0]!r} ({found[bad[0]]}) can't be a partition: letters, digits, '.', '_' and '-' only;"
                f" give it another name under [vin.aliases]"
            )
        return {name: self._config(path) for name, path in sorted(found.items())}

    def store(self, name: str) -> VinOfflineStoreConfig:
        """The store of that name.

        Raises:
            StoreNameError: there is none (it was moved or deleted, or the partition is an old one).
            OSError: a root can't be read.
        """
        try:
            return self.stores()[name]
        except KeyError:
            roots = ", ".join(map(str, self.vin.store_roots))
            raise StoreNameError(f"no store {name!r} below {roots}; put it back, or retire the partition") from None

    def _config(self, path: Path) -> VinOfflineStoreConfig:
        return VinOfflineStoreConfig(store_dir=path, raw_data_root=self.vin.raw_data_root)

    def publish(
        self,
        asset: str,
        store: str,
        document: Mapping[str, Any],
        tables: Mapping[str, pd.DataFrame],
        figures: Mapping[str, bytes],
    ) -> results.Published:
        """Publish the result of `asset` for `store`; see `resources.results.publish`."""
        return results.publish(
            self.output, f"vin/{asset}/{store}", document, tables, figures, self.settings.keep_results
        )

    def latest(self, asset: str, store: str) -> dict[str, Any] | None:
        """The document that `asset` published last for `store`; None when there is none."""
        return results.latest(self.output, f"vin/{asset}/{store}")

    def latest_stats(self, store: str) -> VinOfflineDatasetStats | None:
        """The statistics published last for `store`; None when there are none, or of an earlier form."""
        return self._stats(store, "latest")

    def previous_stats(self, store: str, request_digest: str) -> VinOfflineDatasetStats | None:
        """The newest published statistics of `store` that are of another request than `request_digest`."""
        path = f"vin/store_stats/{store}"
        try:
            versions = [entry for entry in self.output.scan(path) if entry.is_dir and entry.name != "latest"]
        except FileNotFoundError:
            return None
        for entry in sorted(versions, key=lambda entry: entry.identity.mtime_ns, reverse=True):
            document = json.loads(self.output.read(f"{path}/{entry.name}/{results.DOCUMENT}"))
            if document.get("request_digest") != request_digest:
                return self._stats(store, entry.name)
        return None

    def _stats(self, store: str, version: str) -> VinOfflineDatasetStats | None:
        try:
            return load_stats(self.output.path / "vin" / "store_stats" / store / version)
        except (OSError, ValueError, KeyError):
            return None

    def previous_coverage(self, store: str) -> VinOfflineCoverageStats | None:
        """The coverage published last for `store`; None when there is none, or of an earlier form."""
        try:
            document = self.latest("store_coverage", store)
            return None if document is None else load_coverage(document)
        except (OSError, ValueError):
            return None

    def tar_index(self) -> FileRoot:
        """Where the pairs of scanned raw tars are kept, so that only changed tars are opened."""
        return FileRoot(self.settings.output_root / "vin" / "tar_index")
