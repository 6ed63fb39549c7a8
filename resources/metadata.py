"""The one adapter from plain results to Dagster metadata. No rule, no wording and no asset lives here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg

from resources.findings import Finding

MAX_ROWS = 50

Metadata: TypeAlias = dict[str, dg.MetadataValue[Any]]


def value(item: Any) -> dg.MetadataValue[Any]:
    """`item` as the Dagster value that draws best: numbers as numbers, paths as paths, the rest as JSON or text.

    NaN and infinities are text: Dagster's JSON has no word for them.
    """
    if isinstance(item, dg.MetadataValue):
        return item
    if isinstance(item, bool):
        return dg.MetadataValue.bool(item)
    if isinstance(item, int):
        return dg.MetadataValue.int(item)
    if isinstance(item, float):
        return dg.MetadataValue.float(item) if math.isfinite(item) else dg.MetadataValue.text(str(item))
    if isinstance(item, Path):
        return dg.MetadataValue.path(str(item))
    if item is None:
        return dg.MetadataValue.null()
    if isinstance(item, str):
        return dg.MetadataValue.text(item)
    if isinstance(item, (Mapping, list, tuple)):
        return dg.MetadataValue.json(_plain(item))
    raise TypeError(f"no metadata value for {type(item).__name__}")


def _plain(item: Any) -> Any:
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return _plain(dataclasses.asdict(item))
    if isinstance(item, Mapping):
        return {str(key): _plain(entry) for key, entry in item.items()}
    if isinstance(item, (list, tuple)):
        return [_plain(entry) for entry in item]
    if isinstance(item, float) and not math.isfinite(item):
        return str(item)
    return item if isinstance(item, (int, float, str, bool, type(None))) else str(item)


def metadata(items: Mapping[str, Any]) -> Metadata:
    """A mapping of plain values as Dagster metadata."""
    return {key: value(item) for key, item in items.items()}


def table(rows: Sequence[Mapping[str, Any]], total: int | None = None) -> dg.MetadataValue[Any]:
    """The first `MAX_ROWS` rows as a table; with more of them (`total`, default the number given) a last row says so.

    Columns are the first row's keys, in its order; numbers stay numbers, of six significant digits for the eye (the
    published tables hold all of them).
    """
    total = len(rows) if total is None else total
    if not rows:
        return dg.MetadataValue.text("no rows")
    columns = list(rows[0])
    records = [
        dg.TableRecord({key: _cell(row.get(key)) for key in columns}) for row in rows[: min(MAX_ROWS, len(rows))]
    ]
    kinds = {
        key: next((_kind(row.get(key)) for row in rows[:MAX_ROWS] if row.get(key) is not None), "string")
        for key in columns
    }
    if total > len(records):
        more: dict[str, Any] = dict.fromkeys(columns, "")
        more[columns[0]] = f"... and {total - len(records)} more"
        records.append(dg.TableRecord(more))
        kinds = dict.fromkeys(columns, "string")
    schema = dg.TableSchema(columns=[dg.TableColumn(key, kinds[key]) for key in columns])
    return dg.MetadataValue.table(records, schema=schema)


def _kind(cell: Any) -> str:
    if isinstance(cell, bool):
        return "bool"
    return "int" if isinstance(cell, int) else "float" if isinstance(cell, float) else "string"


def _cell(cell: Any) -> str | int | float | bool | None:
    if isinstance(cell, float):
        return float(f"{cell:.6g}") if math.isfinite(cell) else str(cell)
    return cell if isinstance(cell, (str, int, float, bool, type(None))) else str(_plain(cell))


def findings_metadata(findings: Sequence[Finding], thresholds: Mapping[str, Any] | None = None) -> Metadata:
    """What a check says of its findings: exact counts, samples with `truncated`, thresholds, and how to fix."""
    result: Metadata = {"findings": dg.MetadataValue.int(len(findings))}
    if findings:
        result["table"] = table(
            [
                {
                    "code": finding.code,
                    "severity": finding.severity.value,
                    "where": finding.where,
                    "what": finding.text,
                    "count": finding.count,
                    "how_to_fix": finding.how_to_fix,
                }
                for finding in findings
            ]
        )
        result["samples"] = dg.MetadataValue.json(
            [
                {"code": finding.code, "first": list(finding.samples), "truncated": finding.truncated}
                for finding in findings[:MAX_ROWS]
                if finding.samples
            ]
        )
        result["how_to_fix"] = dg.MetadataValue.md("\n".join(f"- {fix}" for fix in _unique(findings)))
    if thresholds:
        result |= metadata({f"threshold_{key}": item for key, item in thresholds.items()})
    return result


def _unique(findings: Iterable[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.how_to_fix for finding in findings))


def columns(described: Mapping[str, tuple[str, str]]) -> dg.TableSchema:
    """A column schema from name -> (type, description)."""
    return dg.TableSchema(columns=[dg.TableColumn(name, kind, text) for name, (kind, text) in described.items()])
