"""Where caches, videos, wanted spans and results lie: the DMS location's file-access resource.

Belongs here: the configured roots and what is read from them as a whole (the wanted-spans table). Does not belong
here: what a cache means (`cache_schema`, `validation`), reading and writing one (`cache_store`).
No Dagster: the definitions bind one of these as the resource `dms_files`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from dms_assets.cache_store import CacheStore
from dms_assets.wanted import Wanted, read_wanted
from resources import results
from resources.config import DmsSettings, Settings
from resources.files import FileRoot, Identity


@dataclass(frozen=True)
class DmsFiles:
    """The configured DMS roots."""

    settings: Settings
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _read: dict[Identity, Wanted] = field(default_factory=dict, repr=False, compare=False)

    @property
    def dms(self) -> DmsSettings:
        """The location's own settings."""
        return self.settings.dms

    @cached_property
    def caches(self) -> CacheStore:
        """The feature caches."""
        return CacheStore(FileRoot(self.dms.cache_root), self.dms.max_file_mib << 20)

    @cached_property
    def videos(self) -> FileRoot:
        """The driver videos."""
        return FileRoot(self.dms.video_root)

    @cached_property
    def boxes(self) -> FileRoot | None:
        """The pose caches with driver boxes, when a root is configured."""
        return FileRoot(self.dms.boxes_root) if self.dms.boxes_root else None

    @cached_property
    def output(self) -> FileRoot:
        """The root below which results are published."""
        return FileRoot(self.settings.output_root)

    def wanted(self) -> Wanted:
        """What is wanted now; the table is read again only when it changed.

        Raises:
            WantedTableError: the table can't be used.
            OSError: it is missing or can't be read.
        """
        folder, name = FileRoot(self.dms.wanted_spans.parent), self.dms.wanted_spans.name
        identity = folder.stat(name)
        with self._lock:
            if identity not in self._read:
                self._read.clear()
                self._read[identity] = read_wanted(folder, name, self.dms.window_s)
            return self._read[identity]

    def publish(
        self,
        asset: str,
        document: Mapping[str, Any],
        tables: Mapping[str, pd.DataFrame] | None = None,
        figures: Mapping[str, bytes] | None = None,
    ) -> results.Published:
        """Publish the result of `asset`, such as `facemesh/coverage`; see `resources.results.publish`."""
        return results.publish(self.output, f"dms/{asset}", document, tables, figures, self.settings.keep_results)

    def latest(self, asset: str) -> dict[str, Any] | None:
        """The document that `asset` published last; None when there is none."""
        return results.latest(self.output, f"dms/{asset}")
