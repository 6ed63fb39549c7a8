"""What may be a partition key, and how keys form ranges. No Dagster, and no rule about routes' own names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_partition_key(text: str) -> bool:
    """Whether `text` can be a partition key, a file's stem and a folder's name at once: safe in all three."""
    return _KEY.fullmatch(text) is not None and ".." not in text


def ranges(keys: Sequence[str], wanted: Collection[str], size: int | None = None) -> list[tuple[str, str]]:
    """`wanted` as (first, last) ranges of keys that are neighbours in `keys`, each of `size` keys at most.

    `keys` is Dagster's order, that of adding; wanted keys that it lacks are left out.
    """
    chosen = set(wanted)
    found: list[list[str]] = []
    open_run = False
    for key in keys:
        if key not in chosen:
            open_run = False
            continue
        if open_run and (size is None or len(found[-1]) < size):
            found[-1].append(key)
        else:
            found.append([key])
        open_run = True
    return [(run[0], run[-1]) for run in found]
