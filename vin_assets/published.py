"""The published form of a store's statistics and coverage, and how to read it back.

Belongs here: what lies in `result.json` (all that is short) and what in Parquet tables (one row per value, sample or
block), so that a store of any size has a small document. Does not belong here: where results lie (`files`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from resources.results import DOCUMENT, plain
from vin_assets.vin_store.diagnostics import VinOfflineCoverageStats, VinOfflineDatasetStats

_SERIES = ("candidate_count_values", "rri_values", "vin_point_values")
_SERIES_BY_NAME = ("rri_component_values", "candidate_pose_values")
_PAIRS = "rri_component_pairs"
_NESTED = {"sample_summaries": ("rri", "vin_points"), "block_diagnostics": ()}
_IN_TABLES = (*_SERIES, *_SERIES_BY_NAME, _PAIRS, *_NESTED)
_STATS = TypeAdapter(VinOfflineDatasetStats)
_COVERAGE = TypeAdapter(VinOfflineCoverageStats)


def stats_document(stats: VinOfflineDatasetStats, request_digest: str) -> dict[str, Any]:
    """Everything but what lies in the tables; `request_digest` says of which generation."""
    document: dict[str, Any] = {name: item for name, item in plain(stats).items() if name not in _IN_TABLES}
    return document | {
        "request_digest": request_digest,
        "counted_candidates": int(sum(stats.candidate_count_values)),
    }


def stats_tables(stats: VinOfflineDatasetStats) -> dict[str, pd.DataFrame]:
    """The bulky part as tables `samples`, `blocks`, `series` (group, name, value) and `pairs` (name, rri, value)."""
    series = [("", name, getattr(stats, name)) for name in _SERIES]
    series += [(group, name, item) for group in _SERIES_BY_NAME for name, item in getattr(stats, group).items()]
    pairs = [(name, np.asarray(item, np.float64).reshape(-1, 2)) for name, item in getattr(stats, _PAIRS).items()]
    return {
        "samples": frame(stats.sample_summaries, *_NESTED["sample_summaries"]),
        "blocks": frame(stats.block_diagnostics),
        "series": pd.concat(
            [
                pd.DataFrame({"group": group, "name": name, "value": np.asarray(item, np.float64)})
                for group, name, item in series
            ]
        ),
        "pairs": pd.concat(
            [pd.DataFrame({"name": name, "rri": item[:, 0], "value": item[:, 1]}) for name, item in pairs]
            or [pd.DataFrame({"name": [], "rri": [], "value": []})]
        ),
    }


def load_stats(folder: Path) -> VinOfflineDatasetStats:
    """The statistics in a published folder, equal to those that were published.

    Raises:
        OSError: a file of the result is missing or can't be read.
        ValueError: one has another form; materialise the store again.
    """
    document = _known(VinOfflineDatasetStats, json.loads((folder / DOCUMENT).read_bytes()))
    series = pd.read_parquet(folder / "series.parquet")
    pairs = pd.read_parquet(folder / "pairs.parquet")
    for name in _SERIES:
        document[name] = series["value"][series["name"] == name].tolist()
    samples = pd.read_parquet(folder / "samples.parquet").to_dict("records")
    document["sample_summaries"] = [_folded(row, *_NESTED["sample_summaries"]) for row in samples]
    blocks = pd.read_parquet(folder / "blocks.parquet").to_dict("records")
    document["block_diagnostics"] = [{**_folded(row), "shape": json.loads(str(row["shape"]))} for row in blocks]
    for group in _SERIES_BY_NAME:
        named = series[series["group"] == group]
        document[group] = {name: part["value"].tolist() for name, part in named.groupby("name", sort=False)}
    document[_PAIRS] = {
        name: list(zip(part["rri"].tolist(), part["value"].tolist(), strict=True))
        for name, part in pairs.groupby("name", sort=False)
    }
    return _STATS.validate_python(document)


def _folded(row: Mapping[Any, Any], *nested: str) -> dict[str, Any]:
    """One record of `frame` as it was: NaN, which Parquet gives for null, is None, and nested columns are folded."""
    record = {str(key): None if isinstance(item, float) and item != item else item for key, item in row.items()}
    for name in nested:
        keys = [key for key in record if key.startswith(f"{name}_")]
        record[name] = {key.removeprefix(f"{name}_"): record.pop(key) for key in keys}
    return record


def load_coverage(document: Mapping[str, Any]) -> VinOfflineCoverageStats:
    """The coverage in a published document.

    Raises:
        ValueError: it has another form; materialise the store again.
    """
    return _COVERAGE.validate_python(_known(VinOfflineCoverageStats, document))


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: item for name, item in document.items() if name in names}


def frame(rows: list[Any], *nested: str) -> pd.DataFrame:
    """A frame of dataclasses, the named nested ones as columns `<name>_<field>`, lists as text."""
    records = []
    for row in rows:
        record = plain(row)
        for name in nested:
            record |= {f"{name}_{key}": item for key, item in record.pop(name).items()}
        records.append({key: str(item) if isinstance(item, list) else item for key, item in record.items()})
    return pd.DataFrame.from_records(records)
