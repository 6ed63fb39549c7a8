"""Numbers about a cache's values: per channel and over chosen rows.

Belongs here: counts, moments and quantiles of arrays. Does not belong here: files, thresholds, tables of many routes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.contract import FAIL_CODES

# Quantiles kept of every channel of every file: enough to put the distributions of many files together.
QUANTILES: Final = np.linspace(0, 1, 33)


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Of each of C columns over K rows: count (C,), mean and std (C,) in the channels' units, quantiles (C, Q).

    NaN where there is no row. The std is the population's (divided by K).
    """

    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    quantiles: NDArray[np.float64]


def column_statistics(values: NDArray[np.float16], at: NDArray[np.float64] = QUANTILES) -> ChannelStatistics:
    """Statistics of finite values (K, C) column by column; quantiles at `at` (Q,) interpolate linearly."""
    rows, columns = values.shape
    count = np.full(columns, rows, np.int64)
    if not rows:
        nothing = np.full(columns, np.nan)
        return ChannelStatistics(count, nothing, nothing.copy(), np.full((columns, len(at)), np.nan))
    wide = values.astype(np.float64)
    # Sorted as 16-bit keys in the values' order, which numpy does by radix: several times faster than as floats.
    bits = np.ascontiguousarray(values.T).view(np.uint16)
    keys = np.where(bits & 0x8000, ~bits, bits | 0x8000)
    keys.sort(axis=1, kind="stable")
    ordered = np.where(keys & 0x8000, keys & 0x7FFF, ~keys).astype(np.uint16).view(np.float16)
    place = at * (rows - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, rows - 1)
    below, above = ordered[:, low].astype(np.float64), ordered[:, high].astype(np.float64)
    return ChannelStatistics(count, wide.mean(axis=0), wide.std(axis=0), below + (above - below) * (place - low))


def channel_values(cache: RouteCache | WindowCache) -> tuple[list[str], NDArray[np.float16], NDArray[np.bool_]]:
    """Channel names (C,), values (N, C) and which rows are valid (N,).

    Of a window cache, whose dimensions have no meaning by themselves, the one channel is the embedding's norm.
    """
    if isinstance(cache, RouteCache):
        return list(cache.channels), cache.feat, cache.valid
    norm = np.linalg.norm(cache.emb.astype(np.float32), axis=1)
    return ["emb_norm"], norm[:, None].astype(np.float16), cache.win_valid & np.isfinite(norm.astype(np.float16))


def failures(cache: RouteCache | WindowCache) -> dict[str, int]:
    """Rows by the name of their failure code; of a window cache, windows that are not valid are `invalid`."""
    if isinstance(cache, WindowCache):
        return {"invalid": int(np.count_nonzero(~cache.win_valid))}
    counts = np.bincount(cache.fail, minlength=len(FAIL_CODES))
    return {name: int(counts[code]) for code, name in FAIL_CODES.items() if code}
