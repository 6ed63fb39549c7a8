"""Healthy VIN stores and raw datasets, and one corruptor per integrity rule."""

import functools
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resources.config import Settings, VinSettings

GOLDEN = Path(__file__).parents[1] / "golden" / "vin"
VERSIONS = (7, 8, 11)


@functools.cache
def _contents(name: str) -> list[tuple[str, bytes | None]]:
    """The folders (None) and files of a golden tarball; kept, as hundreds of tests unpack the same."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        return [(m.name, file.read() if (file := archive.extractfile(m)) else None) for m in archive]


def unpack(name: str, into: Path) -> Path:
    """Unpack a golden tarball; the folder it holds."""
    contents = _contents(name)
    for path, data in contents:
        target = into / path
        if data is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.write_bytes(data)
    return into / contents[0][0].split("/")[0]


def tiny_store(into: Path, version: int) -> Path:
    """One of the tiny stores (6 rows, 2 shards). Version 10 is made of version 8: only its provenance is new."""
    if version != 10:
        return unpack(f"vin_store_tiny_v{version}", into)
    store = unpack("vin_store_tiny_v8", into)

    def to_ten(manifest: dict[str, Any]) -> None:
        manifest["version"] = 10
        manifest["vin"]["free_input_provenance"] = "native_evl_v1"

    edit_manifest(store, to_ten)
    return store.rename(into / "tiny_v10")


def raw_dataset(into: Path) -> Path:
    """The small raw dataset: the folder that holds `ase_efm`."""
    return unpack("ase_raw_small", into)


def golden_settings(folder: Path) -> Settings:
    """The settings of the tiny stores and their raw dataset, all of them below `folder`."""
    stores = folder / "stores"
    stores.mkdir()
    for version in VERSIONS:
        tiny_store(stores, version)
    raw = raw_dataset(folder)
    return Settings(
        output_root=folder / "out", vin=VinSettings(store_roots=(stores,), raw_roots=(raw,), raw_data_root=raw)
    )


def edit_manifest(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = store / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
