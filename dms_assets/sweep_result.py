"""What a sweep found, as tables in memory and on the disk.

Belongs here: the tables, writing and reading them, totals over them. Does not belong here: reading caches (`sweep`).

A result is a folder as `resources.results` reads them: the document (totals, and what the tables depend on) and one
Parquet file per table. Times of
spans are seconds; `first` and `last` are ticks.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dms_assets.contract import HZ, RUNTIME_KEYS
from dms_assets.examine import FAILURES
from dms_assets.statistics import QUANTILES
from resources.files import FileRoot
from resources.findings import Finding, Severity
from resources.results import DOCUMENT, plain, prune

FORMAT: Final = 1
IDENTITY: Final = ("device", "inode", "size", "mtime_ns", "ctime_ns")
_MAX_BYTES: Final = 1 << 31
_KEEP: Final = 2
_COUNTS: Final = ("errors", "warnings", "rows", "valid", *FAILURES, "invalid_windows")
_MILLISECONDS: Final = tuple(key for key in RUNTIME_KEYS if "_ms_" in key)
_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "files": {
        "uid": "str",
        **dict.fromkeys(IDENTITY, "uint64"),
        "state": "str",
        **dict.fromkeys(_COUNTS, "int64"),
        "kind": "str",
        **dict.fromkeys((*RUNTIME_KEYS, "wall_s"), "float64"),
        "data_version": "str",
        "meta": "str",
    },
    "spans": {"uid": "str", "what": "str", "first": "int64", "last": "int64"},
    "findings": {
        "uid": "str",
        "code": "str",
        "severity": "str",
        "place": "str",
        "text": "str",
        "how_to_fix": "str",
        "count": "int64",
        "samples": "object",
    },
    "channels": {
        "uid": "str",
        "channel": "str",
        "count": "int64",
        "mean": "float64",
        "std": "float64",
        "quantiles": "object",
    },
    "coverage": {
        "uid": "str",
        "stored": "bool",
        "wanted_ticks": "int64",
        "covered_ticks": "int64",
        "missing_ticks": "int64",
        "beyond_ticks": "int64",
    },
    "missing": {"uid": "str", "t_start": "float32", "t_end": "float32"},
}
TABLES: Final = tuple(_COLUMNS)


class SweepResultError(ValueError):
    """A kept result can't be used; a sweep starts anew without it."""


def empty_tables() -> dict[str, pd.DataFrame]:
    """Every table without rows, with its columns and their types."""
    return {
        name: pd.DataFrame({column: pd.Series(dtype=dtype) for column, dtype in columns.items()})
        for name, columns in _COLUMNS.items()
    }


