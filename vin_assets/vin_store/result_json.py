"""The JSON form of results: plain objects, with null where a number is NaN or infinite.

Belongs here: dataclass to JSON and back. Does not belong here: files, formats of stores.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from vin_assets.vin_store.results import VinOfflineCoverageStats, VinOfflineDatasetStats

Result = TypeVar("Result", VinOfflineDatasetStats, VinOfflineCoverageStats)


def to_plain(result: Any) -> Any:
    """A result dataclass as dicts, lists and scalars of strict JSON; NaN and infinities are None."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return {field.name: to_plain(getattr(result, field.name)) for field in dataclasses.fields(result)}
    if isinstance(result, dict):
        return {str(key): to_plain(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [to_plain(value) for value in result]
    if isinstance(result, float) and not math.isfinite(result):
        return None
    return result


def to_json(result: Any) -> bytes:
    """A result dataclass as UTF-8 JSON with a final newline, the same bytes for equal results."""
    return (json.dumps(to_plain(result), ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def from_json(kind: type[Result], data: bytes) -> Result:
    """The result of `kind` in JSON that `to_json` wrote; nulls among pose values are NaN again.

    Raises:
        ValueError: it is no such JSON.
    """
    try:
        found = json.loads(data)
        if isinstance(found, dict):
            for values in found.get("candidate_pose_values", {}).values():
                values[:] = [math.nan if value is None else value for value in values]
        return TypeAdapter(kind).validate_python(found)
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError, AttributeError, TypeError) as error:
        raise ValueError(f"no JSON of {kind.__name__}: {error}") from error
