"""Results on disk: a JSON document, Parquet tables and figures, published as one folder per content version.

Belongs here: the folder's form (`<asset>/<partition>/<version>/{result.json, <table>.parquet, <figure>.svg}` with
`latest` on the newest), the digest that names it, and the removal of old versions. Does not belong here: what is in
a result. A run that fails leaves the previous result, and readers see one or the other, whole.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from resources.files import FileRoot

DOCUMENT = "result.json"


@dataclass(frozen=True, slots=True)
class Published:
    """Where a result lies now, and the digest of its content."""

    folder: Path
    version: str


def plain(item: Any) -> Any:
    """`item` as JSON knows it: dataclasses as objects in field order, NaN and infinities as null."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
    if isinstance(item, Mapping):
        return {str(key): plain(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [plain(value) for value in item]
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    return item if isinstance(item, (str, int, bool, type(None))) else str(item)


def publish(
    root: FileRoot,
    path: str,
    document: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame] | None = None,
    figures: Mapping[str, bytes] | None = None,
    keep: int = 10,
) -> Published:
    """Publish one result below `root` at `path`; the same document and tables give the same version.

    Args:
        root: the output root.
        path: the result's place in it, such as `vin/store_stats/<store>`.
        document: what `result.json` holds.
        tables: name -> frame, written as Parquet.
        figures: file name -> bytes; they don't count for the version.
        keep: how many versions stay, the newest included.

    Raises:
        OSError: the disk is full or the folder can't be written; the previous result stays.
        resources.files.PathRefusedError: `path` leaves the root.
    """
    text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=1).encode()
    digest = hashlib.sha256(text)
    for name, frame in sorted((tables or {}).items()):
        digest.update(f"\0{name}\0{','.join(map(str, frame.columns))}\0".encode())
        digest.update(frame.to_csv(index=False).encode())
    version = digest.hexdigest()[:16]
    with root.publish_folder(path, version) as folder:
        (folder / DOCUMENT).write_bytes(text)
        for name, frame in (tables or {}).items():
            frame.to_parquet(folder / f"{name}.parquet", index=False)
        for name, data in (figures or {}).items():
            (folder / name).write_bytes(data)
    prune(root, path, version, keep)
    return Published(root.path / path / version, version)


def latest(root: FileRoot, path: str) -> dict[str, Any] | None:
    """The document last published at `path`; None when there is none.

    Raises:
        ValueError: it is there and is no JSON object.
    """
    try:
        data = root.read(f"{path}/latest/{DOCUMENT}")
    except FileNotFoundError:
        return None
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError(f"{root.path / path / 'latest' / DOCUMENT}: not a JSON object; materialise the asset again")
    return document


def prune(root: FileRoot, path: str, current: str, keep: int) -> None:
    """Remove the oldest versions at `path` until `keep` are left, the `current` one among them."""
    versions = [entry for entry in root.scan(path) if entry.is_dir and entry.name not in (current, "latest")]
    versions.sort(key=lambda entry: entry.identity.mtime_ns, reverse=True)
    for entry in versions[max(keep - 1, 0) :]:
        shutil.rmtree(os.path.join(root.resolve(path), entry.name))
