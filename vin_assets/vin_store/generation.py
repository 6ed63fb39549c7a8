"""The generation of a store: what tells it from any replacement, taken from metadata only.

Belongs here: which files count, their identities, the digest, and comparing two generations. Does not belong here:
reading samples.

A generation holds identity (device, inode, size, mtime, ctime) and symlink target of the store directory, the manifest,
the index, the split files, every shard directory, its group and array metadata and its record files. Payload chunks are
left out: a chunk rewritten in place is outside what a generation can see, and is the integrity check's part.

Device numbers may change at a reboot: they are compared within one process and left out of the digest. The change time
(ctime) can't be set by a program, so a file rewritten with the same size and modification time is still told apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from dataclasses import dataclass, field

from resources.files import FileRoot, Identity, PathRefusedError
from vin_assets.vin_store.arrays import ArrayError, block_path
from vin_assets.vin_store.format import ZARR_ARRAY, Manifest
from vin_assets.vin_store.store import (
    ManifestUnreadableError,
    StoreReplacedError,
    UnsupportedStoreVersionError,
    VinOfflineStoreConfig,
    read_manifest,
)

_DIGEST_TAG = "vin-offline-dataset-stats-request/1"
_PROCESS = uuid.uuid4().hex
# A kernel stamps files with a clock that ticks every few milliseconds: what changed within the last tick could change
# again unseen. Capturing waits until every stamp is older than this.
_CLOCK_TICK_NS = 12_000_000


@dataclass(frozen=True, slots=True)
class VinOfflineStoreSelection:
    """Which store: its resolved root directory and the names within it."""

    store_dir: str
    manifest_filename: str
    sample_index_filename: str
    shards_dirname: str
    splits_dirname: str


@dataclass(frozen=True, slots=True, order=True)
class GenerationEntry:
    """One path: its state (`there`, `absent`, `refused` or an error's name), symlink target, and identity."""

    path: str
    state: str
    target: str | None = None
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    device: int = 0

    def without_device(self) -> GenerationEntry:
        """The part that is the same after a reboot."""
        return GenerationEntry(self.path, self.state, self.target, self.inode, self.size, self.mtime_ns, self.ctime_ns)


@dataclass(frozen=True, slots=True)
class VinOfflineStoreGeneration:
    """One generation of one store.

    `store_dir` is the resolved root, `opened_as` the path that was configured. Entries are sorted by path.
    """

    store_dir: str
    opened_as: str
    entries: tuple[GenerationEntry, ...]
    captured_in: str = field(default=_PROCESS, compare=False, repr=False)

    def digest(self) -> str:
        """A sha256 that is the same on every call, process and boot for the same generation."""
        lines = [[e.path, e.state, e.target, e.inode, e.size, e.mtime_ns, e.ctime_ns] for e in sorted(self.entries)]
        return hashlib.sha256(json.dumps([self.store_dir, self.opened_as, lines]).encode()).hexdigest()

    def differences(self, other: VinOfflineStoreGeneration) -> list[str]:
        """The paths that tell this generation from `other`, sorted; the store directory is `.`."""
        same_process = self.captured_in == other.captured_in
        mine, theirs = (
            {e.path: e if same_process else e.without_device() for e in side.entries} for side in (self, other)
        )
        changed = {path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path)}
        if (self.store_dir, self.opened_as) != (other.store_dir, other.opened_as):
            changed.add(".")
        return sorted(changed)


