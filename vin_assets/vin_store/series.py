"""The series that grow row by row: what one row adds to each.

Belongs here: from labels to values, pairs and a sample's summary. Does not belong here: reading (`rows`), order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vin_assets.vin_store.arrays import Array
from vin_assets.vin_store.format import COMPONENTS
from vin_assets.vin_store.poses import POSE_KEYS, relative_poses
from vin_assets.vin_store.rows import RowLabels

T = TypeVar("T")
Pairs = list[tuple[float, float]]


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


def series_of(rows: list[RowLabels]) -> list[RowSeries]:
    """What each of `rows` adds; what a row lacks is left out.

    All rows go through each step together: a row holds a few dozen numbers, and calls on so few cost more than the
    work that is in them.
    """
    table, starts = _table(rows)
    admitted = _admitted(rows, starts)
    usable = np.isfinite(table)
    paired = usable & usable[0] & admitted
    values = [_split(line[there].tolist(), there, starts) for line, there in zip(table, usable, strict=True)]
    pairs = [
        _split(list(zip(table[0, there].tolist(), line[there].tolist(), strict=True)), there, starts)
        for line, there in zip(table[1:], paired[1:], strict=True)
    ]
    return [
        RowSeries(
            row.count,
            values[0][number],
            finite(row.points),
            {name: values[1 + k][number] for k, name in enumerate(COMPONENTS) if name in row.components},
            {name: pairs[k][number] for k, name in enumerate(COMPONENTS) if name in row.components},
            poses,
            bool(admitted[starts[number] : starts[number + 1]].any()),
            row.unread,
        )
        for number, (row, poses) in enumerate(zip(rows, _poses(rows), strict=True))
    ]


def finite(values: Array | None) -> list[float]:
    """The finite ones of `values` as floats, in order."""
    if values is None:
        return []
    wide = np.asarray(values, np.float64).ravel()
    return list(wide[np.isfinite(wide)].tolist())


def _table(rows: list[RowLabels]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """RRI and the components, one line each, the rows one after another; and where each row starts (and the last ends).

    A row is as wide as its longest array. Where another is shorter, or not there, the table holds NaN.
    """
    labels = [(row.rri, *(row.components.get(name) for name in COMPONENTS)) for row in rows]
    widths = [
        max((values.size for values in (*arrays, row.indices) if values is not None), default=0)
        for row, arrays in zip(rows, labels, strict=True)
    ]
    starts = np.cumsum([0, *widths])
    table = np.full((1 + len(COMPONENTS), starts[-1]), np.nan)
    for start, arrays in zip(starts.tolist(), labels, strict=False):
        for line, values in zip(table, arrays, strict=True):
            if values is not None:
                line[start : start + values.size] = values
    return table, starts


def _admitted(rows: list[RowLabels], starts: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Which places of the table hold a candidate ID (an entry >= 0) that stands once in its row."""
    admitted = np.zeros(starts[-1], bool)
    found = [(number, row.indices) for number, row in enumerate(rows) if row.indices is not None]
    if not found:
        return admitted
    indices = np.concatenate([held for _, held in found])
    owner = np.repeat([number for number, _ in found], [held.size for _, held in found])
    place = np.concatenate([starts[number] + np.arange(held.size) for number, held in found])
    order = np.lexsort((indices, owner))
    indices, owner = indices[order], owner[order]
    once = np.ones(indices.size, bool)
    again = (indices[1:] == indices[:-1]) & (owner[1:] == owner[:-1])
    once[1:] &= ~again
    once[:-1] &= ~again
    admitted[place[order]] = once & np.greater_equal(indices, 0)
    return admitted


def _split(values: list[T], there: npt.NDArray[np.bool_], starts: npt.NDArray[np.intp]) -> list[list[T]]:
    """`values`, which are those of the table's places that are `there`, row by row."""
    ends = np.concatenate([[0], np.cumsum(there)])[starts].tolist()
    return [values[start:end] for start, end in pairwise(ends)]


def _poses(rows: list[RowLabels]) -> list[dict[str, list[float]]]:
    """The values of each row's candidate poses; none for a row without poses or without a reference."""
    found = [(row.poses, row.reference) for row in rows if row.poses is not None and row.reference is not None]
    if not found:
        return [{} for _ in rows]
    sizes = [len(poses) for poses, _ in found]
    references = np.repeat([reference.reshape(12) for _, reference in found], sizes, axis=0)
    values = relative_poses(np.concatenate([poses for poses, _ in found]), references)
    ends = np.cumsum([0, *sizes]).tolist()
    lists = {key: held.tolist() for key, held in values.items()}
    own = iter([{key: held[start:end] for key, held in lists.items()} for start, end in pairwise(ends)])
    return [{} if row.poses is None or row.reference is None else next(own) for row in rows]


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
