"""Reading a whole cache store, measured against `numpy.load` with the same checks and against the limits.

Builds caches of 60 s x 4 channels (small) and of 20 min x 64 channels (large) in a temporary folder, and measures in
one run, each with a warm page cache and best of several:

- numpy:     `numpy.load` of every member and the contract's checks written plainly in numpy
- full:      this project's full validation, `CacheStore.judge`
- header:    this project's header sweep, `coverage.headers`
- unchanged: a sweep over files that were swept before, its result read back from the disk
- limits:    scandir with stat; reading the bytes; reading and inflating them with isal and with zlib

Usage: python -m benchmarks.dms_sweep [--small N] [--large N] [--keep FOLDER]
"""

import argparse
import json
import os
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from isal import isal_zlib

from dms_assets import coverage, npz
from dms_assets.cache_schema import FAIL_CODES, META_KEYS, TIME_BASE, RouteCache, make_meta, make_runtime
from dms_assets.cache_store import CacheStore
from dms_assets.npz import pack
from dms_assets.spans import merge_spans, missing_of_many
from dms_assets.sweep import sweep
from dms_assets.sweep_result import read_result
from resources.files import FileRoot


def cache(uid: str, seconds: int, channels: int, seed: int) -> RouteCache:
    """A route with features that drift as real ones do, and 5 % failed rows."""
    rng = np.random.default_rng(seed)
    k = np.arange(seconds * 10 + 1)
    n = len(k)
    fail = np.where(rng.random(n) < 0.05, rng.choice([1, 2, 3], n), 0).astype(np.uint8)
    feat = (np.cumsum(rng.normal(0, 0.02, (n, channels)), axis=0) + rng.normal(0, 0.1, (n, channels))).astype(
        np.float16
    )
    feat[fail != 0] = np.nan
    box = (np.array([700, 300, 1100, 800]) + rng.normal(0, 3, (n, 4))).astype(np.float32)
    box[(fail == 1) | (fail == 2)] = np.nan
    return RouteCache(
        uid=uid,
        t=(k / 10).astype(np.float32),
        frame_idx=2 * k,
        box=box,
        valid=fail == 0,
        fail=fail,
        feat=feat,
        channels=[f"channel_{i}" for i in range(channels)],
        spans=merge_spans([[0, seconds]]),
        meta=make_meta(
            "bench", ["model"], {"model.onnx": "a" * 64}, {"numpy": "2"}, (640, 400), (1928, 1208), "b" * 64
        ),
        runtime=make_runtime(rng.uniform(3, 5, n), rng.uniform(8, 12, n), n),
        moving=rng.random(n) < 0.8,
    )


def build(root: Path, count: int, seconds: int, channels: int) -> list[Path]:
    folder = root / "cache" / "bench"
    folder.mkdir(parents=True)
    variants = [cache("x", seconds, channels, seed) for seed in range(16)]
    paths = []
    for i in range(count):
        made = variants[i % len(variants)]
        made.uid = f"a2a0ccea32023010_{i:08x}--3fa0dc2a43"
        paths.append(folder / f"{made.uid}.npz")
        paths[-1].write_bytes(pack(made.arrays()))
    return paths


