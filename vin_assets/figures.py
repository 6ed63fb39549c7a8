"""What the statistics and the coverage of a VIN store look like: pure functions from results to figures.

Belongs here: one function per figure, and the list of all of them. Does not belong here: style and rendering
(`resources.figures`), computing statistics (`vin_store`), Dagster.

`previous` is the result of the materialisation before this one, drawn in grey behind the present one; None without one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from resources import figures as style
from vin_assets.vin_store.diagnostics import (
    VinOfflineCoverageSceneDiagnostic,
    VinOfflineCoverageStats,
    VinOfflineDatasetStats,
)

_POSES = {
    "offset_x": "offset x, left (m)",
    "offset_y": "offset y, up (m)",
    "offset_z": "offset z, forward (m)",
    "radius_m": "distance from rig (m)",
    "azimuth_deg": "azimuth (°)",
    "elevation_deg": "elevation (°)",
    "rotation_delta_deg": "rotation from rig (°)",
    "yaw_deg": "yaw (°)",
    "pitch_deg": "pitch (°)",
    "roll_deg": "roll (°)",
}
_FULL_RANGE = {
    "azimuth_deg": (-180.0, 180.0),
    "elevation_deg": (-90.0, 90.0),
    "rotation_delta_deg": (0.0, 180.0),
    "yaw_deg": (-180.0, 180.0),
    "pitch_deg": (-90.0, 90.0),
    "roll_deg": (-180.0, 180.0),
}
# The rows of the pose figure; None leaves a place free.
_POSE_ROWS: tuple[tuple[str | None, ...], ...] = (
    ("offset_x", "offset_y", "offset_z", "radius_m"),
    ("azimuth_deg", "elevation_deg", "rotation_delta_deg", None),
    ("yaw_deg", "pitch_deg", "roll_deg", None),
)
_COMPONENTS = (
    ("pm_dist_before", "distance before"),
    ("pm_acc_before", "accuracy before"),
    ("pm_comp_before", "completeness before"),
    ("pm_dist_after", "distance after"),
    ("pm_acc_after", "accuracy after"),
    ("pm_comp_after", "completeness after"),
)
_MANY_SCENES = 24
_LISTED_SCENES = 12


def statistics_figures(
    stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None = None
) -> dict[str, Figure]:
    """Every figure of one store's statistics, by file stem, in the order in which they are shown."""
    return {
        "rri": rri(stats, previous),
        "candidate_counts": candidate_counts(stats, previous),
        "points": points(stats, previous),
        "poses": poses(stats, previous),
        "components": components(stats, previous),
        "memory": memory(stats, previous),
    }


def _rows(stats: VinOfflineDatasetStats) -> str:
    """Over how many rows something was taken, and why not over all."""
    rows, total = stats.sampled_samples, stats.num_samples
    scope = (
        f"all {style.counted(total, 'row')}" if rows == total else f"{style.count(rows)} of {style.count(total)} rows"
    )
    damaged = rows - stats.rows_read
    return f"{scope} of the store" + (f", {style.count(damaged)} of them damaged" if damaged > 0 else "")


def _unlabelled(stats: VinOfflineDatasetStats) -> str:
    return "" if stats.scene_labels_available else "this store has no labels"


def rri(stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None = None) -> Figure:
    """Distribution of the relative reconstruction improvement (RRI) over all candidates, with median and mean."""
    values = style.finite(stats.rri_values)
    figure = style.new_figure(
        "RRI of the candidates", f"{style.counted(values.size, 'candidate')} with a finite label, {_rows(stats)}"
    )
    axis = figure.subplots()
    if not values.size:
        style.no_data(axis, _unlabelled(stats) or "no candidate has a finite label")
        return figure
    style.histogram(axis, values, previous.rri_values if previous else None)
    median, mean = float(np.median(values)), float(values.mean())
    style.mark(axis, median, f"median {median:.3g} (mean {mean:.3g})")
    axis.set_xlabel("RRI: share of the point-to-mesh distance that the view removes (1 = all)")
    style.count_axis(axis, "candidates")
    style.legend_above(axis)
    return figure


