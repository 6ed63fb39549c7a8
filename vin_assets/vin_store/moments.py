"""Single-pass moments that are stable: each piece about its own mean, pieces merged by their counts.

Belongs here: reductions over numbers. Does not belong here: where the numbers come from.

The merge is the pairwise update of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances" (1979): with d = mean_b - mean_a, M2 = M2_a + M2_b + d^2 n_a n_b / n. No large squares are subtracted,
so a small spread about a large mean keeps its digits.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

ZERO_BELOW = 1e-6
# One BLAS call takes at most 10,000 numbers on one thread; more would wake threads that compete with the readers.
_BLOCK = 9216
_BLOCKS = 12  # at a time: a working buffer of 880 kB stays in a core's own cache
_ONES = np.ones(_BLOCK)
# Below this share of the sum of squares, the squared deviations are computed about the mean and not by subtraction:
# above it a subtraction loses three digits of sixteen at most.
_WELL_SPREAD = 1e-3

Floats = npt.NDArray[np.float64]


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.buffer = np.empty(_BLOCK * _BLOCKS)


_per_thread = _PerThread()


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
            step = _BLOCK * _BLOCKS
            for start in range(0, flat.size, step):
                piece = flat[start : start + step]
                whole = piece.size // _BLOCK * _BLOCK
                for part in (piece[:whole].reshape(-1, _BLOCK), piece[whole:].reshape(1, -1)):
                    if part.size:
                        total = total.merge(_of_blocks(part))
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


def _of_blocks(values: npt.NDArray[Any]) -> Moments:
    """The moments of an array of rows, none longer than a block."""
    rows, length = values.shape
    work = _per_thread.buffer[: values.size].reshape(rows, length)
    ones = _ONES[:length]
    work[:] = values
    squares = np.vecdot(work, work).tolist()
    if not math.isfinite(sum(squares)):  # a NaN or an infinity among them, or squares beyond float64
        return _of_awkward(work.copy())
    sums = np.vecdot(work, ones).tolist()
    m2 = [square - total * total / length for square, total in zip(squares, sums, strict=True)]
    if any(spread < _WELL_SPREAD * square for spread, square in zip(m2, squares, strict=True)):
        deviations = work - np.array(sums)[:, None] / length
        m2 = np.vecdot(deviations, deviations).tolist()
    low = values.min()
    if low < 0:
        np.abs(work, out=work)
        sizes = np.vecdot(work, ones).tolist()
    else:
        sizes = sums
    if values.dtype.kind in "iub":
        nonzero = int(np.count_nonzero(values))
    elif low > ZERO_BELOW:
        nonzero = values.size
    else:
        nonzero = int(np.count_nonzero((work if low < 0 else values) > ZERO_BELOW))
    mean = sum(sums) / values.size
    between = sum((total / length - mean) ** 2 for total in sums)
    return Moments(values.size, mean, sum(m2) + length * between, sum(sizes), nonzero)


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
