"""Wanted spans: the table that says which seconds of which route somebody needs.

Belongs here: reading the table (CSV or Parquet), one problem per bad row, the union per route. Does not belong here:
what is stored or missing (`spans`, `plan`).

Columns: `uid, t_start, t_end` (seconds), or `uid, t_anchor` with a window length: an anchor at T wants [T - window, T].
Other columns are ignored. A route without rows wants nothing. A bad row costs only itself and is named.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dms_assets.contract import MAX_SECONDS, RouteNameError
from dms_assets.routes import canonical_uid
from dms_assets.spans import Spans, join_neighbours
from resources.files import FileRoot
from resources.findings import MAX_SAMPLES, Finding, Severity

MAX_TABLE_BYTES: Final = 1 << 28
_NOTHING: Final = np.zeros((0, 2), np.float32)


class WantedTableError(ValueError):
    """The table as a whole can't be used: it is no table, or lacks a column."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted: joined spans, float32 (S, 2) seconds, by uid in sorted order.

    `findings` names the rows that were refused. `digest` is the sha256 of the table's bytes and the window length.
    """

    spans: Mapping[str, Spans]
    findings: tuple[Finding, ...]
    digest: str

    def of(self, uid: str) -> Spans:
        """The spans wanted of a route; (0, 2) when nothing is."""
        return self.spans.get(uid, _NOTHING)


def read_wanted(root: FileRoot, path: str, window_s: float | None = None) -> Wanted:
    """Read the table `path` of `root`, by its suffix: `.parquet`, else CSV with a header line.

    Raises:
        WantedTableError: it can't be parsed, lacks a column, or has anchors while there is no `window_s`.
        OSError: it is missing, can't be read, or holds more than MAX_TABLE_BYTES.
    """
    data = root.read(path, limit=MAX_TABLE_BYTES)
    table = _parse(path, data)
    if {"uid", "t_start", "t_end"} <= set(table.columns):
        start, end = _numbers(table["t_start"]), _numbers(table["t_end"])
    elif {"uid", "t_anchor"} <= set(table.columns):
        if window_s is None or not 0 < window_s <= MAX_SECONDS:
            raise WantedTableError(f"{path}: rows with t_anchor need a window length; set `window_s` in [dms]")
        end = _numbers(table["t_anchor"])
        # Before a video's beginning there is nothing to want. A bad anchor stays bad.
        start = np.where(end < 0, end, np.maximum(end - window_s, 0.0))
    else:
        columns = ", ".join(map(str, table.columns[:10]))
        raise WantedTableError(f"{path}: needs the columns uid, t_start, t_end, or uid, t_anchor; it has {columns}")

    names, owner, problems = _canonical(table["uid"])
    for bad, text in (
        (~(np.isfinite(start) & np.isfinite(end)), "a time is not a finite number"),
        (start > end, "ends before it starts"),
        (start < 0, "begins before 0 s"),
        (end > MAX_SECONDS, f"ends after {MAX_SECONDS:g} s"),
    ):
        for row in np.flatnonzero(bad).tolist():
            problems.setdefault(row, f"[{start[row]:g}, {end[row]:g}] {text}")
    good = np.ones(len(table), bool)
    good[list(problems)] = False
    digest = hashlib.sha256(data + repr(window_s).encode()).hexdigest()
    return Wanted(_by_route(names, owner[good], start[good], end[good]), _findings(path, problems), digest)


def _parse(path: str, data: bytes) -> pd.DataFrame:
    try:
        if path.lower().endswith(".parquet"):
            file = pq.ParquetFile(io.BytesIO(data))
            wanted = [field for field in file.schema_arrow if field.name in ("uid", "t_start", "t_end", "t_anchor")]
            for field in wanted:
                if pa.types.is_nested(field.type):
                    raise ValueError(f"the column {field.name} holds {field.type}, not one value per row")
            frame: pd.DataFrame = file.read([field.name for field in wanted]).to_pandas()
            return frame
        with warnings.catch_warnings():
            # Rows longer than the header would silently lose their end.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.BytesIO(data),
                dtype=str,
                na_filter=False,
                index_col=False,
                skipinitialspace=True,
                encoding="utf-8-sig",
            )
    except (
        ValueError,
        OSError,
        KeyError,
        pd.errors.ParserWarning,
    ) as error:  # of Arrow's and pandas's own errors these are the bases
        raise WantedTableError(f"{path}: can't be read as a table: {error}") from error


def _numbers(column: pd.Series[Any]) -> NDArray[np.float64]:
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def _canonical(column: pd.Series[Any]) -> tuple[list[str], NDArray[np.int64], dict[int, str]]:
    """Canonical uids, the number of each row's one (-1: none), and the problem of each row without one."""
    owner_of_spelling, spellings = pd.factorize(column)
    numbers: dict[str, int] = {}
    number_of = np.full(len(spellings) + 1, -1)  # the last one answers for factorize's -1, a missing value
    refused = {}
    for i, spelling in enumerate(spellings):
        try:
            number_of[i] = numbers.setdefault(canonical_uid(str(spelling).strip()), len(numbers))
        except RouteNameError as error:
            refused[i] = str(error)
    owner = number_of[owner_of_spelling]
    missing = "uid: is missing"
    problems = {row: refused.get(int(owner_of_spelling[row]), missing) for row in np.flatnonzero(owner < 0).tolist()}
    return list(numbers), owner, problems


def _by_route(
    names: list[str], owner: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64]
) -> dict[str, Spans]:
    order = np.argsort(owner, kind="stable")
    spans = np.column_stack((start, end))[order]
    present, first = np.unique(owner[order], return_index=True)
    parts = np.split(spans, first[1:]) if len(present) else []
    by_uid = {names[number]: join_neighbours(part) for number, part in zip(present.tolist(), parts, strict=True)}
    return dict(sorted(by_uid.items()))


def _findings(path: str, problems: dict[int, str]) -> tuple[Finding, ...]:
    if not problems:
        return ()
    samples = tuple(f"row {row + 1}: {problems[row]}" for row in sorted(problems)[:MAX_SAMPLES])
    text = f"{len(problems)} rows are refused; first {samples[0]}"
    fix = "correct the named rows (counted from 1 after the header); times are seconds, 0 <= t_start <= t_end"
    return (Finding("wanted_rows", Severity.ERROR, path, text, fix, len(problems), samples),)