def candidate_counts(stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None = None) -> Figure:
    """How many candidates the snippets have: one bar per number of candidates."""
    values = style.finite(stats.candidate_count_values)
    empty = int((values == 0).sum())
    subtitle = f"{_rows(stats)}; {style.counted(empty, 'snippet')} without a candidate"
    if values.size:
        usual = float(np.bincount(values.astype(int)).argmax())
        subtitle += f"; {style.share(int((values == usual).sum()), values.size)} have {style.count(usual)}"
    figure = style.new_figure("Candidates per snippet", subtitle, height_in=2.9)
    axis = figure.subplots()
    if not values.size:
        style.no_data(axis, _unlabelled(stats) or "no row was read")
        return figure
    before = style.finite(previous.candidate_count_values) if previous else np.empty(0)
    top = int(max(values.max(), before.max(initial=0)))
    numbers = np.arange(top + 1)
    if before.size:
        scaled = np.bincount(before.astype(int), minlength=top + 1) * (values.size / before.size)
        label = style.previous_label(values.size, before.size)
        axis.bar(numbers, scaled, width=0.96, color=style.PREVIOUS, alpha=0.45, edgecolor=style.MUTED, label=label)
    counts = np.bincount(values.astype(int), minlength=top + 1)
    axis.bar(numbers, counts, width=0.7, color=style.BLUE, label="now")
    axis.set_xlim(-0.7, top + 0.7)
    axis.set_xlabel("candidates in the snippet")
    style.whole_numbers(axis.xaxis)
    style.count_axis(axis, "snippets")
    style.legend_above(axis)
    return figure


def points(stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None = None) -> Figure:
    """How many semi-dense points the snippets have."""
    values = style.finite(stats.vin_point_values)
    figure = style.new_figure("Points per snippet", _rows(stats), height_in=2.9)
    axis = figure.subplots()
    if not values.size:
        style.no_data(axis, "no row was read")
        return figure
    style.histogram(axis, values, previous.vin_point_values if previous else None, colour=style.GREEN)
    style.mark(axis, float(np.median(values)), f"median {style.count(float(np.median(values)))}")
    axis.set_xlabel("valid points in the snippet (vin.lengths)")
    style.count_axis(axis, "snippets")
    style.whole_numbers(axis.xaxis)
    style.legend_above(axis)
    return figure


def poses(stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None = None) -> Figure:
    """Where the candidates stand and look, in the frame of the reference rig: ten distributions with one legend."""
    total = style.count(len(stats.candidate_pose_values.get("offset_x", [])))
    figure = style.new_figure(
        "Candidate poses in the reference-rig frame", f"{total} candidates, {_rows(stats)}", height_in=5.2
    )
    grid = figure.subplots(len(_POSE_ROWS), 4, squeeze=False)
    labelled: Axes | None = None
    for axis, key in zip(grid.ravel(), [key for row in _POSE_ROWS for key in row], strict=True):
        if key is None:
            axis.set_axis_off()
            continue
        values = style.finite(stats.candidate_pose_values.get(key, []))
        axis.set_title(_POSES[key], fontsize=8.5)
        if not values.size:
            style.no_data(axis, _unlabelled(stats) or "no values")
            continue
        span = _FULL_RANGE.get(key)
        before = previous.candidate_pose_values.get(key, []) if previous else None
        style.histogram(axis, values, before, bins=30, span=span)
        style.count_axis(axis, "", most=3)
        axis.tick_params(labelsize=7.5)
        if span:
            axis.set_xticks(np.linspace(*span, 3))
        else:
            axis.locator_params(axis="x", nbins=2)
        labelled = labelled or axis
    grid[0][0].set_ylabel("candidates")
    if labelled is not None:
        style.legend_in_head(figure, labelled)
    return figure


