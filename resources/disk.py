"""Room on the disk: work that writes stops before the last byte, and says so. Plain; no Dagster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

GIB = 2**30


class LowDiskError(OSError):
    """Less is free than has to stay free. The text names the folder, what is free, and the setting."""


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def require_free(folder: Path, gib: float, setting: str, free: Callable[[Path], int] = _free) -> None:
    """Return when at least `gib` GiB are free on the disk of `folder` (its nearest existing parent counts).

    Raises:
        LowDiskError: less is free.
    """
    place = folder
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    left = free(place)
    if left < gib * GIB:
        raise LowDiskError(
            f"only {left / GIB:.2f} GiB are free on the disk of {folder}, {gib:g} GiB have to stay free ({setting}):"
            " remove old results or files moved aside, or use a larger disk"
        )
