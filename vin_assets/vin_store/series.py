"""The series that grow row by row: what one row adds to each.

Belongs here: from labels to values, pairs and a sample's summary. Does not belong here: reading (`rows`), order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from vin_assets.vin_store.arrays import Array
from vin_assets.vin_store.format import COMPONENTS
from vin_assets.vin_store.poses import POSE_KEYS, relative_poses
from vin_assets.vin_store.rows import RowLabels

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowSeries:
    """What one row adds. `count` is None without labels; `paired` says whether it has admissible candidate IDs.

    `rri`, `points` and each of `components` are (n,), finite; each of `pairs` is (2, n): the RRI above the component.
    `poses` is (10, n), a line for each of `POSE_KEYS`. They stay arrays until all rows are there: tens of thousands of
    small lists would be the larger part of the work, and of what the garbage collector looks through.
    """

    count: int | None
    rri: Floats
    points: Floats
    components: dict[str, Floats]
    pairs: dict[str, Floats]
    poses: Floats
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
    values = [_split(line[there], there, starts) for line, there in zip(table, usable, strict=True)]
    pairs = [
        _split(np.stack([table[0, there], line[there]]), there, starts)
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


def finite(values: Array | None) -> Floats:
    """The finite ones of `values`, in order, (n,)."""
    wide = np.asarray([] if values is None else values, np.float64).ravel()
    return wide[np.isfinite(wide)]


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


def _split(values: Floats, there: npt.NDArray[np.bool_], starts: npt.NDArray[np.intp]) -> list[Floats]:
    """`values`, (..., n), which are those of the table's places that are `there`, row by row."""
    ends = np.concatenate([[0], np.cumsum(there)])[starts].tolist()
    return [values[..., start:end] for start, end in pairwise(ends)]


def _poses(rows: list[RowLabels]) -> list[Floats]:
    """The values of each row's candidate poses, (10, n); none for a row without poses or without a reference."""
    found = [(row.poses, row.reference) for row in rows if row.poses is not None and row.reference is not None]
    none = np.empty((len(POSE_KEYS), 0))
    if not found:
        return [none for _ in rows]
    sizes = [len(poses) for poses, _ in found]
    references = np.repeat([reference.reshape(12) for _, reference in found], sizes, axis=0)
    values = np.stack(list(relative_poses(np.concatenate([poses for poses, _ in found]), references).values()))
    own = (values[:, start:end] for start, end in pairwise(np.cumsum([0, *sizes]).tolist()))
    return [none if row.poses is None or row.reference is None else next(own) for row in rows]


@dataclass(frozen=True, slots=True)
class Series:
    """The series of all scanned rows, in scan order; shapes as in `RowSeries`."""

    counts: Floats
    rri: Floats
    points: Floats
    components: dict[str, Floats]
    pairs: dict[str, Floats]
    poses: Floats

    @classmethod
    def of(cls, rows: Iterable[RowSeries]) -> Series:
        """What `rows` add together; a row without labels adds its points."""
        every = list(rows)
        labelled = [row for row in every if row.count is not None]
        return cls(
            np.array([row.count for row in labelled], np.float64),
            _joined([row.rri for row in labelled]),
            _joined([row.points for row in every]),
            {
                name: _joined([row.components[name] for row in labelled if name in row.components])
                for name in COMPONENTS
            },
            {name: _joined([row.pairs[name] for row in labelled if name in row.pairs], 2) for name in COMPONENTS},
            _joined([row.poses for row in labelled], len(POSE_KEYS)),
        )


def _joined(parts: list[Floats], *lines: int) -> Floats:
    return np.concatenate([np.empty((*lines, 0)), *parts], axis=-1)