@dataclass(eq=False)
class SweepResult:
    """The tables of one sweep over a baseline.

    `rules` and `wanted` name what they depend on. `read` counts the files that were opened for it. `strange` are names
    in the folder that no route has. Tables that were kept on the disk are read when they are asked for.
    """

    baseline: str
    rules: str
    wanted: str
    tables: dict[str, pd.DataFrame]
    strange: tuple[Finding, ...] = ()
    read: int = 0
    source: tuple[FileRoot, str] | None = None

    def table(self, name: str) -> pd.DataFrame:
        """One of TABLES.

        Raises:
            SweepResultError: it is kept on the disk and can't be read.
        """
        if name not in self.tables:
            if self.source is None:
                raise SweepResultError(f"{self.baseline}: no table {name}")
            self.tables[name] = _read_table(*self.source, name)
        return self.tables[name]

    @property
    def files(self) -> pd.DataFrame:
        """One row per file, by uid."""
        return self.table("files")

    def unchanged(self, strange: tuple[Finding, ...]) -> SweepResult:
        """This result again, for a sweep that found nothing new."""
        return replace(self, strange=strange, read=0)

    def findings(self) -> list[Finding]:
        """Every finding of every file, and the strange names."""
        rows = self.table("findings").to_dict("records")
        return [
            *self.strange,
            *(
                Finding(
                    row["code"],
                    Severity(row["severity"]),
                    row["place"],
                    row["text"],
                    row["how_to_fix"],
                    int(row["count"]),
                    tuple(row["samples"]),
                )
                for row in rows
            ),
        ]

    @cached_property
    def totals(self) -> dict[str, Any]:
        """The sweep in a few numbers, for JSON: files by state, findings by code, coverage, failures, runtime.

        Runtime percentiles are over files (of each file's own p50 or p95), in milliseconds per frame.
        """
        files, coverage = self.files, self.table("coverage")
        rows, valid = int(files["rows"].sum()), int(files["valid"].sum())
        ticks = {name: int(coverage[f"{name}_ticks"].sum()) for name in ("wanted", "covered", "missing", "beyond")}
        wanted = coverage[coverage["wanted_ticks"] > 0]
        runtime = {}
        for key in _MILLISECONDS:
            values = files[key].to_numpy(np.float64)
            values = values[np.isfinite(values)]
            runtime[key] = {f"p{q}": float(np.percentile(values, q)) for q in (5, 50, 95)} if len(values) else None
        return {
            "baseline": self.baseline,
            "files": len(files),
            "files_by_state": {str(state): int(count) for state, count in files["state"].value_counts().items()},
            "findings_by_code": {
                str(code): int(count) for code, count in self.table("findings")["code"].value_counts().items()
            },
            "strange_names": len(self.strange),
            "routes": len(coverage),
            "routes_wanted": len(wanted),
            "routes_covered": int((wanted["covered_ticks"] == wanted["wanted_ticks"]).sum()),
            "seconds": {name: count / HZ for name, count in ticks.items()},
            "rows": rows,
            "valid_fraction": valid / rows if rows else None,
            "failures": {name: int(files[name].sum()) for name in (*FAILURES, "invalid_windows")},
            "runtime_ms": runtime,
        }

    def histogram(self, channel: str, bins: int = 40) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
        """A channel's values over every file's valid rows: counts (B,) between edges (B + 1,); None without values.

        Put together from the files' quantiles, between which values are taken to lie evenly.
        """
        table = self.table("channels")
        table = table[(table["channel"] == channel) & (table["count"] > 0)]
        if not len(table):
            return None
        quantiles = np.stack([np.asarray(row, np.float64) for row in table["quantiles"]])
        low, high = float(quantiles[:, 0].min()), float(quantiles[:, -1].max())
        edges = np.linspace(low, high if high > low else low + 1.0, bins + 1)
        counts = np.zeros(bins)
        for row, count in zip(quantiles, table["count"].to_numpy(np.float64), strict=True):
            # Where a value repeats, the distribution jumps: all of it lies at or below the value.
            values, last = np.unique(row[::-1], return_index=True)
            share = QUANTILES[::-1][last]
            cumulated = np.interp(edges, values, share, left=0.0, right=1.0)
            cumulated[0], cumulated[-1] = 0.0, 1.0
            counts += np.diff(cumulated) * count
        return np.rint(counts).astype(np.int64), edges

    @property
    def version(self) -> str:
        """A digest of what the result says and depends on; equal for equal results."""
        head = json.dumps([FORMAT, self.baseline, self.rules, self.wanted, self.totals], sort_keys=True)
        digest = hashlib.sha256(head.encode())
        for name, columns in (("files", ("uid", *IDENTITY, "data_version")), ("coverage", tuple(_COLUMNS["coverage"]))):
            digest.update(pd.util.hash_pandas_object(self.table(name)[list(columns)], index=False).to_numpy().tobytes())
        return digest.hexdigest()[:16]

    def publish(self, root: FileRoot, path: str) -> str:
        """Publish the result below `root` at `path` and return its version; equal results are one version.

        It is what the next sweep builds on, so that only it and the one before stay.

        Raises:
            OSError: it can't be written; the previous result stays.
        """
        version = self.version
        with root.publish_folder(path, version) as folder:
            for name in TABLES:
                pq.write_table(_arrow(name, self.table(name)), folder / f"{name}.parquet", compression="zstd")
            head = {"format": FORMAT, "rules": self.rules, "wanted": self.wanted, "totals": self.totals}
            (folder / DOCUMENT).write_text(json.dumps(plain(head), indent=1, sort_keys=True), encoding="utf-8")
        prune(root, path, version, _KEEP)
        return version


def _arrow(name: str, table: pd.DataFrame) -> pa.Table:
    lists = {"samples": pa.list_(pa.string()), "quantiles": pa.list_(pa.float32(), len(QUANTILES))}
    fields = []
    for column, dtype in _COLUMNS[name].items():
        kind = lists.get(column) or (pa.string() if dtype == "str" else pa.from_numpy_dtype(np.dtype(dtype)))
        fields.append(pa.field(column, kind))
    return pa.Table.from_pandas(table, schema=pa.schema(fields), preserve_index=False)


def _read_table(root: FileRoot, folder: str, name: str) -> pd.DataFrame:
    path = f"{folder}/{name}.parquet"
    try:
        table = pq.read_table(io.BytesIO(root.read(path, limit=_MAX_BYTES)))
        frame: pd.DataFrame = table.select(list(_COLUMNS[name])).to_pandas()
    except (OSError, ValueError, KeyError) as error:
        raise SweepResultError(f"{path}: {error}") from error
    return frame


def read_result(root: FileRoot, path: str, baseline: str) -> SweepResult:
    """The latest result that `SweepResult.publish` put at `path`.

    Raises:
        SweepResultError: it is missing, damaged, or of another format or baseline.
    """
    folder = f"{path}/latest"
    try:
        head: Mapping[str, Any] = json.loads(root.read(f"{folder}/{DOCUMENT}", limit=_MAX_BYTES))
        if head["format"] != FORMAT or head["totals"]["baseline"] != baseline:
            raise SweepResultError(f"{folder}: is of another format or baseline")
        result = SweepResult(baseline, head["rules"], head["wanted"], {}, source=(root, folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SweepResultError(f"{folder}/{DOCUMENT}: {error}") from error
    result.table("files")
    return result