def components(stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None = None) -> Figure:
    """RRI against each distance component: density of the candidates, their median, and the median before."""
    pairs = {key: _pairs(stats, key) for key, _ in _COMPONENTS}
    total = max(len(one) for one in pairs.values())
    unpaired = len(stats.rri_pairing_unavailable_sample_keys)
    subtitle = f"{style.counted(total, 'candidate')} paired by ID" + (
        f"; {style.counted(unpaired, 'snippet')} without IDs left out" if unpaired else ""
    )
    figure = style.new_figure("RRI against its components", subtitle, height_in=4.6)
    grid = figure.subplots(2, 3, sharey=True)
    if not total:
        for axis in grid.ravel():
            axis.set_axis_off()
        figure.text(0.5, 0.45, _unlabelled(stats) or "no candidate could be paired", ha="center", color=style.MUTED)
        return figure
    image: AxesImage | None = None
    for axis, (key, name) in zip(grid.ravel(), _COMPONENTS, strict=True):
        axis.set_title(name, fontsize=8.5)
        if not len(pairs[key]):
            style.no_data(axis, "no pairs")
            continue
        image = _density(axis, pairs[key])
        if previous is not None and len(before := _pairs(previous, key)):
            axis.plot(*_running_median(before), color=style.MUTED, linewidth=2.6, alpha=0.8, label="previous median")
        axis.plot(*_running_median(pairs[key]), color=style.VERMILION, linewidth=1.6, label="median RRI now")
        axis.set_xlabel(key, fontsize=8)
        axis.tick_params(labelsize=7.5)
        axis.locator_params(axis="x", nbins=4)
    for axis in grid[:, 0]:
        axis.set_ylabel("RRI (1 = all removed)")
    if image is not None:
        bar = figure.colorbar(image, ax=list(grid.ravel()), fraction=0.03, pad=0.02)
        bar.set_label("candidates per cell", fontsize=8)
        bar.ax.tick_params(labelsize=7.5)
        bar.ax.minorticks_off()
        bar.ax.yaxis.set_major_formatter(lambda value, _: style.count(value))
        style.legend_in_head(figure, grid[0][0])
    return figure


def _pairs(stats: VinOfflineDatasetStats, key: str) -> NDArray[np.float64]:
    return np.asarray(stats.rri_component_pairs.get(key, []), dtype=np.float64).reshape(-1, 2)


def _density(axis: Axes, pairs: NDArray[np.float64]) -> AxesImage:
    """A density picture of (rri, component) pairs with the component to the right; the mappable for the colour bar."""
    bins = int(np.clip(np.sqrt(len(pairs)), 12, 48))
    x_edges = style.edges_of([pairs[:, 1]], bins)
    y_edges = style.edges_of([pairs[:, 0]], bins)
    counts = np.histogram2d(pairs[:, 1], pairs[:, 0], [x_edges, y_edges])[0].T
    extent = (x_edges[0], x_edges[-1], y_edges[0], y_edges[-1])
    norm = LogNorm(1, max(2.0, float(counts.max())))
    masked = np.ma.masked_equal(counts, 0)
    return axis.imshow(masked, origin="lower", extent=extent, aspect="auto", cmap=style.DENSITY, norm=norm)


