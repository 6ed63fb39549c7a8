"""A store on disk: its configuration, its errors, and its opened manifest and index.

Belongs here: where the files of a store lie and how they are opened. Does not belong here: what arrays hold
(`arrays`), statistics, rules.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from resources.files import FileRoot, PathRefusedError
from vin_assets.vin_store.format import (
    SUPPORTED_VERSIONS,
    BadLine,
    FormatError,
    IndexRow,
    Manifest,
    ShardSpec,
    manifest_version,
    parse_index,
    parse_manifest,
)

# Far beyond any real store: 10 million samples take 2 GB of index, 10,000 shards 100 MB of manifest.
MAX_MANIFEST_BYTES = 1 << 28
MAX_INDEX_BYTES = 1 << 32


def remedy_for(reason: str, otherwise: str) -> str:
    """What to do about a file that could not be read: `otherwise`, unless `reason` says that access is lacking."""
    denied = any(os.strerror(code) in reason for code in (errno.EACCES, errno.EPERM))
    return "Give the pipeline's user access to it." if denied else otherwise


class VinStoreError(Exception):
    """Anything that is wrong with a store as a whole."""


class StoreUnreadableError(VinStoreError):
    """The manifest or the index of a store can't be read; `path` is the file, `remedy` what to do."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        remedy = remedy_for(reason, remedy)
        super().__init__(f"{path}: {reason}. {remedy}")
        self.path, self.reason, self.remedy = path, reason, remedy


class ManifestUnreadableError(StoreUnreadableError):
    """`manifest.json`, or the store directory itself."""


class IndexUnreadableError(StoreUnreadableError):
    """`sample_index.jsonl`."""


class UnsupportedStoreVersionError(VinStoreError):
    """A store of a version that is not read; `.found` and `.supported` say which."""

    def __init__(self, path: str, found: int) -> None:
        self.path, self.found, self.supported = path, found, SUPPORTED_VERSIONS
        names = ", ".join(map(str, SUPPORTED_VERSIONS))
        super().__init__(
            f"{path}: store version {found} is not supported; supported are {names}. "
            "Write the store again in one of these, or update this program."
        )


class StoreReplacedError(VinStoreError):
    """A store is not the one that was captured; `.expected` and `.observed` are the two states in short."""

    def __init__(self, store_dir: str, expected: str, observed: str, when: str) -> None:
        super().__init__(
            f"{store_dir} was replaced {when}: expected {expected}, observed {observed}. Capture it again."
        )
        self.store_dir, self.expected, self.observed = store_dir, expected, observed


@dataclass(frozen=True, slots=True)
class VinOfflineStoreConfig:
    """Where a store lies. Making one touches no file.

    `raw_data_root` replaces the raw data root that the manifest names (a path of the machine that built the store).
    """

    store_dir: Path
    manifest_filename: str = "manifest.json"
    sample_index_filename: str = "sample_index.jsonl"
    shards_dirname: str = "shards"
    splits_dirname: str = "splits"
    raw_data_root: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "store_dir", Path(self.store_dir).expanduser())
        if self.raw_data_root is not None:
            object.__setattr__(self, "raw_data_root", Path(self.raw_data_root).expanduser())

    @property
    def manifest_path(self) -> Path:
        """The manifest."""
        return self.store_dir / self.manifest_filename

    @property
    def sample_index_path(self) -> Path:
        """The index."""
        return self.store_dir / self.sample_index_filename

    @property
    def shards_dir(self) -> Path:
        """The folder of the shards."""
        return self.store_dir / self.shards_dirname

    @property
    def splits_dir(self) -> Path:
        """The folder of the split files."""
        return self.store_dir / self.splits_dirname


@dataclass(frozen=True, slots=True)
class Store:
    """An opened store: its pinned root, manifest and index.

    `rows` are the usable lines of the index in file order, `lines` their line numbers, `bad_lines` the others.
    """

    config: VinOfflineStoreConfig
    root: FileRoot
    manifest: Manifest
    rows: tuple[IndexRow, ...]
    lines: tuple[int, ...]
    bad_lines: tuple[BadLine, ...]
    shards: dict[str, ShardSpec]

    @property
    def real_path(self) -> str:
        """The store directory with every symlink resolved, as POSIX text."""
        return self.root.resolve("").as_posix()

    def shard_of(self, row: IndexRow) -> ShardSpec | None:
        """The shard that holds `row`, None when there is none or when it has no such row."""
        shard = self.shards.get(row.shard_id)
        return shard if shard is not None and 0 <= row.row < shard.num_rows else None


def read_manifest(root: FileRoot, config: VinOfflineStoreConfig) -> Manifest:
    """The manifest below `root`.

    Raises:
        ManifestUnreadableError: it is missing or broken; says which field.
        UnsupportedStoreVersionError: of a version that is not read.
    """
    path = config.manifest_path.as_posix()
    try:
        found, version = manifest_version(root.read(config.manifest_filename, MAX_MANIFEST_BYTES))
        if version not in SUPPORTED_VERSIONS:
            raise UnsupportedStoreVersionError(path, version)
        return parse_manifest(found)
    except OSError as error:
        raise ManifestUnreadableError(
            path, error.strerror or str(error), "Check that this is a store's directory."
        ) from error
    except (FormatError, PathRefusedError) as error:
        raise ManifestUnreadableError(path, str(error), "Write the store again or restore the file.") from error


def read_index(root: FileRoot, config: VinOfflineStoreConfig) -> tuple[list[IndexRow], list[int], list[BadLine]]:
    """The index below `root`, as `parse_index` gives it. An empty file is an empty store.

    Raises:
        IndexUnreadableError: it is missing, can't be read, or has lines of which none can be used.
    """
    path = config.sample_index_path.as_posix()
    try:
        rows, lines, bad = parse_index(root.read(config.sample_index_filename, MAX_INDEX_BYTES))
    except OSError as error:
        raise IndexUnreadableError(
            path, error.strerror or str(error), "Restore the file beside the manifest."
        ) from error
    except PathRefusedError as error:
        raise IndexUnreadableError(path, str(error), "Put the file itself there, not a link.") from error
    if bad and not rows:
        reason = f"no line can be used; line {bad[0].number}: {bad[0].reason}"
        raise IndexUnreadableError(path, reason, "Restore the file beside the manifest.")
    return rows, lines, bad


@contextlib.contextmanager
def pinned_root(config: VinOfflineStoreConfig) -> Iterator[FileRoot]:
    """The store's directory held open.

    Raises:
        ManifestUnreadableError: there is no such directory.
    """
    with contextlib.ExitStack() as stack:
        try:
            root = stack.enter_context(FileRoot(config.store_dir).pinned())
        except OSError as error:
            path = os.fspath(config.store_dir)
            raise ManifestUnreadableError(path, error.strerror or str(error), "Check the configured path.") from error
        yield root


@contextlib.contextmanager
def open_store(config: VinOfflineStoreConfig) -> Iterator[Store]:
    """Yield the store of `config`, its directory held open; nothing is written.

    Raises:
        StoreUnreadableError: the directory, manifest or index is missing or broken.
        UnsupportedStoreVersionError: of a version that is not read.
    """
    with pinned_root(config) as root:
        manifest = read_manifest(root, config)
        rows, lines, bad = read_index(root, config)
        yield Store(config, root, manifest, tuple(rows), tuple(lines), tuple(bad), manifest.shards_by_id())
