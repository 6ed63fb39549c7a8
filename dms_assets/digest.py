"""The data version of a cache: a digest of its content.

Belongs here: what counts as content. When it was written, and how long that took, do not.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from dms_assets.cache_schema import RouteCache, WindowCache


def _content(meta: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in meta.items() if key != "written_utc"}
    past = kept.get("merged_from")
    if isinstance(past, list):
        kept["merged_from"] = [_content(entry) if isinstance(entry, dict) else entry for entry in past]
    return kept


def content_digest(cache: RouteCache | WindowCache) -> str:
    """The sha256 of everything but `written_utc` and runtime, in hexadecimal; equal for equal content.

    Neighbouring spans count as joined, as saving joins them.
    """
    digest = hashlib.sha256()
    texts: dict[str, Any] = {"kind": cache.KIND, "meta": _content(cache.meta)}
    for name, value in cache.arrays().items():
        array = np.asarray(value)
        if name in ("meta", "runtime", "kind", "fail_codes"):
            continue
        if array.dtype.kind == "U":
            texts[name] = array.tolist()
            continue
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    digest.update(json.dumps(texts, sort_keys=True).encode())
    return digest.hexdigest()
