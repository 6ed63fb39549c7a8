"""Healthy DMS caches, and one corruptor per rule of the contract.

A corruptor turns the arrays of a healthy file into those of a broken one; a corruptor of the container turns its bytes.
"""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dms_assets.cache_schema import RouteCache, WindowCache, make_meta, make_runtime
from dms_assets.contract import FRAMES, WINDOWS
from dms_assets.npz import pack

Arrays = dict[str, Any]

UID = "a2a0ccea32023010_2023-07-27--13-01-19"


def meta(baseline: str = "flow", **extra: Any) -> dict[str, Any]:
    made = make_meta(
        baseline,
        ["model"],
        {"model.onnx": "a" * 64},
        {"numpy": "2"},
        (640, 400),
        (1928, 1208),
        "b" * 64,
        code_version="1",
    )
    return {**made, "written_utc": "2026-01-01T00:00:00Z", **extra}


def frames(
    uid: str = UID,
    k0: int = 0,
    k1: int = 50,
    *,
    baseline: str = "flow",
    channels: int = 4,
    fail: dict[int, int] | None = None,
    seed: int = 0,
    moving: bool = True,
    **extra: Any,
) -> RouteCache:
    """Ticks k0 to k1; `fail` gives ticks a failure code (without it, every 7th tick has one of 1, 2, 3)."""
    rng = np.random.default_rng([seed, k0])
    k = np.arange(k0, k1 + 1)
    codes = {int(tick): 1 + int(tick) // 7 % 3 for tick in k if tick % 7 == 5} if fail is None else fail
    failed = np.array([codes.get(int(tick), 0) for tick in k], np.uint8)
    feat = rng.normal(size=(len(k), channels)).astype(np.float16)
    feat[failed != 0] = np.nan
    box = (np.array([700, 300, 1100, 800]) + rng.normal(0, 3, (len(k), 4))).astype(np.float32)
    box[(failed == 1) | (failed == 2)] = np.nan
    return RouteCache(
        uid=uid,
        t=(k / 10).astype(np.float32),
        frame_idx=2 * k,
        box=box,
        valid=failed == 0,
        fail=failed,
        feat=feat,
        channels=[f"c{i}" for i in range(channels)],
        spans=np.array([[k0 / 10, k1 / 10]], np.float32) if len(k) else np.zeros((0, 2), np.float32),
        meta=meta(baseline, **extra),
        runtime=make_runtime(rng.uniform(3, 5, len(k)), rng.uniform(8, 12, len(k)), len(k), 1.0),
        moving=rng.random(len(k)) < 0.8 if moving else None,
    )


def windows(
    uid: str = UID,
    k0: int = 0,
    k1: int = 100,
    *,
    baseline: str = "clips",
    length: int = 16,
    stride: int = 5,
    width: int = 8,
    seed: int = 0,
    **extra: Any,
) -> WindowCache:
    """Windows that end every `stride` ticks within ticks k0 to k1; the third one is invalid."""
    rng = np.random.default_rng([seed, k0])
    ends = np.arange(k0 + length - 1, k1 + 1, stride)
    valid = np.ones(len(ends), bool)
    valid[2:3] = False
    emb = rng.normal(size=(len(ends), width)).astype(np.float16)
    emb[~valid] = np.nan
    return WindowCache(
        uid=uid,
        win_t_end=(ends / 10).astype(np.float32),
        emb=emb,
        win_valid=valid,
        win_len=length,
        spans=np.array([[k0 / 10, k1 / 10]], np.float32),
        meta=meta(baseline, **extra),
        runtime=make_runtime([4.0], [9.0], len(ends)),
    )


def healthy(kind: str) -> Arrays:
    """The arrays of a healthy file of a kind, each its own copy."""
    cache = frames() if kind == FRAMES else windows()
    return {name: np.array(value) for name, value in cache.arrays().items()}


def write(path: Path, arrays: Arrays) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(arrays))
    return path


