"""The index of scanned tars: what each held when it was last opened, so that an unchanged one stays closed.

Belongs here: its file and its keys. Does not belong here: scanning, joins. A broken index is thrown away: it only saves
time.
"""

from __future__ import annotations

import json
from typing import Any

from resources.files import FileRoot, Identity
from vin_assets.vin_store.tars import TarScan

FILENAME = "tar_index.json"
_FORMAT = 1
_MAX_BYTES = 1 << 31


class TarIndex:
    """Scans by (path, size, mtime_ns, inode). Several stores and processes can share one folder."""

    def __init__(self, root: FileRoot | None) -> None:
        self._root = root
        self._known = _load(root) if root is not None else {}
        self._new: dict[str, list[Any]] = {}

    def get(self, path: str, identity: Identity) -> TarScan | None:
        """What the tar held when it had this identity, None when it was not scanned since."""
        entry = self._known.get(path)
        if entry is None or entry[:3] != [identity.size, identity.mtime_ns, identity.inode]:
            return None
        return TarScan(frozenset((scene, snippet) for scene, of in entry[4].items() for snippet in of), entry[3])

    def put(self, path: str, identity: Identity, scan: TarScan) -> None:
        """Remember a scan."""
        by_scene: dict[str, list[str]] = {}
        for scene, snippet in sorted(scan.pairs):
            by_scene.setdefault(scene, []).append(snippet)
        self._new[path] = [identity.size, identity.mtime_ns, identity.inode, scan.damage, by_scene]

    def save(self) -> None:
        """Write what is new, together with what others wrote meanwhile.

        Raises:
            OSError: the folder can't be written.
        """
        if self._root is None or not self._new:
            return
        with self._root.lock(FILENAME):
            entries = _load(self._root) | self._new
            data = json.dumps({"format": _FORMAT, "tars": entries}, separators=(",", ":"), sort_keys=True)
            with self._root.publish(FILENAME) as file:
                file.write(data.encode())


def _load(root: FileRoot) -> dict[str, list[Any]]:
    try:
        found = json.loads(root.read(FILENAME, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or found.get("format") != _FORMAT or not isinstance(found.get("tars"), dict):
        return {}
    return {path: entry for path, entry in found["tars"].items() if _usable(entry)}


def _usable(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 5
        and all(isinstance(number, int) for number in entry[:3])
        and (entry[3] is None or isinstance(entry[3], str))
        and isinstance(entry[4], dict)
        and all(isinstance(of, list) for of in entry[4].values())
    )
