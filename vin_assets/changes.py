"""Which stores have to be computed, and why: what the disk holds now against what was published last.

Belongs here: versions of a store and of its raw tars, from metadata alone, and the comparison. Nothing is computed or
written. The nightly schedule, the partition sync and `make run` all ask here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from vin_assets.files import StoreNameError, VinFiles
from vin_assets.vin_store.diagnostics import capture_vin_offline_dataset_stats_request
from vin_assets.vin_store.raw_paths import find_tars
from vin_assets.vin_store.store import StoreUnreadableError, VinStoreError, open_store

_UNREADABLE = "unreadable-"


def store_version(files: VinFiles, store: str) -> str:
    """The digest of a store's generation; for an unreadable store one of the reason, so that its repair is news."""
    try:
        request = capture_vin_offline_dataset_stats_request(files.store(store), max_samples=files.vin.max_samples)
    except (VinStoreError, StoreNameError) as error:
        return f"{_UNREADABLE}{hashlib.sha256(str(error).encode()).hexdigest()[:16]}"
    return request.digest()


def is_readable(version: str) -> bool:
    """Whether a `store_version` is that of a store that could be read."""
    return not version.startswith(_UNREADABLE)


def raw_version(files: VinFiles, store: str) -> str:
    """A digest of the raw tars that belong to a store: path, size, modification time and inode of each.

    Raises:
        VinStoreError: the store's manifest can't be read.
        StoreNameError: there is no such store.
    """
    digest = hashlib.sha256()
    with open_store(files.store(store)) as opened:
        found = find_tars(opened.manifest, opened.config.raw_data_root, files.vin.raw_roots, trust_manifest_paths=False)
    for tar in found.tars:
        one = tar.identity
        digest.update(f"{tar.path}\0{one.size}\0{one.mtime_ns}\0{one.inode}\n".encode())
    digest.update("\n".join(found.refused).encode())
    return digest.hexdigest()


def reasons(files: VinFiles, materialised: Collection[str]) -> dict[str, list[str]]:
    """Store -> why it has to be computed; stores without a reason are left out.

    Args:
        files: the location's files.
        materialised: stores whose statistics and coverage Dagster knows.

    Raises:
        OSError, StoreNameError: a root can't be read, or names collide.
    """
    found: dict[str, list[str]] = {}
    for store in files.stores():
        why = []
        stats, coverage = files.latest("store_stats", store), files.latest("store_coverage", store)
        if stats is None or coverage is None or store not in materialised:
            why.append("not computed yet")
        if stats is not None and stats["request_digest"] != store_version(files, store):
            why.append("the store changed")
        try:
            if coverage is not None and coverage["raw_version"] != raw_version(files, store):
                why.append("its raw tars changed")
        except StoreUnreadableError:
            pass  # `store_version` has said so
        if why:
            found[store] = why
    return found