def with_members(data: bytes, **members: bytes) -> bytes:
    """The npz with further raw members, repeated names among them."""
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return out.getvalue()


def _set(name: str, index: Any, value: Any) -> Callable[[Arrays], None]:
    def corrupt(arrays: Arrays) -> None:
        arrays[name][index] = value

    return corrupt


def _replace(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays], None]:
    def corrupt(arrays: Arrays) -> None:
        arrays[name] = np.array(change(arrays[name]))

    return corrupt


def _meta(change: Callable[[dict[str, Any]], Any]) -> Callable[[Arrays], None]:
    def corrupt(arrays: Arrays) -> None:
        value = json.loads(str(arrays["meta"]))
        arrays["meta"] = np.array(json.dumps(change(value)))

    return corrupt


def _without_rows(arrays: Arrays) -> None:
    for name in ("t", "frame_idx", "box", "valid", "fail", "feat", "moving"):
        arrays[name] = np.delete(arrays[name], slice(20, 30), axis=0)


def _swap_rows(name: str) -> Callable[[Arrays], None]:
    def corrupt(arrays: Arrays) -> None:
        rows = len(arrays[name])
        for member, array in arrays.items():
            if array.ndim and len(array) == rows and member not in ("channels", "spans"):
                array[[3, 4]] = array[[4, 3]]

    return corrupt


_F, _W = FRAMES, WINDOWS
_BOTH = (FRAMES, WINDOWS)

