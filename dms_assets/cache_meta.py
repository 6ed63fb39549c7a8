"""What surrounds a cache's arrays: where they lie, their metadata and runtime texts, and atomic writing.

Belongs here: paths of the contract's layout, checksums, making meta and runtime. Does not belong here: cache arrays.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from dms_assets.contract import TIME_BASE, CacheInvalidError
from dms_assets.npz import pack
from dms_assets.routes import check_baseline, check_uid
from resources.files import write_atomically

RESULTS_ROOT: Final = Path(__file__).resolve().parents[1] / "results" / "baselines_dms"


def cache_dir(baseline: str, root: str | os.PathLike[str] = RESULTS_ROOT) -> Path:
    """The folder of a baseline's caches. Raises RouteNameError for a name that can't be a baseline's."""
    return Path(root) / "cache" / check_baseline(baseline)


def summ_dir(baseline: str, root: str | os.PathLike[str] = RESULTS_ROOT) -> Path:
    """The folder of a baseline's summaries. Raises RouteNameError for a name that can't be a baseline's."""
    return Path(root) / "summ" / check_baseline(baseline)


def cache_path(baseline: str, uid: str, root: str | os.PathLike[str] = RESULTS_ROOT) -> Path:
    """The file of a route's cache. Raises RouteNameError for a uid or baseline that no path may be built from."""
    return cache_dir(baseline, root) / f"{check_uid(uid)}.npz"


def sha256_file(p: str | os.PathLike[str], chunk: int = 1 << 22) -> str:
    """The sha256 of a file in hexadecimal, read `chunk` bytes at a time."""
    digest = hashlib.sha256()
    with open(p, "rb") as file:
        while block := file.read(chunk):
            digest.update(block)
    return digest.hexdigest()


def code_sha256(files: Iterable[str | os.PathLike[str]]) -> str:
    """The sha256 over the concatenated bytes of `files`, in hexadecimal."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def json_text(value: Mapping[str, Any], code: str) -> str:
    """`value` as the text that a file holds: sorted, so that the same content gives the same bytes.

    Raises:
        CacheInvalidError: of this `code`, when it is not JSON.
    """
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise CacheInvalidError(code, f"is not JSON: {error}") from error


def make_meta(
    baseline: str,
    model_ids: Sequence[str],
    weight_sha256: Mapping[str, str] | None = None,
    lib_versions: Mapping[str, str] | None = None,
    decode_wh: Sequence[int] | None = None,
    native_wh: Sequence[int] | None = None,
    code_sha: str | None = None,
    video_source: str = "local",
    **extra: Any,
) -> dict[str, Any]:
    """The meta of a cache, with the contract's types; `extra` keys override."""
    return {
        "baseline": str(baseline),
        "model_ids": [str(model) for model in model_ids],
        "weight_sha256": {str(name): str(digest) for name, digest in (weight_sha256 or {}).items()},
        "lib_versions": {str(name): str(version) for name, version in (lib_versions or {}).items()},
        "decode_wh": None if decode_wh is None else [int(side) for side in decode_wh],
        "native_wh": None if native_wh is None else [int(side) for side in native_wh],
        "code_sha256": code_sha or "",
        "video_source": str(video_source),
        "time_base": TIME_BASE,
        "written_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **extra,
    }


def make_runtime(
    decode_ms_per_frame: ArrayLike, infer_ms_per_frame: ArrayLike, n_frames: int, wall_s: float | None = None
) -> dict[str, Any]:
    """Linear percentiles over the finite entries, in milliseconds per frame; NaN when there are none."""
    runtime: dict[str, Any] = {}
    for name, values in (("decode", decode_ms_per_frame), ("infer", infer_ms_per_frame)):
        array = np.asarray(values, np.float64).ravel()
        array = array[np.isfinite(array)]
        for percent in (50, 95):
            runtime[f"{name}_ms_p{percent}"] = float(np.percentile(array, percent)) if len(array) else float("nan")
    return {**runtime, "n_frames": int(n_frames), "wall_s": None if wall_s is None else float(wall_s)}


def npz_path(path: str | os.PathLike[str]) -> Path:
    """The path that `savez_atomic` writes: `path`, with `.npz` appended when missing."""
    final = Path(path)
    return final if final.suffix == ".npz" else final.with_name(final.name + ".npz")


def savez_atomic(path: str | os.PathLike[str], **arrays: Any) -> Path:
    """Write a compressed npz in one step; `.npz` is appended when missing, parent folders are made.

    Returns the final path. A symlinked target is written where it leads.

    Raises:
        ValueError: an array would need pickling.
        OSError: the disk is full or the folder can't be written; the old file is untouched.
    """
    final = npz_path(path)
    data = pack(arrays)
    target = Path(os.path.realpath(final))
    target.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(target) as file:
        file.write(data)
    return final
