"""What the members of a cache file mean: from a zip container to plain values, wholly or only the header.

Belongs here: member names, which are needed, texts and JSON inside them. Does not belong here: zip and npy (`npz`),
rules (`rules`), the cache classes (`cache_schema`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dms_assets import routes
from dms_assets.contract import FRAMES, WINDOWS, CacheInvalidError, CacheUnreadableError
from dms_assets.npz import MAX_BYTES, Container, open_container
from dms_assets.rule_view import Facts
from dms_assets.spans import Spans

_ARRAYS: Final = {
    FRAMES: ("t", "frame_idx", "box", "valid", "fail", "feat", "channels", "spans"),
    WINDOWS: ("win_t_end", "emb", "win_valid", "win_len", "spans"),
}
_OPTIONAL: Final = {FRAMES: ("moving",), WINDOWS: ()}
_TEXTS: Final = ("uid", "meta", "runtime", "kind", "fail_codes")
_KNOWN: Final = {kind: {*_ARRAYS[kind], *_OPTIONAL[kind], *_TEXTS} for kind in _ARRAYS}
NEEDED: Final = frozenset().union(*_KNOWN.values())


@dataclass(frozen=True, slots=True)
class Raw:
    """A cache file's values, unjudged. `meta` is {} when it could not be parsed: `facts.meta_problem` says why."""

    kind: str
    uid: Any
    arrays: dict[str, Any]
    meta: dict[str, Any]
    runtime: dict[str, Any]
    facts: Facts


@dataclass(frozen=True, slots=True)
class Header:
    """What a cache file says of itself before any feature is inflated. `n` counts rows: frames, or windows."""

    uid: str
    kind: str
    n: int
    spans: Spans
    meta: dict[str, Any]


@contextmanager
def opened(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES, *, whole: bool = True) -> Iterator[Container]:
    """The container of a path that the caller named; paths below a root are opened by `CacheStore`.

    Raises:
        CacheUnreadableError: it is no readable container.
        OSError: it can't be opened or read, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe must not wait for its writer
    try:
        yield open_container(fd, Path(path).name, max_bytes, whole=whole, needed=NEEDED)
    finally:
        os.close(fd)


def _json_object(text: Any) -> tuple[dict[str, Any], str | None]:
    if not isinstance(text, str):
        return {}, f"is {getattr(text, 'dtype', type(text).__name__)} {getattr(text, 'shape', '')}, not a text"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"is not JSON: {error}"
    return (value, None) if isinstance(value, dict) else ({}, f"is JSON, but {type(value).__name__}, not an object")


def kind_of(box: Container) -> tuple[str, str | None]:
    """What the arrays are, and what `kind` declares (None when it is absent: the oldest files)."""
    actual = WINDOWS if "emb" in box.members else FRAMES
    return actual, str(box.text("kind")) if "kind" in box.members else None


def _meta_of(box: Container) -> tuple[dict[str, Any], str | None]:
    if "meta" not in box.members:
        return {}, "meta is absent"
    meta, problem = _json_object(box.text("meta"))
    return meta, f"meta {problem}" if problem else None


def read_raw(
    box: Container, *, where: str = "", stem: str | None = None, baseline: str | None = None, complete: bool = False
) -> Raw:
    """Every value of a cache file. Arrays are read-only views of the inflated bytes.

    Args:
        box: the open container.
        where, stem, baseline: passed on to the facts that rules judge.
        complete: also inflate what the contract does not need (unknown members, a broken runtime) and note what is
            wrong with it; without, such members are not touched.

    Raises:
        CacheUnreadableError: a needed member is missing or can't be read.
    """
    kind, declared = kind_of(box)
    oddities = list(box.oddities)
    extra = tuple(sorted(name for name in box.members if name not in _KNOWN[kind]))
    uid = box.text("uid")
    names = [*_ARRAYS[kind], *(name for name in _OPTIONAL[kind] if name in box.members)]
    arrays: dict[str, Any] = {name: box.array(name) for name in names}
    if kind == WINDOWS:
        length = arrays["win_len"]
        arrays["win_len"] = int(length) if length.dtype.kind in "iu" and length.ndim == 0 else length
    elif arrays["channels"].dtype.kind == "U" and arrays["channels"].ndim == 1:
        arrays["channels"] = arrays["channels"].tolist()
    meta, meta_problem = _meta_of(box)
    runtime: dict[str, Any] = {}
    try:
        if "runtime" in box.members:
            runtime = _json_object(box.text("runtime"))[0]
    except CacheUnreadableError as error:
        oddities.append(f"member runtime: {error.cause}")
    fail_codes = str(box.text("fail_codes")) if "fail_codes" in box.members else None
    for name in extra if complete else ():
        try:
            box.array(name)
        except CacheUnreadableError as error:
            oddities.append(f"member {name[:80]}: {error.cause}")
    facts = Facts(where, stem, baseline, declared, meta_problem, fail_codes, extra, tuple(oddities))
    return Raw(kind, uid, arrays, meta, runtime, facts)


def read_header(box: Container) -> Header:
    """uid, kind, row count, spans and meta; features stay packed, and of the rows only one npy header is inflated.

    Raises:
        CacheUnreadableError: one of these members is missing or can't be read.
        CacheInvalidError: kind, uid, spans or meta break the contract.
    """
    kind, declared = kind_of(box)
    if declared not in (None, kind):
        raise CacheInvalidError("kind", f"{box.file}: kind says {declared!r:.60}, the arrays are {kind}")
    uid = box.text("uid")
    if not isinstance(uid, str):
        raise CacheInvalidError("dtype", f"{box.file}: uid is {uid.dtype} {uid.shape}, not a text")
    routes.check_uid(uid)
    spans = box.array("spans")
    if spans.dtype != np.float32 or spans.ndim != 2 or spans.shape[1] != 2:
        code = "dtype" if spans.dtype != np.float32 else "shape"
        raise CacheInvalidError(code, f"{box.file}: spans is {spans.dtype} {spans.shape}, not float32 (S, 2)")
    meta, problem = _meta_of(box)
    if problem:
        raise CacheInvalidError("meta_json", f"{box.file}: {problem}")
    _, rows = box.form("valid" if kind == FRAMES else "win_valid")
    if len(rows) != 1:
        raise CacheInvalidError("shape", f"{box.file}: the rows' validity has the shape {rows}")
    return Header(uid, kind, rows[0], spans, meta)