def plain_check(path: Path) -> list[str]:
    """`numpy.load` and every check of the contract for a frame cache, each as one would write it first."""
    with np.load(path) as file:
        a = {name: file[name] for name in file.files}
    t, feat, valid, fail, box = a["t"], a["feat"], a["valid"], a["fail"], a["box"]
    n, (_, c) = len(t), feat.shape
    forms = {
        "t": (np.float32, (n,)),
        "frame_idx": (np.int64, (n,)),
        "box": (np.float32, (n, 4)),
        "valid": (bool, (n,)),
        "fail": (np.uint8, (n,)),
        "feat": (np.float16, (n, c)),
        "spans": (np.float32, (len(a["spans"]), 2)),
        "moving": (bool, (n,)),
    }
    bad = [name for name, (dtype, shape) in forms.items() if a[name].dtype != dtype or a[name].shape != shape]
    channels = [str(name) for name in a["channels"]]
    meta = json.loads(str(a["meta"]))
    x = t.astype(np.float64) * 10
    k = np.rint(x).astype(np.int64)
    exact = (k / 10).astype(np.float32)
    spans = a["spans"].astype(np.float64)
    first, last = np.ceil(np.round(spans[:, 0] * 10, 3)), np.floor(np.round(spans[:, 1] * 10, 3))
    ticks = np.concatenate([np.arange(i, j + 1) for i, j in zip(first, last, strict=True)] or [np.zeros(0)])
    nan_box = np.isnan(box)
    checks = {
        "uid": str(a["uid"]) == path.stem,
        "kind": str(a["kind"]) == "route_frames",
        "t_order": bool(np.all(np.diff(t) > 0)),
        "t_grid_older": bool(np.allclose(x, np.rint(x), atol=1e-3)),
        "t_grid": bool(np.all(np.abs(t - exact) <= 2 * np.spacing(np.abs(exact)))),
        "frame_idx": bool(np.all(a["frame_idx"] == 2 * k)),
        "fail_code": bool(np.all(np.isin(fail, list(FAIL_CODES)))),
        "fail_codes": json.loads(str(a["fail_codes"])) == {str(code): name for code, name in FAIL_CODES.items()},
        "valid_iff_fail0": bool(np.all(valid == (fail == 0))),
        "feat_nan_on_invalid": bool(np.all(np.isnan(feat[~valid]))),
        "feat_finite_on_valid": bool(np.all(np.isfinite(feat[valid]))),
        "channels": len(channels) == c and len(set(channels)) == c and all(channels),
        "spans_form": bool(np.all(np.isfinite(spans)) and np.all(spans[:, 0] <= spans[:, 1]) and np.all(spans >= 0)),
        "spans_disjoint": bool(np.all(spans[1:, 0] > spans[:-1, 1])),
        "rows_in_spans": bool(np.all(np.isin(k, ticks))),
        "rows_complete": bool(np.all(np.isin(ticks, k))),
        "box_vs_fail": bool(np.all(~nan_box.all(1) | (fail != 0)) and np.all(nan_box.all(1) | (fail != 1))),
        "box_geometry": bool(
            np.all(nan_box.all(1) | (np.isfinite(box).all(1) & (box[:, 0] < box[:, 2]) & (box[:, 1] < box[:, 3])))
        ),
        "meta_keys": all(key in meta for key in META_KEYS) and meta["baseline"] == path.parent.name,
        "meta_types": isinstance(meta["model_ids"], list) and isinstance(meta["weight_sha256"], dict),
        "time_base": meta["time_base"] == TIME_BASE,
    }
    return bad + [name for name, holds in checks.items() if not holds]


class Taken(NamedTuple):
    """Seconds by the clock, and of the processor: on a machine that others use, the latter is the steadier."""

    clock: float
    processor: float

    def over(self, other: "Taken") -> str:
        """How many times `other` this is, both ways."""
        return f"{self.clock / other.clock:.1f} times (processor {self.processor / other.processor:.1f})"


def best(action: Callable[[], Any], times: int) -> Taken:
    taken = []
    for _ in range(times):
        start, used = time.perf_counter(), time.process_time()
        action()
        taken.append((time.perf_counter() - start, time.process_time() - used))
    return Taken(min(clock for clock, _ in taken), min(used for _, used in taken))


def inflate_all(paths: list[Path], inflate: Callable[..., Any]) -> int:
    """Inflate every member of every file, and nothing else: the limit of any full reading."""
    total = 0
    for path in paths:
        data = path.read_bytes()
        for member in _members[path]:
            total += len(inflate(data[member[0] : member[0] + member[1]], -15, member[2]))
    return total


_members: dict[Path, list[tuple[int, int, int]]] = {}


def locate(paths: list[Path]) -> None:
    for path in paths:
        with zipfile.ZipFile(path) as archive:
            data = path.read_bytes()
            _members[path] = [
                (
                    i.header_offset
                    + 30
                    + int.from_bytes(data[i.header_offset + 26 : i.header_offset + 28], "little")
                    + int.from_bytes(data[i.header_offset + 28 : i.header_offset + 30], "little"),
                    i.compress_size,
                    i.file_size,
                )
                for i in archive.infolist()
            ]


