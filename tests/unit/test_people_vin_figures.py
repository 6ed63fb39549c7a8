"""What the VIN figures draw: bars, panels, marks, labels and units, from the statistics of a store."""

import dataclasses

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from resources import figures as style
from vin_assets import figures
from vin_assets.vin_store.diagnostics import (
    NumericSummary,
    VinOfflineCoverageSceneDiagnostic,
    VinOfflineCoverageStats,
    VinOfflineDatasetStats,
    VinOfflineMemoryDiagnostic,
)

POSES = [
    *("offset_x", "offset_y", "offset_z", "radius_m", "azimuth_deg", "elevation_deg"),
    *("yaw_deg", "pitch_deg", "roll_deg", "rotation_delta_deg"),
]
COMPONENTS = [f"pm_{name}_{when}" for when in ("before", "after") for name in ("dist", "acc", "comp")]


def _stats(rows: int = 20, candidates: int = 6, seed: int = 0) -> VinOfflineDatasetStats:
    random = np.random.default_rng(seed)
    rri = random.beta(2, 6, rows * candidates).tolist()
    memory = [
        VinOfflineMemoryDiagnostic(name, mean, mean, mean * 1.2) for name, mean in (("backbone", 3.0), ("total", 4.0))
    ]
    return VinOfflineDatasetStats(
        store_dir="/stores/a",
        version=11,
        num_samples=rows,
        sampled_samples=rows,
        split_counts={"train": rows},
        num_scenes=2,
        num_snippets=rows,
        materialized_blocks={},
        candidate_count=NumericSummary.of([]),
        rri=NumericSummary.of(rri),
        vin_points=NumericSummary.of([]),
        numeric_bytes=1,
        candidate_count_values=[float(candidates)] * (rows - 1) + [0.0],
        rri_values=rri,
        vin_point_values=random.integers(10, 5000, rows).astype(float).tolist(),
        candidate_pose_values={key: random.normal(size=rows * candidates).tolist() for key in POSES},
        memory_diagnostics=memory,
        rri_component_pairs={key: [(value, 0.5 - value / 3) for value in rri] for key in COMPONENTS},
        rows_read=rows,
    )


def _unlabelled() -> VinOfflineDatasetStats:
    return dataclasses.replace(
        _stats(),
        scene_labels_available=False,
        candidate_count_values=[],
        rri_values=[],
        candidate_pose_values={},
        rri_component_pairs={key: [] for key in COMPONENTS},
    )


def _coverage(scenes: int, missing: int = 3) -> VinOfflineCoverageStats:
    per_scene = [
        VinOfflineCoverageSceneDiagnostic(f"{81000 + i}", 10, 10 - missing, 10 - missing, missing, 0, 1 - missing / 10)
        for i in range(scenes)
    ]
    return VinOfflineCoverageStats(
        store_dir="/stores/a",
        tar_shards_scanned=scenes,
        dataset_scenes=scenes,
        store_scenes=scenes,
        dataset_snippets=10 * scenes,
        store_snippets=(10 - missing) * scenes,
        covered_snippets=(10 - missing) * scenes,
        missing_in_store=missing * scenes,
        outside_dataset=0,
        coverage=1 - missing / 10,
        per_scene=per_scene,
    )


def _subtitle(figure: Figure) -> str:
    return next(text.get_text() for text in figure.texts if text.get_gid() == "subtitle")


def _steps(axis: Axes) -> list[StepPatch]:
    return [patch for patch in axis.patches if isinstance(patch, StepPatch)]


def _legend(axis: Axes) -> list[str]:
    legend = axis.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.texts]


def test_every_figure_is_made_with_and_without_a_previous_result() -> None:
    for previous in (None, _stats(seed=1), _unlabelled()):
        made = figures.statistics_figures(_stats(), previous)
        assert list(made) == ["rri", "candidate_counts", "points", "poses", "components", "memory"]
        assert all(style.svg(figure) for figure in made.values())


def test_the_rri_histogram_holds_every_label_and_names_its_unit() -> None:
    figure = figures.rri(_stats(), _stats(seed=1))
    axis = figure.axes[0]
    assert _steps(axis)[-1].get_data()[0].sum() == 120
    assert axis.get_xlabel() == "RRI: share of the point-to-mesh distance that the view removes (1 = all)"
    assert _legend(axis)[:2] == ["previous", "now"]
    assert _legend(axis)[2].startswith("median ")
    assert _subtitle(figure) == "120 candidates with a finite label, all 20 rows of the store"


def test_damaged_and_unscanned_rows_are_told_apart() -> None:
    stats = dataclasses.replace(_stats(), num_samples=30, rows_read=18)
    assert _subtitle(figures.points(stats)) == "20 of 30 rows of the store, 2 of them damaged"


