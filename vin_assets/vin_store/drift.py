"""Drift: statistics of a store against its previous ones and against those of the other stores.

Belongs here: which quantities are compared, by what measure, and the table and findings that come of it. Does not
belong here: where earlier statistics lie, whether labels are usable at all (`judgement`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from resources.findings import MAX_SAMPLES, Finding, Severity
from vin_assets.vin_store.results import VinOfflineDatasetStats

PREVIOUS = "previous"
OTHERS = "other stores"
QUANTILES = (5, 50, 95)
_COUNTS = ("num_samples", "num_scenes", "num_snippets", "rows_read", "numeric_bytes")


@dataclass(frozen=True, slots=True)
class DriftThresholds:
    """When a change is worth a look.

    `max_relative_change` is of a count or a mean, as a share of the earlier value (of a backbone field's mean, as a
    share of the value or its standard deviation, whichever is larger); `max_quantile_shift` of p05, p50 or p95, in
    earlier p05-p95 widths; `max_finite_share_drop` of the share of finite labels.
    """

    max_relative_change: float = 0.25
    max_quantile_shift: float = 0.25
    max_finite_share_drop: float = 0.02


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One compared quantity. `change` is in the measure of `limit`; it is infinite when the quantity came or went."""

    against: str
    quantity: str
    measure: str
    before: float | str | None
    now: float | str | None
    change: float
    limit: float

    @property
    def exceeded(self) -> bool:
        """Whether the change is worth a look."""
        return self.change > self.limit


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A value, how its change is measured, and what one unit of change is."""

    measure: str
    value: float
    unit: float


def _series(stats: VinOfflineDatasetStats) -> Iterator[tuple[str, Sequence[float], bool]]:
    """Name, values, and whether the mean is a measure (it is not of quantities about zero)."""
    yield "candidate_count", stats.candidate_count_values, True
    yield "rri", stats.rri_values, True
    yield "vin_points", stats.vin_point_values, True
    for name, values in stats.rri_component_values.items():
        yield name, values, True
    for name, values in stats.candidate_pose_values.items():
        yield name, values, False


def _quantities(stats: VinOfflineDatasetStats) -> dict[str, _Quantity]:
    found = {name: _Quantity("relative", float(getattr(stats, name)), 0.0) for name in _COUNTS}
    for name, values, has_mean in _series(stats):
        array = np.asarray(values, np.float64)
        array = array[np.isfinite(array)]
        if not array.size:
            continue
        quantiles = [float(q) for q in np.percentile(array, QUANTILES)]
        width = quantiles[-1] - quantiles[0]
        if has_mean:
            found[f"{name} mean"] = _Quantity("relative", float(array.mean()), 0.0)
        for percent, quantile in zip(QUANTILES, quantiles, strict=True):
            found[f"{name} p{percent:02d}"] = _Quantity("quantile", quantile, width)
    for row in stats.backbone_diagnostics:
        if row.mean is not None:
            found[f"backbone.{row.field} mean"] = _Quantity("relative", row.mean, row.std or 0.0)
    candidates = sum(stats.candidate_count_values)
    if stats.scene_labels_available and candidates:
        found["share of finite labels"] = _Quantity("drop", stats.rri.count / candidates, 0.0)
    return found


def _change(before: _Quantity, now: _Quantity) -> float:
    difference = now.value - before.value
    if before.measure == "drop":
        return max(0.0, -difference)
    unit = before.unit if before.measure == "quantile" else max(abs(before.value), before.unit)
    if difference == 0:
        return 0.0
    return abs(difference) / unit if unit else math.inf


def _compare(
    against: str, before: Mapping[str, _Quantity], now: Mapping[str, _Quantity], thresholds: DriftThresholds
) -> list[DriftRow]:
    limits = {
        "relative": thresholds.max_relative_change,
        "quantile": thresholds.max_quantile_shift,
        "drop": thresholds.max_finite_share_drop,
    }
    rows = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        measure = (old or new or _Quantity("relative", 0.0, 0.0)).measure
        change = _change(old, new) if old is not None and new is not None else math.inf
        values = (None if old is None else old.value, None if new is None else new.value)
        rows.append(DriftRow(against, name, measure, *values, change, limits[measure]))
    return rows


def _row_shapes(stats: VinOfflineDatasetStats) -> dict[str, str]:
    return {name: str(tuple(shape[1:])) for name, shape in stats.block_shapes.items()}


def _compare_shapes(against: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[DriftRow]:
    return [
        DriftRow(against, f"{name} row shape", "same", old, new, 0.0 if old == new else math.inf, 0.0)
        for name in sorted(before.keys() | now.keys())
        for old, new in [(before.get(name), now.get(name))]
    ]


def drift_rows(
    stats: VinOfflineDatasetStats,
    previous: VinOfflineDatasetStats | None,
    others: Mapping[str, VinOfflineDatasetStats],
    thresholds: DriftThresholds,
) -> list[DriftRow]:
    """Every compared quantity of `stats`, against the previous statistics of the store and against the other stores.

    The other stores are taken together: the median of each quantity, and the commonest shape of each block. How much
    a store holds is its own matter, so counts are compared with the previous ones alone; so is what not every other
    store has.
    """
    now = _quantities(stats)
    rows = []
    if previous is not None:
        rows += _compare(PREVIOUS, _quantities(previous), now, thresholds)
        rows += _compare_shapes(PREVIOUS, _row_shapes(previous), _row_shapes(stats))
    if others:
        found = [_quantities(other) for other in others.values()]
        shared = [name for name in now if name not in _COUNTS and all(name in other for other in found)]
        together = {
            name: _Quantity(
                now[name].measure,
                median(other[name].value for other in found),
                median(other[name].unit for other in found),
            )
            for name in shared
        }
        rows += _compare(OTHERS, together, {name: now[name] for name in shared}, thresholds)
        shapes = [_row_shapes(other) for other in others.values()]
        common = {
            name: Counter(other[name] for other in shapes).most_common(1)[0][0]
            for name in _row_shapes(stats)
            if all(name in other for other in shapes)
        }
        rows += _compare_shapes(OTHERS, common, {name: _row_shapes(stats)[name] for name in common})
    return rows


def drift_findings(rows: Sequence[DriftRow]) -> list[Finding]:
    """One WARN finding per side with quantities beyond their thresholds; its text names the largest changes."""
    findings = []
    for against in (PREVIOUS, OTHERS):
        exceeded = sorted((row for row in rows if row.against == against and row.exceeded), key=lambda r: -r.change)
        if not exceeded:
            continue
        named = "; ".join(_told(row) for row in exceeded[:3])
        more = f"; and {len(exceeded) - 3} more" if len(exceeded) > 3 else ""
        findings.append(
            Finding(
                "drift_from_previous" if against == PREVIOUS else "drift_from_other_stores",
                Severity.WARN,
                against,
                f"{named}{more}",
                "See the drift table; if the change is meant, nothing is to be done, else restore the store.",
                len(exceeded),
                tuple(row.quantity for row in exceeded[:MAX_SAMPLES]),
            )
        )
    return findings


def _told(row: DriftRow) -> str:
    before, now = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in (row.before, row.now))
    measures = {
        "relative": f"changed by {row.change:.0%}, {row.limit:.0%} allowed",
        "quantile": f"moved by {row.change:.2f} of the p05-p95 width, {row.limit:.2f} allowed",
        "drop": f"fell by {row.change:.3f}, {row.limit:.3f} allowed",
        "same": "another shape",
    }
    what = measures[row.measure] if math.isfinite(row.change) or row.measure == "same" else "came, went or left zero"
    return f"{row.quantity} {before} -> {now} ({what})"
