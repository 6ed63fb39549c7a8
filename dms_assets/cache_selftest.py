"""The command line of `python -m dms_assets.cache_schema`: a self-test and a look at one file.

Belongs here: what an older environment needs without this project's other commands (`cli`). Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dms_assets.cache_schema import RouteCache, cache_kind, load_any, synthetic_route_cache
from dms_assets.contract import FRAMES, CacheInvalidError, CacheUnreadableError
from dms_assets.npz import pack
from dms_assets.spans import as_lists


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file holds, for JSON: kind, uid, n, channels, D, spans, meta, runtime. Raises what `load_any` raises."""
    cache = load_any(path)
    return {
        "kind": type(cache).__name__,
        "uid": cache.uid,
        "n": cache.n if isinstance(cache, RouteCache) else cache.m,
        "channels": list(cache.channels) if isinstance(cache, RouteCache) else None,
        "D": None if isinstance(cache, RouteCache) else cache.D,
        "spans": as_lists(cache.spans),
        "meta": cache.meta,
        "runtime": cache.runtime,
    }


def self_test() -> list[str]:
    """What does not work of writing, reading, merging and refusing in this environment; empty when all does."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.npz"
        whole = synthetic_route_cache(uid="synthetic", t1=5.0)
        first = synthetic_route_cache(uid="synthetic", t1=2.0, meta=whole.meta)
        rest = synthetic_route_cache(uid="synthetic", t0=2.1, t1=5.0, meta=whole.meta)
        if whole.save(path) != path or not isinstance(load_any(path), RouteCache) or cache_kind(path) != FRAMES:
            wrong.append("a saved cache does not load")
        if pack(load_any(path).arrays()) != path.read_bytes():
            wrong.append("saving what was loaded gives other bytes")
        if first.covers([[0, 5]]) or not first.merged_with(rest).covers([[0, 5]]):
            wrong.append("merging the missing span does not cover")
        path.write_bytes(path.read_bytes()[:-100])
        try:
            load_any(path)
            wrong.append("a cut file loads")
        except CacheUnreadableError:
            pass
        whole.valid[0] = not whole.valid[0]
        try:
            whole.validate()
            wrong.append("a broken invariant passes")
        except CacheInvalidError:
            pass
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: --self-test (also without arguments) or --inspect FILE."""
    parser = argparse.ArgumentParser(prog="python -m dms_assets.cache_schema", description="DMS feature caches")
    parser.add_argument("--self-test", action="store_true", help="write, read, merge and refuse caches (temporary)")
    parser.add_argument("--inspect", metavar="FILE", help="print a cache's header as JSON")
    options = parser.parse_args(arguments)
    if options.inspect is not None:
        try:
            print(json.dumps(inspect(options.inspect), indent=1))
        except (CacheInvalidError, CacheUnreadableError, OSError) as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    wrong = self_test()
    print("\n".join(wrong) or "self-test passed")
    return 1 if wrong else 0
