"""Merging: which row survives, what is refused, what is remembered; and that saving and loading are inverse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dms_assets import cache_schema as cs
from dms_assets import merging, spans, validation
from tests.builders import dms

UID = dms.UID


def rows(ticks: dict[int, int], seed: int, *, moving: bool = True) -> cs.RouteCache:
    """A cache of exactly these ticks with these failure codes."""
    k = sorted(ticks)
    if not k:
        return dms.frames(k0=0, k1=-1, moving=moving)
    whole = dms.frames(k0=k[0], k1=k[-1], fail=ticks, seed=seed, moving=moving)
    keep = np.isin(np.arange(k[0], k[-1] + 1), k)
    for name in ("t", "frame_idx", "box", "valid", "fail", "feat", "moving"):
        if getattr(whole, name) is not None:
            setattr(whole, name, getattr(whole, name)[keep])
    whole.spans = spans.from_ticks(k)
    return whole


def window_rows(ends: dict[int, bool], seed: int) -> cs.WindowCache:
    """A cache of windows of one frame that end at exactly these ticks."""
    rng = np.random.default_rng(seed)
    k = np.array(sorted(ends), np.int64)
    valid = np.array([ends[int(end)] for end in k], bool)
    emb = rng.normal(size=(len(k), 3)).astype(np.float16)
    emb[~valid] = np.nan
    return cs.WindowCache(UID, (k / 10).astype(np.float32), emb, valid, 1, spans.from_ticks(k), dms.meta("clips"))


ticks = st.dictionaries(st.integers(0, 40), st.sampled_from([0, 0, 0, 1, 2, 3, 4]), max_size=25)
caches = st.builds(rows, ticks, st.integers(0, 1000))
window_caches = st.builds(
    window_rows, st.dictionaries(st.integers(0, 40), st.booleans(), max_size=25), st.integers(0, 1000)
)
either = st.one_of(st.tuples(caches, caches, caches), st.tuples(window_caches, window_caches, window_caches))


def same(one: Any, other: Any, *, texts: bool = False) -> None:
    left, right = one.arrays(), other.arrays()
    assert set(left) == set(right)
    for name in set(left) - (set() if texts else {"meta", "runtime"}):
        a, b = np.asarray(left[name]), np.asarray(right[name])
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), name


@settings(deadline=None, max_examples=50)
@given(either)
def test_merging_is_associative_for_the_arrays(three: tuple[Any, Any, Any]) -> None:
    a, b, c = three
    same(a.merged_with(b).merged_with(c), a.merged_with(b.merged_with(c)))


@settings(deadline=None, max_examples=50)
@given(caches)
def test_merging_a_cache_with_itself_or_with_nothing_changes_no_array(cache: cs.RouteCache) -> None:
    same(cache.merged_with(cache), cache)
    nothing = cs.RouteCache.empty(UID, cache.channels, cache.meta)
    same(nothing.merged_with(cache), cache)
    same(cache.merged_with(nothing), cache)


@settings(deadline=None, max_examples=50)
@given(caches, caches)
def test_the_later_row_wins_unless_it_failed_where_the_earlier_one_is_valid(
    earlier: cs.RouteCache, later: cs.RouteCache
) -> None:
    merged = earlier.merged_with(later)
    by_tick = [{int(f) // 2: i for i, f in enumerate(cache.frame_idx)} for cache in (earlier, later)]
    assert [int(f) // 2 for f in merged.frame_idx] == sorted({*by_tick[0], *by_tick[1]})
    for row, tick in enumerate(int(f) // 2 for f in merged.frame_idx):
        source = later
        if tick not in by_tick[1] or (
            tick in by_tick[0] and earlier.valid[by_tick[0][tick]] and not later.valid[by_tick[1][tick]]
        ):
            source = earlier
        i = by_tick[0 if source is earlier else 1][tick]
        for name in ("feat", "box", "fail", "valid", "moving"):
            assert np.array_equal(
                getattr(merged, name)[row], getattr(source, name)[i], equal_nan=name in ("feat", "box")
            )


@settings(deadline=None, max_examples=50)
@given(either, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10)), max_size=4))
def test_what_is_missing_extracted_and_merged_covers(three: Any, wanted: list[tuple[int, int]]) -> None:
    cache = three[0]
    want = spans.from_ticks([k for start, n in wanted for k in range(start, start + n + 1)])
    missing = spans.missing_ticks(want, cache.spans)
    assert cache.covers(want) == (len(missing) == 0)
    extracted = (
        rows(dict.fromkeys(missing.tolist(), 0), 1)
        if isinstance(cache, cs.RouteCache)
        else window_rows(dict.fromkeys(missing.tolist(), True), 1)
    )
    merged = cache.merged_with(extracted)
    assert merged.covers(want)
    assert len(cs.spans_subtract(want, merged.spans)) == 0
    assert validation.findings(merged) == []


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(either)
def test_saving_and_loading_are_inverse(tmp_path: Path, three: Any) -> None:
    cache = three[0].merged_with(three[1])
    loaded = cs.load_any(cache.save(tmp_path / f"{UID}.npz"))
    same(loaded, cache, texts=True)
    assert loaded.meta == cache.meta
    assert json.dumps(loaded.runtime, sort_keys=True) == json.dumps(cache.runtime, sort_keys=True)  # it may hold NaN
    assert type(loaded) is type(cache)


def test_a_saved_caches_neighbouring_spans_are_joined_so_that_older_readers_see_them_covered(tmp_path: Path) -> None:
    cache = dms.frames(k1=100)
    cache.spans = np.array([[0, 5], [5.1, 10]], np.float32)
    loaded = cs.load_any(cache.save(tmp_path / "a.npz"))
    assert loaded.spans.tolist() == [[0, 10]]
    assert cache.spans.tolist() == np.array([[0, 5], [5.1, 10]], np.float32).tolist()


def test_moving_is_filled_from_the_side_that_knows_it() -> None:
    known, unknown = dms.frames(k1=20), dms.frames(k1=20, moving=False, seed=1)
    for merged in (known.merged_with(unknown), unknown.merged_with(known)):
        assert merged.moving is not None
        assert known.moving is not None
        assert np.array_equal(merged.moving, known.moving)
    assert unknown.merged_with(unknown).moving is None


def test_moving_is_none_when_a_row_stays_unknown() -> None:
    assert dms.frames(k1=20).merged_with(dms.frames(k1=21, moving=False)).moving is None
    assert dms.frames(k1=20, moving=False).merged_with(dms.frames(k0=21, k1=30)).moving is None


@pytest.mark.parametrize(
    ("one", "other", "code"),
    [
        (dms.frames(), dms.frames("another"), "uid"),
        (dms.frames(), dms.frames(channels=3), "channels"),
        (dms.windows(), dms.windows(length=8), "win_len"),
        (dms.windows(), dms.windows(width=9), "shape"),
        (dms.frames(), dms.windows(), "kind"),
        (dms.windows(), dms.frames(), "kind"),
    ],
)
def test_what_does_not_belong_together_is_not_merged(one: Any, other: Any, code: str) -> None:
    with pytest.raises(cs.CacheInvalidError) as caught:
        one.merged_with(other)
    assert caught.value.code == code


def test_another_channel_order_is_not_merged() -> None:
    other = dms.frames()
    other.channels = list(reversed(other.channels))
    with pytest.raises(cs.CacheInvalidError, match="channels"):
        dms.frames().merged_with(other)


@pytest.mark.parametrize(
    "change", [{"code_version": "2"}, {"weight_sha256": {"model.onnx": "c" * 64}}, {"weight_sha256": {}}]
)
@pytest.mark.parametrize("make", [dms.frames, dms.windows])
def test_another_provenance_is_merged_only_when_allowed(make: Any, change: dict[str, Any]) -> None:
    one, other = make(), make(**change)
    with pytest.raises(cs.ProvenanceMismatchError, match=next(iter(change))):
        one.merged_with(other)
    merged = one.merged_with(other, allow_provenance_change=True)
    assert all(merged.meta[key] == value for key, value in change.items())


def test_other_code_bytes_and_an_undeclared_code_version_merge() -> None:
    undeclared = dms.frames(code_sha256="other")
    del undeclared.meta["code_version"]
    assert dms.frames().merged_with(undeclared).meta["code_sha256"] == "other"
    assert undeclared.merged_with(dms.frames()).meta["code_version"] == "1"


def test_earlier_metas_are_kept_bounded_and_in_order() -> None:
    merged = dms.frames(k0=0, k1=0, step=0)
    for step in range(1, 31):
        merged = merged.merged_with(dms.frames(k0=step, k1=step, step=step))
    assert merged.meta["step"] == 30
    assert [entry["step"] for entry in merged.meta["merged_from"]] == list(range(10, 30))
    assert all("merged_from" not in entry for entry in merged.meta["merged_from"])
    assert len(merged.meta["merged_from"]) == merging.MAX_MERGED_FROM


def test_runtime_numbers_combine_by_frames() -> None:
    one = {"decode_ms_p50": 4.0, "infer_ms_p50": float("nan"), "n_frames": 100, "wall_s": 1.0}
    two = {"decode_ms_p50": 8.0, "infer_ms_p50": 3.0, "n_frames": 300, "wall_s": None}
    merged = merging.merged_runtime(one, two)
    assert (merged["decode_ms_p50"], merged["infer_ms_p50"]) == (7.0, 3.0)
    assert (merged["n_frames"], merged["wall_s"]) == (400, 1.0)
    assert np.isnan(merged["decode_ms_p95"])
    assert merging.merged_runtime({}, two) == two
    assert merging.merged_runtime(one, {}) == one


@pytest.mark.parametrize("broken", ["text", True, None, [1]])
def test_a_strange_runtime_spoils_no_merge(broken: Any) -> None:
    cache = dms.frames(k1=10)
    cache.runtime = {"decode_ms_p50": broken, "n_frames": broken, "wall_s": broken}
    assert cache.merged_with(dms.frames(k0=11)).runtime["n_frames"] == 40


def test_a_merge_that_breaks_an_invariant_raises() -> None:
    broken = dms.frames(k0=51, k1=60)
    broken.fail[0] = 9
    with pytest.raises(cs.CacheInvalidError, match="fail_code"):
        dms.frames().merged_with(broken)


def test_an_empty_cache_keeps_its_spans_and_copies_its_meta() -> None:
    meta = dms.meta()
    cache = cs.RouteCache.empty(UID, ["a"], meta, [[5, 6], [0, 5]])
    assert cache.spans.tolist() == [[0, 6]]
    assert cache.meta == meta
    assert cache.meta is not meta
    assert (cache.n, cache.C, cache.runtime) == (0, 1, {})
    window = cs.WindowCache.empty(UID, 16, 8, dms.meta("clips"))
    assert (window.m, window.D, window.win_len) == (0, 8, 16)
    assert window.validate().spans.shape == (0, 2)


def test_times_of_two_writers_within_two_ulp_are_one_row() -> None:
    one, other = dms.frames(k0=41_000, k1=41_010), dms.frames(k0=41_000, k1=41_010, seed=1)
    other.t = np.nextafter(other.t, np.float32(np.inf))
    assert one.merged_with(other).n == 11
