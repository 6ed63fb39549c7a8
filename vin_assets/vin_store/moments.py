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
_BLOCK = 16384  # float64 elements of the working buffer: two of them stay in a core's own cache


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.buffer = np.empty(_BLOCK, np.float64)


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
            for start in range(0, flat.size, _BLOCK):
                total = total.merge(_of_block(flat[start : start + _BLOCK]))
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


def _of_block(block: npt.NDArray[Any]) -> Moments:
    work = _per_thread.buffer[: block.size]
    work[:] = block
    total = float(work.sum())
    if not math.isfinite(total):  # a NaN or an infinity among them, or a sum beyond float64
        finite = work[np.isfinite(work)]
        if finite.size < work.size:
            return _of_block(finite) if finite.size else Moments()
        total = math.inf
    mean = total / block.size if math.isfinite(total) else float((work / block.size).sum())
    low = float(work.min())
    if low >= 0:
        nonzero = int(np.count_nonzero(work > ZERO_BELOW))
        abs_sum = total
        work -= mean
        m2 = float(np.einsum("i,i->", work, work))
    else:
        work -= mean
        m2 = float(np.einsum("i,i->", work, work))
        np.abs(block, out=work, casting="unsafe")
        abs_sum = float(work.sum())
        nonzero = int(np.count_nonzero(work > ZERO_BELOW))
    return Moments(block.size, mean, m2, abs_sum, nonzero)