# code, kinds, corruptor of the arrays. The first of a code and kind trips the rule and only it, the others too.
CORRUPTORS: list[tuple[str, str, Callable[[Arrays], None]]] = [
    *[("dtype", kind, _replace("spans", lambda a: a.astype(np.float64))) for kind in _BOTH],
    ("dtype", _F, _replace("fail", lambda a: a.astype(np.int64))),
    ("dtype", _F, _replace("t", lambda a: a.astype(">f4"))),
    ("dtype", _F, _replace("channels", lambda a: a.astype("S"))),
    ("dtype", _W, _replace("win_len", lambda a: a.astype(np.float32))),
    ("dtype", _F, _replace("uid", lambda a: a.astype("S"))),
    *[("shape", kind, _replace("spans", lambda a: a.ravel())) for kind in _BOTH],
    ("shape", _F, _replace("box", lambda a: a[:, :3])),
    ("shape", _F, _replace("moving", lambda a: a[:-1])),
    ("shape", _F, _replace("channels", lambda a: a[:-1])),
    *[("kind", kind, _replace("kind", lambda a: "frames")) for kind in _BOTH],
    *[("uid", kind, _replace("uid", lambda a: "../../evil")) for kind in _BOTH],
    ("uid", _F, _replace("uid", lambda a: "another_route")),
    ("uid", _F, _replace("uid", lambda a: "a\0b")),
    ("t_order", _F, _swap_rows("t")),
    ("win_order", _W, _swap_rows("win_t_end")),
    ("t_grid", _F, _set("t", 20, np.float32(2.003))),
    ("t_grid", _F, _set("t", 20, np.float32(2.00001))),
    ("win_grid", _W, _set("win_t_end", 4, np.float32(3.53))),
    ("frame_idx", _F, _replace("frame_idx", lambda a: a // 2 * 3)),
    ("fail_code", _F, _set("fail", 5, 9)),
    ("fail_code", _F, _replace("fail_codes", lambda a: '{"0": "ok"}')),
    ("fail_code", _F, _replace("fail_codes", lambda a: "{broken")),
    ("valid_iff_fail0", _F, _set("fail", 4, 3)),
    ("feat_nan_on_invalid", _F, _set("feat", (5, 2), 1.0)),
    ("feat_nan_on_invalid", _F, _set("feat", (5, 2), np.inf)),
    ("feat_finite_on_valid", _F, _set("feat", (4, 1), np.inf)),
    ("feat_finite_on_valid", _F, _set("feat", (4, 1), np.nan)),
    ("emb_nan_on_invalid", _W, _set("emb", (2, 2), 1.0)),
    ("emb_finite_on_valid", _W, _set("emb", (1, 2), np.inf)),
    ("channels_unique", _F, _set("channels", 1, "c0")),
    ("channels_unique", _F, _set("channels", 1, "")),
    *[("spans_form", kind, _replace("spans", lambda a: np.concatenate((a, a)))) for kind in _BOTH],
    ("spans_form", _F, _replace("spans", lambda a: np.concatenate((a, [[9, 8]])).astype(np.float32))),
    ("spans_form", _F, _replace("spans", lambda a: np.concatenate((a, [[np.nan, 8]])).astype(np.float32))),
    ("spans_form", _F, _replace("spans", lambda a: np.concatenate(([[-0.02, -0.01]], a)).astype(np.float32))),
    ("rows_in_spans", _F, _replace("spans", lambda a: np.array([[0, 4]], np.float32))),
    ("rows_in_spans", _F, _replace("spans", lambda a: np.zeros((0, 2), np.float32))),
    ("rows_complete", _F, _without_rows),
    ("rows_complete", _F, _replace("spans", lambda a: np.array([[0, 1e9]], np.float32))),
    ("box_vs_fail", _F, _set("box", 4, np.nan)),
    ("box_vs_fail", _F, _set("box", 5, [1, 2, 3, 4])),
    ("box_geometry", _F, _set("box", (4, 0), np.nan)),
    ("box_geometry", _F, _set("box", (4, 2), 1.0)),
    ("box_geometry", _F, _set("box", (4, 3), np.inf)),
    *[("meta_json", kind, _replace("meta", lambda a: "{broken")) for kind in _BOTH],
    *[("meta_json", kind, _meta(lambda m: [m])) for kind in _BOTH],
    ("meta_json", _F, _replace("meta", lambda a: "[" * 100_000)),
    *[("meta_keys", kind, _meta(lambda m: {k: v for k, v in m.items() if k != "model_ids"})) for kind in _BOTH],
    ("meta_keys", _F, _meta(lambda m: {**m, "decode_wh": [640.0, 400]})),
    ("meta_keys", _F, _meta(lambda m: {**m, "weight_sha256": None})),
    ("meta_keys", _F, _meta(lambda m: {**m, "baseline": "other"})),
    *[("time_base", kind, _meta(lambda m: {**m, "time_base": "30 fps"})) for kind in _BOTH],
    ("win_len", _W, _replace("win_len", lambda a: np.int64(0))),
    ("win_in_spans", _W, _replace("spans", lambda a: np.array([[0.1, 10]], np.float32))),
    ("win_in_spans", _W, _replace("spans", lambda a: np.array([[0, 3], [3.2, 10]], np.float32))),
    ("win_in_spans", _W, _replace("spans", lambda a: np.zeros((0, 2), np.float32))),
    *[("extra_members", kind, lambda arrays: arrays.update(notes=np.zeros(3))) for kind in _BOTH],
]

# Broken containers: bytes of a healthy file in, broken bytes out.
CONTAINER_CORRUPTORS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "no zip": lambda data: b"not a zip file" * 10,
    "cut in half": lambda data: data[: len(data) // 2],
    "cut at the end": lambda data: data[:-1],
    "head cut": lambda data: data[100:],
    "a byte flipped": lambda data: data[:600] + bytes([data[600] ^ 0x55]) + data[601:],
    "trailing junk": lambda data: data + b"junk",
    "leading junk": lambda data: b"junk" + data,
    "a member that is no array": lambda data: with_members(data, notes=b"text"),
    "a pickled member": lambda data: with_members(data, notes=npy_of_objects()),
}


def npy_of_objects() -> bytes:
    """An .npy member that would need unpickling."""
    out = io.BytesIO()
    np.save(out, np.array([{}]), allow_pickle=True)
    return out.getvalue()
