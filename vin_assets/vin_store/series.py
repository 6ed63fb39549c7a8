"""The series that grow row by row: what one row adds to each.

Belongs here: from labels to values, pairs and a sample's summary. Does not belong here: reading (`rows`), order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vin_assets.vin_store.arrays import Array
from vin_assets.vin_store.format import COMPONENTS
from vin_assets.vin_store.poses import POSE_KEYS, relative_poses
from vin_assets.vin_store.rows import RowLabels

Pairs = list[tuple[float, float]]


def finite(values: Array | None) -> list[float]:
    """The finite ones of `values` as floats, in order."""
    if values is None:
        return []
    wide = np.asarray(values, np.float64).ravel()
    return list(wide[np.isfinite(wide)].tolist())


@dataclass(frozen=True, slots=True)
class RowSeries:
    """What one row adds. `count` is None without labels; `paired` says whether it has admissible candidate IDs."""

    count: int | None
    rri: list[float]
    points: list[float]
    components: dict[str, list[float]]
    pairs: dict[str, Pairs]
    poses: dict[str, list[float]]
    paired: bool
    unread: frozenset[str]


def series_of(labels: RowLabels) -> RowSeries:
    """What a row with these labels adds; what it lacks is left out."""
    admitted = _admitted(labels.indices)
    poses: dict[str, list[float]] = {}
    if labels.poses is not None and labels.reference is not None:
        poses = {key: values.tolist() for key, values in relative_poses(labels.poses, labels.reference).items()}
    return RowSeries(
        labels.count,
        finite(labels.rri),
        finite(labels.points),
        {name: finite(values) for name, values in labels.components.items()},
        _pairs(labels.rri, labels.components, admitted),
        poses,
        bool(admitted.any()),
        labels.unread,
    )


def _admitted(indices: Array | None) -> npt.NDArray[np.bool_]:
    """Which positions hold a candidate ID (an entry >= 0) that stands there once."""
    if indices is None:
        return np.zeros(0, bool)
    _, inverse, counts = np.unique(indices, return_inverse=True, return_counts=True)
    once: npt.NDArray[np.bool_] = counts[inverse] == 1
    return once & np.greater_equal(indices, 0)


def _pairs(rri: Array | None, components: dict[str, Array], admitted: npt.NDArray[np.bool_]) -> dict[str, Pairs]:
    """(RRI, component) of the admitted candidates where both are finite, by component."""
    if rri is None:
        return {name: [] for name in components}
    length = min(rri.size, admitted.size)
    table = np.full((1 + len(components), length), np.nan)  # a row that is shorter than the others stays NaN there
    for row, values in zip(table, (rri, *components.values()), strict=True):
        row[: values.size] = values[:length]
    usable = np.isfinite(table)
    usable &= usable[0] & admitted[:length]
    return {
        name: list(zip(table[0, chosen].tolist(), row[chosen].tolist(), strict=True))
        for name, row, chosen in zip(components, table[1:], usable[1:], strict=True)
    }


@dataclass(slots=True)
class Series:
    """The series of all scanned rows, in scan order."""

    counts: list[float] = field(default_factory=list)
    rri: list[float] = field(default_factory=list)
    points: list[float] = field(default_factory=list)
    components: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COMPONENTS})
    pairs: dict[str, Pairs] = field(default_factory=lambda: {name: [] for name in COMPONENTS})
    poses: dict[str, list[float]] = field(default_factory=lambda: {key: [] for key in POSE_KEYS})
    unpaired: list[str] = field(default_factory=list)

    def add(self, key: str, row: RowSeries) -> None:
        """Append what the sample `key` adds."""
        self.points += row.points
        if row.count is None:
            return
        self.counts.append(float(row.count))
        self.rri += row.rri
        if not row.paired:
            self.unpaired.append(key)
        for name, values in row.components.items():
            self.components[name] += values
            self.pairs[name] += row.pairs[name]
        for name, values in row.poses.items():
            self.poses[name] += values
