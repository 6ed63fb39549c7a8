"""File access below one configured root: containment, identities, atomic publishing, locks.

Belongs here: every list, stat, open, replace and path check of a configured root, and nothing that knows what a file
means. Does not belong here: formats, Dagster, configuration. A remote root would implement `FileRoot`'s methods.

Containment is decided by the kernel (`openat2` with `RESOLVE_BENEATH`, Linux 5.6) at the moment of opening, so that a
symlink turned between a check and an open can't lead out of the root. Where the kernel lacks it, or a symlink is
absolute, the resolved path is compared with the root before opening.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import re
import shutil
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from filelock import FileLock

from resources.atomic import fsync_folder, remove_leftovers, temporary_beside, write_atomically

__all__ = ["Entry", "FileRoot", "Identity", "PathRefusedError", "remove_leftovers", "write_atomically"]

_OPENAT2 = 437  # one number on every architecture since Linux 5.6
_RESOLVE_BENEATH = 0x08
_libc = ctypes.CDLL(None, use_errno=True)


class PathRefusedError(ValueError):
    """A path that leaves its root, or that is no plain relative path."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one file from its replacement, from `stat` alone (times in nanoseconds, size in bytes)."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """The identity in an `os.stat_result`."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder: its name, whether it is a folder, and its identity (symlinks are followed)."""

    name: str
    is_dir: bool
    identity: Identity


@functools.cache
def _how(flags: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("QQQ", flags, 0, _RESOLVE_BENEATH), 24)


