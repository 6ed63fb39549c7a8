"""Summaries, moments, poses, pairs and compaction hold for any numbers."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vin_assets.vin_store.format import compact, scene_of_raw_key
from vin_assets.vin_store.moments import ZERO_BELOW, Moments
from vin_assets.vin_store.poses import POSE_KEYS, relative_poses
from vin_assets.vin_store.results import NumericSummary
from vin_assets.vin_store.rows import RowLabels
from vin_assets.vin_store.series import Series, series_of

Floats = npt.NDArray[np.float64]
finite = st.floats(-1e6, 1e6)
awkward = st.one_of(finite, st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0]))


@given(st.lists(awkward))
def test_a_summary_is_of_the_finite_values(values: list[float]) -> None:
    kept = [value for value in values if math.isfinite(value)]
    found = NumericSummary.of(values)
    assert found.count == len(kept)
    if kept:
        assert (found.minimum, found.maximum) == (min(kept), max(kept))
        assert found.mean == pytest.approx(math.fsum(kept) / len(kept), rel=1e-12, abs=1e-9)
        assert min(kept) <= (found.mean or 0.0) <= max(kept)
    else:
        assert found == NumericSummary(0, None, None, None)


def test_a_summary_of_the_largest_numbers_has_a_mean() -> None:
    assert NumericSummary.of([1.7e308, 1.7e308]).mean == pytest.approx(1.7e308)


def assert_moments(found: Moments, values: Floats) -> None:
    kept = values[np.isfinite(values)].astype(np.float64)
    assert found.count == kept.size
    if not kept.size:
        assert (found.std, found.abs_mean, found.nz_frac) == (None, None, None)
        return
    mean = math.fsum(kept) / kept.size
    spread = math.sqrt(math.fsum((kept - mean) ** 2) / kept.size)
    size = float(np.abs(kept).max())
    assert found.mean == pytest.approx(mean, rel=1e-12, abs=size * 1e-13)
    assert found.std == pytest.approx(spread, rel=1e-9, abs=size * 1e-12)
    assert found.abs_mean == pytest.approx(math.fsum(np.abs(kept)) / kept.size, rel=1e-12)
    assert found.nonzero == int((np.abs(kept) > ZERO_BELOW).sum())


@given(hnp.arrays(np.float64, st.integers(0, 40), elements=awkward))
def test_moments_are_those_of_the_finite_values(values: Floats) -> None:
    assert_moments(Moments.of(values), values)


@given(st.lists(hnp.arrays(np.float64, st.integers(0, 20), elements=awkward), max_size=6), st.randoms())
def test_moments_merge_in_any_order(parts: list[Floats], random: Any) -> None:
    pieces = [Moments.of(part) for part in parts]
    random.shuffle(pieces)
    total = Moments()
    for piece in pieces:
        total = total.merge(piece)
    assert_moments(total, np.concatenate([*parts, np.empty(0)]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize("size", [1, 9215, 9216, 9217, 110_592, 110_593, 250_000])
def test_moments_of_whole_fields_match_numpy(dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    values = (rng.normal(0.3, 2.0, size) * (rng.random(size) < 0.7)).astype(dtype)
    assert_moments(Moments.of(values), values.astype(np.float64))


integers = st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])


@given(integers.flatmap(lambda name: hnp.arrays(name, st.integers(1, 40))))
@example(np.array([-(2**31), 1], np.int32))
@example(np.array([2**31 - 1, 2**31], np.uint32))
@example(np.array([2**63, 0], np.uint64))
def test_moments_of_integers_of_every_width_keep_their_extremes(values: npt.NDArray[Any]) -> None:
    assert_moments(Moments.of(values), values.astype(np.float64))


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4, -1e8, 1e12])
def test_a_small_spread_about_a_large_mean_keeps_its_digits(offset: float) -> None:
    values = offset + np.tile([-1.0, 0.0, 1.0], 40_000)
    assert Moments.of(values).std == pytest.approx(math.sqrt(2 / 3), rel=1e-11)


def test_one_bad_value_costs_only_itself_in_a_large_field() -> None:
    values = np.ones(200_000, np.float32)
    values[[7, 100_000, 199_999]] = np.nan, np.inf, -np.inf
    found = Moments.of(values)
    assert (found.count, found.mean, found.std) == (199_997, 1.0, 0.0)


@given(finite, st.integers(0, 50))
def test_a_constant_has_the_moments_of_its_repetition(value: float, count: int) -> None:
    assert_moments(Moments.constant(value, count), np.full(count, value))


part = st.text(st.characters(codec="ascii", exclude_characters="_:/."), min_size=1).filter(lambda s: not s.isspace())
scene = st.from_regex(r"[A-Za-z0-9-]{1,8}", fullmatch=True)


@given(st.text(max_size=12), scene, scene, st.text(max_size=12))
def test_compaction_is_idempotent_and_keeps_what_stands_around(before: str, of: str, name: str, after: str) -> None:
    raw = f"{before}AriaSyntheticEnvironment_{of}_AtekDataSample_{name}::{after}"
    found = compact(raw)
    assert f"ASE_{of}_Atek_{name}::" in found
    assert compact(found) == found


def test_compaction_as_the_format_says() -> None:
    raw = "AriaSyntheticEnvironment_81286_AtekDataSample_000003"
    assert compact(f"81286::{raw}") == "81286::ASE_81286_Atek_000003"
    assert compact(f"{raw} {raw}.tar") == "ASE_81286_Atek_000003 ASE_81286_Atek_000003.tar"
    assert compact("AriaSyntheticEnvironment_a_b_AtekDataSample_1") == "AriaSyntheticEnvironment_a_b_AtekDataSample_1"
    assert scene_of_raw_key(f"{raw}.pth") == "81286"
    assert scene_of_raw_key(f"x{raw}") is None


def turn(axis: str, degrees: float) -> Floats:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    matrices = {
        "x": [[1, 0, 0], [0, c, -s], [0, s, c]],
        "y": [[c, 0, s], [0, 1, 0], [-s, 0, c]],
        "z": [[c, -s, 0], [s, c, 0], [0, 0, 1]],
    }
    return np.array(matrices[axis], np.float64)


def pose(rotation: Floats, position: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Floats:
    return np.concatenate([rotation.ravel(), position])


HOME = pose(np.eye(3))


def values_of(candidate: Floats, reference: Floats = HOME) -> dict[str, float]:
    return {key: float(found[0]) for key, found in relative_poses(candidate[None], reference).items()}


def test_axes_and_signs_of_poses() -> None:
    assert list(values_of(HOME)) == list(POSE_KEYS)
    left = values_of(pose(np.eye(3), (2.0, 0.0, 0.0)))
    assert (left["offset_x"], left["radius_m"], left["azimuth_deg"], left["elevation_deg"]) == (2.0, 2.0, 90.0, 0.0)
    up = values_of(pose(np.eye(3), (0.0, 3.0, 0.0)))
    assert (up["elevation_deg"], up["offset_y"]) == (90.0, 3.0)
    assert values_of(pose(turn("y", 30.0)))["yaw_deg"] == pytest.approx(30.0)
    assert values_of(pose(turn("x", -20.0)))["pitch_deg"] == pytest.approx(20.0)
    assert values_of(pose(turn("z", 15.0)))["roll_deg"] == pytest.approx(-15.0)
    assert values_of(pose(turn("z", 15.0)))["rotation_delta_deg"] == pytest.approx(15.0)


def test_half_turns_are_positive() -> None:
    behind = values_of(pose(np.diag([-1.0, 1.0, -1.0]), (-0.0, 0.0, -1.0)))
    assert (behind["azimuth_deg"], behind["yaw_deg"], behind["rotation_delta_deg"]) == (180.0, 180.0, 180.0)
    assert values_of(pose(np.diag([-1.0, -1.0, 1.0])))["roll_deg"] == 180.0


def test_looking_straight_up_has_a_roll() -> None:
    up = values_of(pose(np.array([[1.0, 0, 0], [0, 0, 1.0], [0, -1.0, 0]])))
    assert up["pitch_deg"] == 90.0
    assert up["roll_deg"] == pytest.approx(0.0, abs=1e-9)


@given(st.floats(-179, 179), st.floats(-80, 80), st.floats(-179, 179), st.tuples(finite, finite, finite))
def test_poses_don_t_depend_on_the_world_frame(
    yaw: float, pitch: float, roll: float, position: tuple[float, float, float]
) -> None:
    candidate = pose(turn("y", yaw) @ turn("x", pitch) @ turn("z", roll), (0.3, -0.2, 1.5))
    world = turn("z", 40.0) @ turn("x", 70.0)
    moved = pose(world @ candidate[:9].reshape(3, 3), tuple(world @ candidate[9:] + np.array(position) / 1e3))
    reference = pose(world, tuple(np.array(position) / 1e3))
    one, two = values_of(candidate), values_of(moved, reference)
    for key in POSE_KEYS:
        difference = (one[key] - two[key] + 180) % 360 - 180 if key.endswith("_deg") else one[key] - two[key]
        assert difference == pytest.approx(0.0, abs=1e-4), key
    assert one["yaw_deg"] == pytest.approx(yaw, abs=1e-6)
    assert one["pitch_deg"] == pytest.approx(-pitch, abs=1e-6)


def test_padding_and_nan_are_no_pose_and_keep_their_place() -> None:
    broken = HOME.copy()
    broken[4] = np.nan
    found = relative_poses(np.stack([HOME, np.zeros(12), broken]), HOME)
    for key, values in found.items():
        assert np.isnan(values[1]), key
        assert math.isfinite(values[0]), key
    assert np.isnan(found["roll_deg"][2])
    assert found["radius_m"][2] == 0.0


labels = st.integers(0, 8).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float32, n, elements=st.floats(-4, 4, width=32) | st.just(math.nan)),
        hnp.arrays(np.float32, n, elements=st.floats(-4, 4, width=32) | st.just(math.inf)),
        hnp.arrays(np.int64, n, elements=st.integers(-1, 5)),
    )
)


@given(labels)
def test_pairs_are_the_candidates_with_an_own_id_and_two_finite_values(found: tuple[Any, Any, Any]) -> None:
    rri, component, ids = found
    wanted = [
        (float(a), float(b))
        for a, b, own in zip(rri, component, ids, strict=True)
        if own >= 0 and (ids == own).sum() == 1 and math.isfinite(a) and math.isfinite(b)
    ]
    (row,) = series_of([RowLabels(rri.size, rri, {"pm_acc_after": component}, ids)])
    assert list(zip(*row.pairs["pm_acc_after"].tolist(), strict=True)) == wanted
    assert row.paired == any(own >= 0 and (ids == own).sum() == 1 for own in ids)


@given(st.lists(st.tuples(labels, st.booleans(), st.booleans()), max_size=6))
def test_rows_taken_together_add_what_each_of_them_adds_alone(found: list[tuple[Any, bool, bool]]) -> None:
    rows = []
    for (rri, component, ids), labelled, posed in found:
        poses = np.arange(rri.size * 12.0).reshape(-1, 12) if posed else None
        components = {"pm_acc_after": component[1:]} if labelled else {}
        rows.append(RowLabels(rri.size, rri, components, ids if labelled else None, poses, HOME, np.array([rri.size])))
    together, alone = series_of(rows), [series_of([row])[0] for row in rows]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_equal(asdict(one), asdict(other))
    np.testing.assert_equal(asdict(Series.of(together)), asdict(Series.of(alone)))


def test_a_row_without_ids_has_no_pairs_and_says_so() -> None:
    (row,) = series_of([RowLabels(2, np.ones(2), {"pm_acc_after": np.ones(2)}, None)])
    assert not row.paired
    assert row.pairs["pm_acc_after"].shape == (2, 0)
    assert row.components["pm_acc_after"].tolist() == [1.0, 1.0]
