"""The cache files below one root: listing, reading, judging, and changing them so that nobody's work is lost.

Belongs here: which file of which baseline and route, identities, locks, moving aside. Does not belong here: what is
inside a file (`cache_file`, `cache_schema`, `validation`), and whole-store tables (`sweep`).

Layout: `<root>/cache/<baseline>/<uid>.npz`. Every access goes through the root's `FileRoot`; names are checked before a
path is built from them.
"""

from __future__ import annotations

import calendar
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from dms_assets import validation
from dms_assets.cache_file import NEEDED, Header, Raw, read_header, read_raw
from dms_assets.cache_schema import RouteCache, WindowCache, from_raw, valid_from_raw
from dms_assets.contract import CacheInvalidError, CacheUnreadableError
from dms_assets.digest import content_digest
from dms_assets.npz import MAX_BYTES, Container, open_container, pack
from dms_assets.routes import check_baseline, check_uid, is_uid
from resources.files import Entry, FileRoot, Identity, remove_leftovers
from resources.findings import Finding, Severity

_ASIDE = re.compile(r"(.+)\.npz\.corrupt-(\d{8}T\d{6}Z)(?:-\d+)?")
_ATTEMPTS = 20


class ConcurrentWriterError(OSError):
    """Another program replaced a cache again and again while we merged into it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The caches of one baseline: identity by uid, sorted; and names that are none, as findings."""

    files: dict[str, Identity]
    strange: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A file read wholly: its identity while it was read, its cache (None when the container is unreadable) and what
    every rule says. The cache is not validated, and its arrays can't be written to.
    """

    identity: Identity
    cache: RouteCache | WindowCache | None
    findings: tuple[Finding, ...]


class CacheStore:
    """The caches below `root`. Making one touches nothing; reading creates nothing."""

    def __init__(self, root: FileRoot, max_bytes: int = MAX_BYTES) -> None:
        self.root, self.max_bytes = root, max_bytes

    def folder(self, baseline: str) -> str:
        """The folder of a baseline's caches, relative to the root. Raises RouteNameError for an unsafe name."""
        return f"cache/{check_baseline(baseline)}"

    def path(self, baseline: str, uid: str) -> str:
        """The file of a route's cache, relative to the root. Raises RouteNameError for an unsafe name."""
        return f"{self.folder(baseline)}/{check_uid(uid)}.npz"

    def _scan(self, folder: str, suffix: str = "") -> list[Entry]:
        try:
            return self.root.scan(folder, suffix)
        except FileNotFoundError:
            if not self.root.exists():  # a root that is not mounted is not an empty one
                raise
            return []

    def baselines(self) -> list[str]:
        """Baselines that have a folder, sorted.

        Raises:
            OSError: the root is missing or can't be read.
        """
        names = []
        for entry in self._scan("cache"):
            try:
                names.append(check_baseline(entry.name) if entry.is_dir else "")
            except CacheInvalidError:
                continue
        return [name for name in names if name]

    def listing(self, baseline: str) -> Listing:
        """Every cache of a baseline with its identity, from one scan of the folder; no file is opened.

        Raises:
            OSError: the root is missing, or the folder can't be read.
        """
        files: dict[str, Identity] = {}
        strange = []
        for entry in self._scan(self.folder(baseline), ".npz"):
            stem = entry.name[: -len(".npz")]
            if is_uid(stem) and not entry.is_dir:
                files[stem] = entry.identity
            else:
                strange.append(
                    Finding(
                        "uid_not_canonical",
                        Severity.WARN,
                        f"{self.folder(baseline)}/{entry.name[:200]}",
                        "a name that no route has; the file is left alone" if not entry.is_dir else "a folder",
                        "rename it to <dongle>_<id>.npz, and the uid inside with it",
                    )
                )
        return Listing(files, tuple(strange))

    def uids(self, baseline: str) -> list[str]:
        """The routes of which a baseline has a cache, sorted. Raises what `listing` raises."""
        return list(self.listing(baseline).files)

    def identity(self, baseline: str, uid: str) -> Identity | None:
        """The identity of a cache's file, None when there is none. Raises OSError for any other reason."""
        try:
            return self.root.stat(self.path(baseline, uid))
        except FileNotFoundError:
            return None

    def _raw(self, box: Container, baseline: str, uid: str, *, complete: bool = False) -> Raw:
        return read_raw(box, where=self.path(baseline, uid), stem=uid, baseline=baseline, complete=complete)

    def header(self, baseline: str, uid: str) -> Header:
        """uid, kind, row count, spans and meta of a cache, without inflating its features.

        Raises:
            CacheUnreadableError: the container is damaged.
            CacheInvalidError: kind, uid, spans or meta break the contract.
            OSError: the file is missing or can't be read.
        """
        path = self.path(baseline, uid)
        fd = self.root.open_fd(path)  # a file object would cost as much as the reading
        try:
            return read_header(open_container(fd, path, self.max_bytes, needed=NEEDED))
        finally:
            os.close(fd)

    def load(self, baseline: str, uid: str) -> RouteCache | WindowCache:
        """A route's cache, held to the invariants of the contract's tables.

        Raises:
            CacheUnreadableError: the container is damaged.
            CacheInvalidError: an invariant is broken.
            OSError: the file is missing or can't be read.
        """
        return self._load(baseline, uid)[0]

    def _load(self, baseline: str, uid: str) -> tuple[RouteCache | WindowCache, Identity]:
        path = self.path(baseline, uid)
        with self.root.open(path) as file:
            identity = Identity.of(os.fstat(file.fileno()))
            box = open_container(file.fileno(), path, self.max_bytes, whole=True, needed=NEEDED)
            return valid_from_raw(self._raw(box, baseline, uid)), identity

    def judge(self, baseline: str, uid: str) -> Judgement:
        """Read a cache's file wholly and ask every rule.

        Raises:
            OSError: the file is missing or can't be read: that says nothing of its content.
        """
        path = self.path(baseline, uid)
        with self.root.open(path) as file:
            identity = Identity.of(os.fstat(file.fileno()))
            try:
                box = open_container(file.fileno(), path, self.max_bytes, whole=True, needed=NEEDED)
                raw = self._raw(box, baseline, uid, complete=True)
            except CacheUnreadableError as error:
                return Judgement(identity, None, (validation.unreadable(path, error),))
        cache = from_raw(raw, writable=False)
        return Judgement(identity, cache, tuple(validation.findings(cache, raw.facts)))

    def findings(self, baseline: str, uid: str) -> list[Finding]:
        """Everything that is wrong with a cache's file. Raises what `judge` raises."""
        return list(self.judge(baseline, uid).findings)

    def digest(self, baseline: str, uid: str) -> str:
        """The data version of a cache. Raises what `load` raises."""
        return content_digest(self.load(baseline, uid))

    def update(
        self,
        baseline: str,
        uid: str,
        merge: Callable[[RouteCache | WindowCache | None], RouteCache | WindowCache],
        *,
        timeout: float = -1,
    ) -> RouteCache | WindowCache:
        """Replace a route's cache by what `merge` makes of the stored one (None: there is none), losing nobody's rows.

        Our writers wait for each other by a lock. Another program's replacement in between is noticed, by the file's
        identity just before it is replaced, and `merge` is asked again with the new file; it must not have effects.

        Returns:
            The cache that was written.

        Raises:
            CacheInvalidError: the result is not this route's and baseline's, or breaks an invariant; or the stored
                file does.
            CacheUnreadableError: the stored file's container is damaged.
            ConcurrentWriterError: another program replaced the file again and again.
            filelock.Timeout: the lock was not free within `timeout` seconds; a negative one waits.
            OSError: the file can't be read or written; the old one is untouched.
        """
        path = self.path(baseline, uid)
        with self.root.lock(path, timeout):
            for _ in range(_ATTEMPTS):
                try:
                    stored, identity = self._load(baseline, uid)
                except FileNotFoundError:
                    stored, identity = None, None
                merged = merge(stored).validate()
                if merged.uid != uid:
                    raise CacheInvalidError("uid", f"{path}: would be written with the uid {merged.uid!r}")
                if merged.meta["baseline"] != baseline:
                    found = merged.meta["baseline"]
                    raise CacheInvalidError("meta_keys", f"{path}: would be written with the baseline {found!r:.60}")
                if self._replace(baseline, uid, pack(merged.arrays()), identity):
                    return merged
        raise ConcurrentWriterError(f"{path}: another program replaced it {_ATTEMPTS} times while we merged into it")

    def _replace(self, baseline: str, uid: str, data: bytes, expected: Identity | None) -> bool:
        try:
            with self.root.publish(self.path(baseline, uid)) as file:
                file.write(data)
                # On the disk first, so that next to no time lies between looking and replacing.
                file.flush()
                os.fsync(file.fileno())
                if self.identity(baseline, uid) != expected:
                    raise _ReplacedError
        except _ReplacedError:
            return False
        return True

    def save(self, baseline: str, cache: RouteCache | WindowCache) -> RouteCache | WindowCache:
        """Replace a route's cache wholly. Raises what `update` raises, of the stored file only OSError."""
        path = self.path(baseline, cache.uid)
        if cache.validate().meta["baseline"] != baseline:
            found = cache.meta["baseline"]
            raise CacheInvalidError("meta_keys", f"{path}: would be written with the baseline {found!r:.60}")
        with self.root.lock(path), self.root.publish(path) as file:
            file.write(pack(cache.arrays()))
        return cache

    def move_aside(self, baseline: str, uid: str, expected: Identity | None = None) -> str | None:
        """Rename a file that can't be used to `<name>.corrupt-<UTC time>`; the new path, relative to the root.

        None when the file is gone, or is no longer the `expected` one that was judged.

        Raises:
            OSError: it can't be renamed.
        """
        path = self.path(baseline, uid)
        with self.root.lock(path):
            identity = self.identity(baseline, uid)
            if identity is None or expected not in (None, identity):
                return None
            stamp = f"{path}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            new, number = stamp, 1
            while self.root.exists(new):
                new, number = f"{stamp}-{number}", number + 1
            self.root.move(path, new)
            return new

    def aside(self, baseline: str) -> dict[str, Entry]:
        """Files that were moved aside, by their names. Raises what `listing` raises."""
        return {entry.name: entry for entry in self._scan(self.folder(baseline)) if _ASIDE.fullmatch(entry.name)}

    def clean(self, baseline: str, keep_aside_s: float) -> list[str]:
        """Remove what killed writers left, and files that were moved aside longer ago than `keep_aside_s` seconds.

        Returns:
            The names removed, sorted.

        Raises:
            OSError: the folder can't be read, or a file can't be removed.
        """
        folder = self.folder(baseline)
        if not self.root.exists(folder):
            return []
        removed = remove_leftovers(self.root.resolve(folder))
        for name in self.aside(baseline):
            match = _ASIDE.fullmatch(name)
            moved = time.strptime(match[2], "%Y%m%dT%H%M%SZ") if match else time.gmtime()
            if time.time() - calendar.timegm(moved) > keep_aside_s:
                self.root.remove(f"{folder}/{name}")
                removed.append(name)
        return sorted(removed)


class _ReplacedError(Exception):
    """Leaves `publish` without publishing."""
