"""Files that appear in one step: written aside, flushed, renamed; and what killed writers left behind.

Belongs here: how bytes reach the disk whole. Does not belong here: containment (`files`), what a file means.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# A name that no `*.npz`, `*.json` or `*.parquet` listing takes for a result.
_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{32}\.partial$")


def temporary_beside(target: Path) -> Path:
    """A new hidden name in the folder of `target`."""
    return target.parent / f".{target.name}.{uuid.uuid4().hex}.partial"


def fsync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def write_atomically(target: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes `target` in one step when the block ends, and vanishes when it raises.

    The temporary file lies beside the target, is locked while its writer lives (so that `remove_leftovers` can tell a
    killed writer's file from one in use) and is flushed to the disk, with its folder, before and after the step.

    Raises:
        OSError: the disk is full or the folder can't be written; the old target is untouched.
    """
    temporary = temporary_beside(target)
    try:
        with open(temporary, "xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    fsync_folder(target.parent)


def remove_leftovers(folder: Path) -> list[str]:
    """Remove what killed writers left in `folder`; the names removed, sorted. A living writer's file stays."""
    removed = []
    for name in sorted(os.listdir(folder)):
        if not _TEMPORARY.match(name):
            continue
        path = folder / name
        if path.is_symlink():  # a `latest` on its way; made and renamed within microseconds
            path.unlink(missing_ok=True)
            removed.append(name)
            continue
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            removed.append(name)
        finally:
            os.close(fd)
    return removed