class FileRoot:
    """The files below one folder. Paths are relative, with `/`; none reaches outside, whatever symlinks say.

    Making one touches nothing. Reading never creates a file or a folder; `publish`, `publish_folder` and `lock` make
    the parent folders they need.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(Path(path).expanduser()))
        self._pin: int | None = None

    def __repr__(self) -> str:
        return f"FileRoot({str(self.path)!r})"

    @contextlib.contextmanager
    def pinned(self) -> Iterator[FileRoot]:
        """Yield this root held open: all answers are of one folder, whatever its path is renamed or linked to.

        Raises:
            OSError: the folder is missing or can't be opened.
        """
        held = FileRoot(self.path)
        held._pin = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield held
        finally:
            os.close(held._pin)

    def relative(self, path: str | os.PathLike[str]) -> str:
        """`path` as a plain relative path of this root.

        Raises:
            PathRefusedError: absolute and not below the root, or with `..`, NUL or an empty name in it.
        """
        text = os.fspath(path)
        if "\0" in text:
            raise PathRefusedError(f"{text!r} below {self.path}: a path can't hold a NUL character")
        if os.path.isabs(text):
            try:
                text = str(Path(text).relative_to(self.path))
            except ValueError:
                raise PathRefusedError(f"{text!r} is not below the root {self.path}") from None
        parts = text.split("/")
        if ".." in parts:
            raise PathRefusedError(f"{text!r} below {self.path}: '..' is refused")
        if "" in parts or "." in parts:
            return "/".join(part for part in parts if part not in ("", "."))
        return text

    def resolve(self, path: str | os.PathLike[str]) -> Path:
        """The real path of `path` (which need not exist), every symlink followed.

        Raises:
            PathRefusedError: it lies outside the root.
        """
        root = os.path.realpath(self.path if self._pin is None else f"/proc/self/fd/{self._pin}")
        real = os.path.realpath(os.path.join(root, self.relative(path)))
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise PathRefusedError(f"{os.fspath(path)!r} leads out of the root {self.path} (to {real})")
        return Path(real)

    def open_fd(self, path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
        """A file descriptor for reading `path`; never blocks on a fifo. The caller closes it.

        Raises:
            PathRefusedError: the path leads out of the root.
            OSError: as `os.open`.
        """
        relative = self.relative(path) or "."
        flags |= os.O_CLOEXEC | (0 if flags & os.O_PATH else os.O_NONBLOCK)
        root = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if self._pin is None else self._pin
        try:
            fd = int(_libc.syscall(_OPENAT2, root, os.fsencode(relative), _how(flags), 24))
            code = ctypes.get_errno()
        finally:
            if self._pin is None:
                os.close(root)
        if fd >= 0:
            return fd
        if code in (errno.EXDEV, errno.ENOSYS, errno.EPERM, errno.EAGAIN):
            return os.open(self.resolve(relative), flags | os.O_NOFOLLOW)
        raise OSError(code, os.strerror(code), str(self.path / relative))

    def open(self, path: str | os.PathLike[str]) -> BinaryIO:
        """`path` open for reading bytes.

        Raises:
            PathRefusedError: the path leads out of the root.
            OSError: it is missing, can't be read, or is no regular file.
        """
        fd = self.open_fd(path)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", str(self.path / self.relative(path)))
        return cast(BinaryIO, os.fdopen(fd, "rb"))

    def read(self, path: str | os.PathLike[str], limit: int | None = None) -> bytes:
        """The bytes of `path`.

        Raises:
            PathRefusedError: the path leads out of the root.
            OSError: it is missing, can't be read, is no regular file, or holds more than `limit` bytes.
        """
        fd = self.open_fd(path)  # plain descriptors: stores are read in tens of thousands of small files
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(self.path / self.relative(path)))
            if limit is not None and status.st_size > limit:
                raise OSError(errno.EFBIG, f"more than the allowed {limit} bytes", str(self.path / self.relative(path)))
            data = os.read(fd, status.st_size)
            while len(data) < status.st_size and (more := os.read(fd, status.st_size - len(data))):
                data += more  # one read stops at 2 GiB
            return data
        finally:
            os.close(fd)

    def stat(self, path: str | os.PathLike[str] = "") -> Identity:
        """The identity of what `path` leads to.

        Raises:
            PathRefusedError: the path leads out of the root.
            OSError: as `os.stat`.
        """
        fd = self.open_fd(path, os.O_PATH)
        try:
            return Identity.of(os.fstat(fd))
        finally:
            os.close(fd)

    def link_target(self, path: str | os.PathLike[str]) -> str | None:
        """The text of the symlink that `path` is, None when it is none.

        Raises:
            PathRefusedError: the folder it lies in leads out of the root.
            OSError: it is missing, or its folder can't be read.
        """
        folder, name = os.path.split(self.relative(path))
        fd = self.open_fd(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            return os.readlink(name, dir_fd=fd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return None
        finally:
            os.close(fd)

    def exists(self, path: str | os.PathLike[str] = "") -> bool:
        """Whether `path` leads to something. Raises what `stat` raises, except for a missing file."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def scan(
        self, path: str | os.PathLike[str] = "", suffix: str = "", refused: list[str] | None = None
    ) -> list[Entry]:
        """The entries of a folder whose name ends in `suffix`, sorted by name, each with its identity.

        An entry that vanishes meanwhile, or that leads out of the root, is left out (the names of the latter are
        appended to `refused`); hidden ones are too.

        Raises:
            OSError: the folder is missing or can't be read; never an empty answer for that.
        """
        fd = self.open_fd(path, os.O_RDONLY | os.O_DIRECTORY)
        relative = self.relative(path)
        entries = []
        try:
            with os.scandir(fd) as found:
                for item in found:
                    if item.name.startswith(".") or not item.name.endswith(suffix):
                        continue
                    try:
                        if item.is_symlink():
                            self.resolve(f"{relative}/{item.name}")
                        status = item.stat()
                    except FileNotFoundError:
                        continue
                    except PathRefusedError:
                        if refused is not None:
                            refused.append(item.name)
                        continue
                    entries.append(Entry(item.name, stat.S_ISDIR(status.st_mode), Identity.of(status)))
        finally:
            os.close(fd)
        return sorted(entries, key=lambda entry: entry.name)

    @contextlib.contextmanager
    def publish(self, path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
        """Yield a file that becomes `path` in one step when the block ends; a symlinked target is resolved first.

        Raises:
            PathRefusedError: the path leads out of the root.
            OSError: as `write_atomically`.
        """
        target = self.resolve(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(target) as file:
            yield file

    @contextlib.contextmanager
    def publish_folder(self, path: str | os.PathLike[str], version: str) -> Iterator[Path]:
        """Yield an empty folder that becomes `<path>/<version>` when the block ends, with `<path>/latest` on it.

        Readers that go through `latest` see the previous result or the new one, whole. A version that exists already
        (same content digest) is kept as it is.

        Raises:
            PathRefusedError: the path leads out of the root, or `version` is no plain name.
            OSError: the disk is full or the folder can't be written; the previous result stays.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", version):
            raise PathRefusedError(f"{version!r} can't name a version of {os.fspath(path)!r}")
        base = self.resolve(path)
        base.mkdir(parents=True, exist_ok=True)
        final = base / version
        temporary = temporary_beside(final)
        temporary.mkdir()
        lock = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    fd = os.open(file, os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
            os.fsync(lock)
            try:
                os.rename(temporary, final)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            os.close(lock)
            shutil.rmtree(temporary, ignore_errors=True)
        link = temporary_beside(base / "latest")
        os.symlink(version, link)
        os.replace(link, base / "latest")
        fsync_folder(base)

    def move(self, path: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
        """Rename `path` to `new` within the root, in one step, as it is (a symlink stays one).

        Raises:
            PathRefusedError: either leads out of the root.
            OSError: as `os.rename`.
        """
        source = self.resolve(os.path.dirname(self.relative(path))) / os.path.basename(self.relative(path))
        target = self.resolve(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, target)
        fsync_folder(target.parent)

    def remove(self, path: str | os.PathLike[str]) -> None:
        """Remove the file `path` (a symlink, not what it leads to); nothing happens when it is gone already.

        Raises:
            PathRefusedError: its folder leads out of the root.
            OSError: as `os.unlink`.
        """
        relative = self.relative(path)
        target = self.resolve(os.path.dirname(relative)) / os.path.basename(relative)
        target.unlink(missing_ok=True)

    def lock(self, path: str | os.PathLike[str], timeout: float = -1) -> FileLock:
        """A lock between processes and threads for what happens to `path` (a hidden file beside it), for `with`.

        Raises:
            PathRefusedError: the path leads out of the root.
            filelock.Timeout: on entering, after `timeout` seconds; a negative one waits.
        """
        target = self.resolve(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(target.parent / f".{target.name}.lock", timeout=timeout, thread_local=False)