def expect_none(found: list[Any]) -> None:
    if found:
        raise SystemExit(f"a healthy file has findings: {found[:3]}")


def measure(root: Path, paths: list[Path], repeat: int) -> dict[str, Taken]:
    store = CacheStore(FileRoot(root))
    folder, uids = paths[0].parent, [path.stem for path in paths]
    locate(paths)

    def numpy_load() -> None:
        for path in paths:
            expect_none(plain_check(path))

    def full() -> None:
        for uid in uids:
            expect_none(store.findings("bench", uid))

    def header() -> None:
        found, findings = coverage.headers(store, "bench")
        expect_none(findings if len(found) == len(uids) else ["headers are missing"])

    def scan() -> None:
        with os.scandir(folder) as entries:
            _ = [entry.stat() for entry in entries]

    seconds = {
        "scandir + stat": best(scan, 9),
        "read bytes": best(lambda: [path.read_bytes() for path in paths], repeat),
        "read + inflate (isal)": best(lambda: inflate_all(paths, isal_zlib.decompress), repeat),
        "read + inflate (zlib)": best(lambda: inflate_all(paths, zlib.decompress), repeat),
        "numpy + checks": best(numpy_load, repeat),
        "full validation": best(full, repeat),
        "header sweep": best(header, repeat),
    }
    wanted = {uid: merge_spans([[0, 30]]) for uid in uids}
    kept = []
    seconds["first sweep"] = best(lambda: kept.append(sweep(store, "bench", wanted, wanted_digest="bench")), 1)
    results = FileRoot(root / "results")
    kept[0].publish(results, "bench")
    opens = []
    original = npz.open_container
    npz.open_container = lambda *args, **kwargs: opens.append(args) or original(*args, **kwargs)  # type: ignore[func-returns-value]

    def unchanged() -> None:
        again = sweep(store, "bench", wanted, wanted_digest="bench", known=read_result(results, "bench", "bench"))
        if again.read or opens:
            raise SystemExit(f"an unchanged sweep opened {again.read} files")

    seconds["unchanged sweep"] = best(unchanged, 9)
    npz.open_container = original
    return seconds


def report(title: str, count: int, seconds: dict[str, Taken]) -> None:
    print(f"\n{title}")
    for name, taken in seconds.items():
        print(f"  {name:22} {taken.clock:9.3f} s {taken.clock / count * 1e3:9.3f} ms a file")
    base, scan = seconds["numpy + checks"], seconds["scandir + stat"]
    print(f"  numpy with the same checks takes {base.over(seconds['full validation'])} full validation")
    print(f"  numpy with the same checks takes {base.over(seconds['header sweep'])} the header sweep")
    print(f"  the unchanged sweep takes {seconds['unchanged sweep'].over(scan)} scandir with stat; it opens no file")
    print(f"  full validation takes {seconds['full validation'].over(seconds['read + inflate (isal)'])} the limit")


def span_algebra() -> None:
    rng = np.random.default_rng(0)
    routes, spans = 10_000, 50
    owner = np.repeat(np.arange(routes), spans)
    want, have = (np.round(np.sort(rng.uniform(0, 3600, (routes, 2 * spans)), 1).reshape(-1, 2), 1) for _ in range(2))
    taken = best(lambda: missing_of_many(want, owner, have, owner), 5)
    print(f"\nspan algebra: missing ticks of {routes} routes x {spans} spans in {taken.clock:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=10_000, help="caches of 60 s x 4 channels")
    parser.add_argument("--large", type=int, default=200, help="caches of 20 min x 64 channels")
    parser.add_argument("--keep", type=Path, help="build there and keep the files")
    options = parser.parse_args()
    root = Path(options.keep or tempfile.mkdtemp(prefix="dms_sweep_"))
    try:
        span_algebra()
        for name, count, seconds, channels, repeat in (
            ("small", options.small, 60, 4, 2),
            ("large", options.large, 1200, 64, 3),
        ):
            paths = build(root / name, count, seconds, channels)
            size = sum(path.stat().st_size for path in paths) / count
            title = f"{count} caches of {seconds} s x {channels} channels, {size / 1e3:.0f} kB each"
            report(title, count, measure(root / name, paths, repeat))
    finally:
        if options.keep is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
