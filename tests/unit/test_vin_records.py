"""Records of a sample: decoded, described, and never trusted."""

import base64
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from tests.builders.vin import tiny_store
from tests.builders.vin_damage import DAMAGES, OFFSETS, PAYLOAD, SHARD
from vin_assets.vin_store.records import describe, sample_records
from vin_assets.vin_store.store import VinOfflineStoreConfig, open_store

NAMES = {"0": "chair", "1": "table", "2": "lamp", "7": "sofa", "28": "window"}


def records_of(store: Path, number: int = 0) -> dict[str, Any]:
    with open_store(VinOfflineStoreConfig(store)) as opened:
        return sample_records(opened, opened.rows[number])


def rewrite(store: Path, records: list[Any]) -> None:
    packed = [msgpack.packb(record) for record in records]
    (store / SHARD / PAYLOAD).write_bytes(b"".join(packed))
    np.save(store / SHARD / OFFSETS, np.cumsum([0, *map(len, packed)]))


@pytest.mark.parametrize("version", [7, 8, 11])
def test_a_sample_s_records(tmp_path: Path, version: int) -> None:
    found = records_of(tiny_store(tmp_path, version), 5)
    assert found == {"detected.obb_sem_id_to_name": NAMES, "gt.obb_sem_id_to_name": NAMES}


def test_missing_rows_and_tensors(tmp_path: Path) -> None:
    store = tiny_store(tmp_path, 11)
    data = base64.b64encode(np.arange(6, dtype=np.float32).tobytes()).decode()
    tensor = {"dtype": "torch.float32", "shape": [2, 3], "data": data}
    rewrite(store, [None, {"points": tensor, "list": [1, b"ab"]}, {"t": {**tensor, "shape": [9]}}])
    found = [records_of(store, row)["gt.obb_sem_id_to_name"] for row in range(3)]
    assert found == [
        None,
        {"points": "tensor float32 (2, 3), 24 bytes", "list": [1, "2 bytes"]},
        {"t": "tensor float32 (9,), 24 bytes (36 are expected)"},
    ]
    assert describe({"dtype": "x", "data": "no base64!"}) == "tensor x None: its data is no base64"


def test_garbage_in_a_record_is_a_text(tmp_path: Path) -> None:
    store = tiny_store(tmp_path, 11)
    path = store / SHARD / PAYLOAD
    path.write_bytes(b"\xc1" * path.stat().st_size)
    assert str(records_of(store)["gt.obb_sem_id_to_name"]).startswith("unreadable: shard-000000")


@pytest.mark.parametrize(
    "damage", [d for d in DAMAGES if d.code.startswith(("offsets", "payload"))], ids=lambda d: str(d.name)
)
def test_damaged_records_cost_only_themselves(tmp_path: Path, damage: Any) -> None:
    store = tiny_store(tmp_path, 11)
    damage.change(store)
    for row in range(3):
        assert records_of(store, row)["detected.obb_sem_id_to_name"] == NAMES
    assert any(str(records_of(store, row)["gt.obb_sem_id_to_name"]).startswith("unreadable") for row in range(3))