def test_candidate_counts_have_one_bar_per_number_and_name_the_usual_one() -> None:
    figure = figures.candidate_counts(_stats())
    (bars,) = figure.axes[0].containers
    assert isinstance(bars, BarContainer)
    assert [bar.get_height() for bar in bars] == [1, 0, 0, 0, 0, 0, 19]
    assert _subtitle(figure) == "all 20 rows of the store; 1 snippet without a candidate; 95.0 % have 6"


def test_every_pose_has_a_panel_with_its_unit_and_angles_their_full_range() -> None:
    panels = {axis.get_title("left"): axis for axis in figures.poses(_stats(), _stats(seed=1)).axes if axis.axison}
    assert len(panels) == 10
    assert all(title.endswith(("(m)", "(°)")) for title in panels)
    assert panels["yaw (°)"].get_xlim() == (-180.0, 180.0)
    assert panels["elevation (°)"].get_xlim() == (-90.0, 90.0)
    assert panels["rotation from rig (°)"].get_xlim() == (0.0, 180.0)
    assert {len(_steps(axis)) for axis in panels.values()} == {3}  # the previous fill and outline, and now


def test_every_component_has_a_panel_with_all_its_pairs_and_both_medians() -> None:
    figure = figures.components(_stats(), _stats(seed=1))
    panels = figure.axes[:6]
    assert [axis.get_xlabel() for axis in panels] == COMPONENTS
    for axis in panels:
        (image,) = axis.images
        assert np.ma.filled(np.ma.asarray(image.get_array()), 0).sum() == 120
        assert [line.get_label() for line in axis.lines] == ["previous median", "median RRI now"]
    assert figure.axes[6].get_ylabel() == "candidates per cell"


def test_the_median_line_falls_where_the_rri_falls_with_the_component() -> None:
    line = figures.components(_stats()).axes[0].lines[0]
    assert (np.diff(np.asarray(line.get_xdata())) > 0).all()
    assert (np.diff(np.asarray(line.get_ydata())) < 0).all()


def test_a_store_without_labels_says_so_in_each_figure_of_labels() -> None:
    made = figures.statistics_figures(_unlabelled())
    for name in ("rri", "candidate_counts", "components"):
        words = [text.get_text() for text in made[name].texts + made[name].axes[0].texts]
        assert "this store has no labels" in words
    assert _steps(made["points"].axes[0])


@pytest.mark.parametrize(("mebibytes", "unit"), [(3.0, "MiB"), (0.003, "KiB")])
def test_memory_is_drawn_in_the_unit_that_can_be_read(mebibytes: float, unit: str) -> None:
    rows = [VinOfflineMemoryDiagnostic("total", mebibytes, mebibytes, mebibytes)]
    axis = figures.memory(dataclasses.replace(_stats(), memory_diagnostics=rows)).axes[0]
    assert axis.get_xlabel() == f"{unit} per row"
    assert [text.get_text() for text in axis.texts] == [f"{mebibytes * (1024 if unit == 'KiB' else 1):.3g} {unit}"]


def test_few_scenes_are_all_shown_and_their_bars_add_up() -> None:
    figure = figures.coverage(_coverage(3))
    axis = figure.axes[0]
    widths = [[bar.get_width() for bar in bars] for bars in axis.containers if isinstance(bars, BarContainer)]
    assert np.sum(widths, axis=0).tolist() == [10.0, 10.0, 10.0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["81000", "81001", "81002"]
    assert [text.get_text() for text in axis.texts] == ["70.0 %"] * 3
    assert _subtitle(figure) == "21 of 30 raw snippets are in the store (70.0 %); 0 in the store only"


def test_a_scene_without_raw_tars_says_so_instead_of_a_share() -> None:
    scene = VinOfflineCoverageSceneDiagnostic("x", 0, 1, 0, 0, 1, None)
    stats = dataclasses.replace(_coverage(0), per_scene=[scene], outside_dataset=1)
    assert [text.get_text() for text in figures.coverage(stats).axes[0].texts] == ["no raw tar"]


def test_many_scenes_become_a_distribution_and_the_worst_of_them() -> None:
    figure = figures.coverage(_coverage(800), _coverage(800, missing=5))
    left, right = figure.axes
    assert _steps(left)[-1].get_data()[0].sum() == 800
    assert left.get_xlabel() == "snippets covered (%)"
    assert len(right.get_yticklabels()) == 12
    assert _subtitle(figure).endswith("; 50.0 % before")
    assert len(style.svg(figure)) < 60_000


def test_neither_tars_nor_rows_is_said() -> None:
    words = [text.get_text() for text in figures.coverage(_coverage(0)).axes[0].texts]
    assert words == ["neither raw tars nor rows were found"]


def test_small_and_large_sizes_of_one_figure_are_both_readable() -> None:
    assert [figures._size(mib) for mib in (3.8, 0.02, 56 / 2**20, 0.0)] == ["3.8 MiB", "20.5 KiB", "56 B", "0 B"]
