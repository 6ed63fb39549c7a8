"""What may be a partition key: one grammar for stores and routes. No Dagster, and no rule about routes' own names."""

from __future__ import annotations

import re

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_partition_key(text: str) -> bool:
    """Whether `text` can be a partition key, a file's stem and a folder's name at once: safe in all three."""
    return _KEY.fullmatch(text) is not None and ".." not in text
