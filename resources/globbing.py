"""Shell patterns below a `FileRoot`: every folder is listed through the root, so no pattern reads outside it.

Belongs here: matching names. Does not belong here: opening files, what a file means.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

from resources.files import FileRoot, PathRefusedError

_MAGIC = re.compile(r"[*?\[\]]")


def has_magic(text: str) -> bool:
    """Whether `text` is a pattern and no plain path."""
    return _MAGIC.search(text) is not None


def glob(root: FileRoot, pattern: str, refused: list[str] | None = None) -> list[str]:
    """The paths below `root` that match `pattern`, sorted; `**` stands for any number of folders, none included.

    Names that begin with a dot are left out. Folders that vanish or can't be listed match nothing. Links that would
    match and lead out of the root are appended to `refused`.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    outside: list[str] = [] if refused is None else refused
    return sorted(set(_match(root, "", parts, frozenset(), outside)))


def _match(
    root: FileRoot, base: str, parts: list[str], above: frozenset[tuple[int, int]], refused: list[str]
) -> Iterator[str]:
    if not parts:
        yield base
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _match(root, base, rest, above, refused)
    elif not has_magic(part):
        path = f"{base}/{part}".lstrip("/")
        try:
            if root.exists(path):
                yield from _match(root, path, rest, above, refused)
        except (PathRefusedError, OSError):
            return
        return
    try:
        leaving: list[str] = []
        entries = root.scan(base, refused=leaving)
        here = root.stat(base)
    except (PathRefusedError, OSError):
        return
    if part == "**" and (here.device, here.inode) in above:
        return  # a link to a folder above
    refused += [f"{base}/{name}".lstrip("/") for name in leaving if part == "**" or fnmatch.fnmatchcase(name, part)]
    for entry in entries:
        path = f"{base}/{entry.name}".lstrip("/")
        if part == "**":
            if entry.is_dir:
                yield from _match(root, path, parts, above | {(here.device, here.inode)}, refused)
        elif fnmatch.fnmatchcase(entry.name, part) and (entry.is_dir or not rest):
            yield from _match(root, path, rest, above, refused)