@dataclass(frozen=True, slots=True)
class VinOfflineDatasetStatsRequest:
    """Statistics asked of one generation of one store. `digest()` is the key under which results are retained."""

    selection: VinOfflineStoreSelection
    generation: VinOfflineStoreGeneration
    max_samples: int | None = 512

    def __post_init__(self) -> None:
        if self.selection.store_dir != self.generation.store_dir:
            raise ValueError(
                f"the selection is of {self.selection.store_dir}, the generation of {self.generation.store_dir}: "
                "capture both together"
            )
        needed = {self.selection.manifest_filename, self.selection.sample_index_filename, "."}
        if missing := needed - {entry.path for entry in self.generation.entries}:
            raise ValueError(f"the generation says nothing of {', '.join(sorted(missing))}: capture both together")

    def digest(self) -> str:
        """A sha256 over a version tag, the selection, the generation and `max_samples`."""
        names = self.selection
        parts = [
            _DIGEST_TAG,
            [names.store_dir, names.manifest_filename, names.sample_index_filename],
            [names.shards_dirname, names.splits_dirname],
            self.generation.digest(),
            self.max_samples,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def config(self) -> VinOfflineStoreConfig:
        """The store as it was configured when the request was captured."""
        names = self.selection
        return VinOfflineStoreConfig(
            self.generation.opened_as,  # type: ignore[arg-type]  # made a Path there
            names.manifest_filename,
            names.sample_index_filename,
            names.shards_dirname,
            names.splits_dirname,
        )


def selection_of(config: VinOfflineStoreConfig) -> VinOfflineStoreSelection:
    """The canonical selection of `config`."""
    return VinOfflineStoreSelection(
        os.path.realpath(config.store_dir),
        config.manifest_filename,
        config.sample_index_filename,
        config.shards_dirname,
        config.splits_dirname,
    )


def _entry(root: FileRoot, path: str) -> GenerationEntry:
    try:
        target = root.link_target(path) if path != "." else None
        identity = root.stat("" if path == "." else path)
    except PathRefusedError:
        return GenerationEntry(path, "refused")
    except (FileNotFoundError, NotADirectoryError):
        return GenerationEntry(path, "absent")
    except OSError as error:
        return GenerationEntry(path, error.strerror or type(error).__name__)
    return _known(path, target, identity)


def _known(path: str, target: str | None, identity: Identity) -> GenerationEntry:
    return GenerationEntry(
        path, "there", target, identity.inode, identity.size, identity.mtime_ns, identity.ctime_ns, identity.device
    )


def _paths(root: FileRoot, config: VinOfflineStoreConfig) -> set[str]:
    paths = {config.manifest_filename, config.sample_index_filename, config.shards_dirname, config.splits_dirname}
    with contextlib.suppress(OSError, PathRefusedError):  # the folder's own entry says that it is missing or refused
        paths |= {f"{config.splits_dirname}/{entry.name}" for entry in root.scan(config.splits_dirname, ".npy")}
    try:
        manifest = read_manifest(root, config)
    except (ManifestUnreadableError, UnsupportedStoreVersionError):
        return paths  # a broken manifest has a generation too; whoever reads the store says what is wrong
    return paths | _shard_paths(manifest)


def _shard_paths(manifest: Manifest) -> set[str]:
    paths: set[str] = set()
    for shard in manifest.shards:
        paths |= {shard.relative_dir, f"{shard.relative_dir}/zarr.json"}
        for block in shard.blocks.values():
            try:
                if block.kind == ZARR_ARRAY:
                    paths.add(f"{block_path(shard, block)}/zarr.json")
                else:
                    paths |= {block_path(shard, block, part) for part in (0, 1)}
            except ArrayError:
                continue
    return paths


def _capture_once(config: VinOfflineStoreConfig) -> VinOfflineStoreGeneration:
    opened_as = os.path.abspath(config.store_dir)
    try:
        target = os.readlink(opened_as)
    except OSError:
        target = None
    entries = []
    try:
        with FileRoot(opened_as).pinned() as root:
            store_dir = str(root.resolve(""))
            entries = [_entry(root, path) for path in _paths(root, config)]
            entries.append(_known(".", target, root.stat()))
    except OSError as error:
        store_dir = os.path.realpath(opened_as)
        entries.append(GenerationEntry(".", error.strerror or type(error).__name__, target))
    return VinOfflineStoreGeneration(store_dir, opened_as, tuple(sorted(entries, key=lambda entry: entry.path)))


def capture(config: VinOfflineStoreConfig) -> VinOfflineStoreGeneration:
    """The generation of the store that now lies at the configured path. Opens the manifest, and nothing else.

    A store that is missing or broken has a generation too.
    """
    while True:
        generation = _capture_once(config)
        newest = max((entry.ctime_ns for entry in generation.entries), default=0)
        age = time.time_ns() - newest
        if not 0 <= age < _CLOCK_TICK_NS:
            return generation
        time.sleep((_CLOCK_TICK_NS - age) / 1e9)


def require_same(expected: VinOfflineStoreGeneration, observed: VinOfflineStoreGeneration, when: str) -> None:
    """Raise unless the two generations are one.

    Raises:
        StoreReplacedError: names the first paths that differ, with what was expected and observed of them.
    """
    changed = expected.differences(observed)
    if changed:
        raise StoreReplacedError(expected.opened_as, _describe(expected, changed), _describe(observed, changed), when)


def _describe(generation: VinOfflineStoreGeneration, changed: list[str]) -> str:
    known = {entry.path: entry for entry in generation.entries}
    parts = []
    for path in changed[:3]:
        entry = known.get(path)
        if entry is None or entry.state != "there":
            parts.append(f"{path} {entry.state if entry else 'absent'}")
        else:
            link = f" -> {entry.target}" if entry.target else ""
            parts.append(f"{path}{link} (inode {entry.inode}, {entry.size} bytes, changed {entry.ctime_ns} ns)")
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"generation {generation.digest()[:12]} at {generation.store_dir}: {', '.join(parts)}{more}"


def require_store(generation: VinOfflineStoreGeneration) -> None:
    """Raise unless there is a directory at all.

    Raises:
        ManifestUnreadableError: there is none.
    """
    entry = next(entry for entry in generation.entries if entry.path == ".")
    if entry.state != "there":
        raise ManifestUnreadableError(generation.opened_as, entry.state, "Check the configured path.")
