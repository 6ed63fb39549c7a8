"""Healthy VIN stores and raw datasets, and one corruptor per integrity rule."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "vin"
VERSIONS = (7, 8, 11)


def unpack(name: str, into: Path) -> Path:
    """Unpack a golden tarball; the folder it holds."""
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        top = archive.getnames()[0].split("/")[0]
        archive.extractall(into, filter="data")
    return into / top


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


def edit_manifest(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = store / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