def _running_median(pairs: NDArray[np.float64], bins: int = 12) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median component and median RRI of equally filled groups, of five pairs or more, along the component."""
    order = pairs[np.argsort(pairs[:, 1], kind="stable")]
    groups = np.array_split(order, max(1, min(bins, len(order) // 5)))
    return (
        np.array([np.median(group[:, 1]) for group in groups]),
        np.array([np.median(group[:, 0]) for group in groups]),
    )


def memory(stats: VinOfflineDatasetStats, previous: VinOfflineDatasetStats | None = None) -> Figure:
    """Uncompressed size of one row, by component: mean as a bar, median and 95th percentile as marks."""
    rows = stats.memory_diagnostics
    figure = style.new_figure(
        "Memory of one row", f"uncompressed, {_rows(stats)}", height_in=1.5 + 0.28 * max(len(rows), 2)
    )
    axis = figure.subplots()
    if not rows:
        style.no_data(axis, "no row was read")
        return figure
    before = {row.component: row.mean_mib for row in previous.memory_diagnostics} if previous else {}
    largest = max(row.p95_mib for row in rows)
    factor, unit = (1.0, "MiB") if largest >= 0.1 else (1024.0, "KiB")
    places = np.arange(len(rows))[::-1]
    if before:
        axis.barh(
            places,
            [before.get(row.component, 0.0) * factor for row in rows],
            height=0.86,
            color=style.PREVIOUS,
            alpha=0.45,
            edgecolor=style.MUTED,
            label="mean, previous",
        )
    axis.barh(
        places,
        [row.mean_mib * factor for row in rows],
        height=0.6,
        color=style.SKY,
        label="mean",
    )
    axis.plot([row.median_mib * factor for row in rows], places, "|", color=style.INK, ms=11, mew=2, label="median")
    axis.plot([row.p95_mib * factor for row in rows], places, "D", color=style.VERMILION, ms=5, label="95th percentile")
    reach = max(largest, *before.values(), *(row.mean_mib for row in rows)) * factor
    for place, row in zip(places, rows, strict=True):
        right = max(row.p95_mib, row.mean_mib, before.get(row.component, 0.0)) * factor
        axis.text(right + reach * 0.02, place, _size(row.mean_mib), va="center", fontsize=8.5)
    axis.set_xlim(0, reach * 1.16)
    axis.set_yticks(places, [row.component for row in rows])
    axis.set_xlabel(f"{unit} per row")
    axis.grid(axis="x")
    style.legend_above(axis)
    return figure


def _size(mib: float) -> str:
    """A size in the unit that suits it: a block of bytes beside one of megabytes is still readable."""
    for factor, unit in ((1, "MiB"), (1024, "KiB")):
        if mib * factor >= 0.1:
            return f"{mib * factor:,.3g} {unit}"
    return f"{mib * 2**20:.3g} B"


def coverage(stats: VinOfflineCoverageStats, previous: VinOfflineCoverageStats | None = None) -> Figure:
    """Raw snippets that the store holds, per scene: every scene as a bar, or many as a distribution with the worst."""
    known = [scene for scene in stats.per_scene if scene.coverage is not None]
    overall = style.share(stats.covered_snippets, stats.dataset_snippets)
    subtitle = (
        f"{style.count(stats.covered_snippets)} of {style.count(stats.dataset_snippets)} raw snippets are in the store"
        f" ({overall}); {style.count(stats.outside_dataset)} in the store only"
    )
    if previous is not None:
        subtitle += f"; {style.share(previous.covered_snippets, previous.dataset_snippets)} before"
    if len(stats.per_scene) <= _MANY_SCENES:
        figure = style.new_figure(
            "Raw coverage per scene", subtitle, height_in=1.6 + 0.23 * max(len(stats.per_scene), 2)
        )
        axis = figure.subplots()
        if stats.per_scene:
            _scene_bars(axis, stats.per_scene)
            style.legend_above(axis)
        else:
            style.no_data(axis, "neither raw tars nor rows were found")
        return figure
    figure = style.new_figure("Raw coverage per scene", subtitle, height_in=4.3)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    shares = [100 * (scene.coverage or 0.0) for scene in known]
    before = [100 * scene.coverage for scene in previous.per_scene if scene.coverage is not None] if previous else None
    style.histogram(left, shares, before, bins=20, span=(0.0, 100.0), colour=style.BLUE)
    left.set_xlabel("snippets covered (%)")
    style.count_axis(left, f"scenes (of {style.count(len(known))})")
    style.legend_above(left, columns=2)
    worst = sorted(stats.per_scene, key=lambda scene: (-scene.missing_in_store, scene.scene_id))[:_LISTED_SCENES]
    _scene_bars(right, worst)
    right.set_title(f"the {len(worst)} scenes that miss most", fontsize=8.5, pad=20)
    style.legend_above(right, columns=3)
    return figure


def _scene_bars(axis: Axes, scenes: Sequence[VinOfflineCoverageSceneDiagnostic]) -> None:
    places = np.arange(len(scenes))[::-1]
    left = np.zeros(len(scenes))
    for name, colour, hatch, widths in (
        ("covered", style.BLUE, None, [scene.covered_snippets for scene in scenes]),
        ("missing", style.VERMILION, None, [scene.missing_in_store for scene in scenes]),
        ("store only", style.PREVIOUS, "////", [scene.outside_dataset for scene in scenes]),
    ):
        axis.barh(places, widths, left=left, height=0.72, color=colour, hatch=hatch, edgecolor=style.CARD, label=name)
        left += np.asarray(widths)
    reach = float(left.max()) or 1.0
    for place, end, scene in zip(places, left, scenes, strict=True):
        text = style.share(scene.covered_snippets, scene.dataset_snippets) if scene.dataset_snippets else "no raw tar"
        axis.text(end + reach * 0.015, place, text, va="center", fontsize=8)
    axis.set_xlim(0, reach * 1.2)
    axis.set_yticks(places, [scene.scene_id for scene in scenes])
    axis.tick_params(axis="y", labelsize=8)
    style.count_axis(axis, "snippets", "x")
