"""Single-pass moments that are stable: each piece about its own mean, pieces merged by their counts.

Belongs here: reductions over numbers. Does not belong here: where the numbers come from.

The merge is the pairwise update of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances" (1979): with d = mean_b - mean_a, M2 = M2_a + M2_b + d^2 n_a n_b / n. No large squares are subtracted,
so a small spread about a large mean keeps its digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

ZERO_BELOW = 1e-6
_PIECE = 1 << 17  # numbers at a time: what is made of them on the way stays in a core's own cache
# Below this share of the sum of squares, the squared deviations are computed about the mean and not by subtraction:
# above it a subtraction loses three digits of sixteen at most.
_WELL_SPREAD = 1e-3
_INT32 = np.iinfo(np.int32)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean, sum of squared deviations, sum of absolute values, and how many are beyond `ZERO_BELOW`."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    abs_sum: float = 0.0
    nonzero: int = 0

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Moments:
        """The moments of the finite values in `values`."""
        flat = values.reshape(-1)
        total = cls()
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, flat.size, _PIECE):
                total = total.merge(_of_piece(flat[start : start + _PIECE]))
        return total

    @classmethod
    def constant(cls, value: float, count: int) -> Moments:
        """The moments of `count` times `value`."""
        if not count or not math.isfinite(value):
            return cls()
        return cls(count, value, 0.0, abs(value) * count, count if abs(value) > ZERO_BELOW else 0)

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets of values together."""
        if not other.count:
            return self
        if not self.count:
            return other
        count = self.count + other.count
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + delta * (other.count / count),
            self.m2 + other.m2 + delta * delta * (self.count * other.count / count),
            self.abs_sum + other.abs_sum,
            self.nonzero + other.nonzero,
        )

    @property
    def std(self) -> float | None:
        """The population standard deviation, None without values."""
        return math.sqrt(self.m2 / self.count) if self.count else None

    @property
    def abs_mean(self) -> float | None:
        """The mean of the absolute values, None without values."""
        return self.abs_sum / self.count if self.count else None

    @property
    def nz_frac(self) -> float | None:
        """The share of values with |x| > 1e-6, None without values."""
        return self.nonzero / self.count if self.count else None


def _of_piece(values: npt.NDArray[Any]) -> Moments:
    """The moments of a flat array that is not empty.

    OpenCV takes both sums of narrow numbers in float64 in one pass over them; NumPy would widen them first, which
    alone takes longer.
    """
    nonzero = None
    if values.dtype.kind in "iub":
        values = _narrowed(values)
        nonzero = int(np.count_nonzero(values))
    elif values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    count = values.size
    mean, std = _mean_std(values)
    if not math.isfinite(mean + std):  # a NaN or an infinity among them, or squares beyond float64
        return _of_awkward(values.astype(np.float64))
    m2 = std * std * count
    if std * std < _WELL_SPREAD * (mean * mean + std * std):
        deviations = values - np.float64(mean)
        m2 = float(np.vecdot(deviations, deviations))
    low = values.min()
    sizes = np.abs(values) if low < 0 else values
    size = _mean_std(sizes)[0] if low < 0 else mean
    if nonzero is None:
        nonzero = count if low > ZERO_BELOW else int(np.count_nonzero(sizes > ZERO_BELOW))
    return Moments(count, mean, m2, size * count, nonzero)


def _narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers as int32, which OpenCV adds in float64 too; as float64 where one of them is beyond it."""
    if int(values.min()) > _INT32.min and int(values.max()) <= _INT32.max:
        return values.astype(np.int32)
    return values.astype(np.float64)


def _mean_std(values: npt.NDArray[Any]) -> tuple[float, float]:
    mean, std = cv2.meanStdDev(values)  # not cv2.mean: it may add float32 numbers in float32
    return float(mean[0, 0]), float(std[0, 0])


def _of_awkward(values: Floats) -> Moments:
    """The moments of the finite ones of `values`, some of which may be too large to be squared."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return Moments()
    mean = float(finite.mean())
    if not math.isfinite(mean):  # their sum is beyond float64, their mean can't be
        mean = float((finite / finite.size).sum())
    sizes = np.abs(finite)
    m2 = float(((finite - mean) ** 2).sum())
    return Moments(finite.size, mean, m2, float(sizes.sum()), int(np.count_nonzero(sizes > ZERO_BELOW)))
