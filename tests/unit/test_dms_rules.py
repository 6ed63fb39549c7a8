"""The rules: each has a corruptor that trips it, healthy caches trip none, and all are reported at once."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dms_assets import cache_schema as cs
from dms_assets import validation
from dms_assets.cache_store import CacheStore
from dms_assets.contract import FRAMES, WINDOWS
from dms_assets.examine import examine
from resources.files import FileRoot
from resources.findings import MAX_SAMPLES
from tests.builders import dms

BASELINES = {FRAMES: "flow", WINDOWS: "clips"}

# What a broken invariant cannot but break as well.
CONSEQUENCES = {
    "t_order": {"frame_idx"},
    "t_grid": {"t_grid"},
    "win_grid": {"win_in_spans"},
    "fail_code": {"valid_iff_fail0", "box_vs_fail"},
    "valid_iff_fail0": set(),
    "win_order": {"win_in_spans"},
}


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    return CacheStore(FileRoot(tmp_path))


def put(store: CacheStore, kind: str, arrays: dms.Arrays) -> tuple[str, str]:
    dms.write(store.root.path / store.path(BASELINES[kind], dms.UID), arrays)
    return BASELINES[kind], dms.UID


@pytest.mark.parametrize("kind", [FRAMES, WINDOWS])
def test_a_healthy_file_trips_no_rule(store: CacheStore, kind: str) -> None:
    assert store.findings(*put(store, kind, dms.healthy(kind))) == []


@pytest.mark.parametrize(
    "cache",
    [
        dms.frames(k0=0, k1=-1),
        dms.frames(k0=72_000, k1=72_050),
        dms.frames(k0=999_000, k1=999_500),
        dms.frames(moving=False),
        dms.frames(channels=0),
        dms.frames(fail=dict.fromkeys(range(51), 2)),
        dms.windows(k0=72_000, k1=72_100),
        dms.windows(length=1),
        dms.windows(k1=3),
    ],
    ids=[
        "no rows",
        "late",
        "very late",
        "no moving",
        "no channels",
        "all failed",
        "late windows",
        "len 1",
        "no windows",
    ],
)
def test_healthy_caches_at_the_edges_trip_no_rule(cache: cs.RouteCache | cs.WindowCache) -> None:
    assert validation.findings(cache) == []
    cache.validate()


@pytest.mark.parametrize(
    ("code", "kind", "corrupt"),
    dms.CORRUPTORS,
    ids=[f"{code}-{kind[6:]}-{i}" for i, (code, kind, _) in enumerate(dms.CORRUPTORS)],
)
def test_a_corruptor_trips_its_rule_and_no_other(
    store: CacheStore, code: str, kind: str, corrupt: Callable[[dms.Arrays], None]
) -> None:
    arrays = dms.healthy(kind)
    corrupt(arrays)
    baseline, uid = put(store, kind, arrays)
    found = store.findings(baseline, uid)
    codes = {finding.code for finding in found}
    assert code in codes
    assert codes <= {code} | CONSEQUENCES.get(code, set())
    finding = next(finding for finding in found if finding.code == code)
    assert finding.where == store.path(baseline, uid)
    assert finding.how_to_fix
    assert finding.count >= len(finding.samples)
    assert finding.severity is next(rule.severity for rule in validation.RULES if rule.code == code)


def test_every_rule_has_a_corruptor() -> None:
    tripped = {(code, kind) for code, kind, _ in dms.CORRUPTORS}
    rules = {(rule.code, kind) for rule in validation.RULES for kind in rule.kinds} - {
        ("container", FRAMES),  # their corruptors work on the bytes
        ("container", WINDOWS),
    }
    assert rules == tripped


def test_each_code_is_one_rule() -> None:
    codes = [rule.code for rule in validation.RULES]
    assert len(codes) == len(set(codes))
    assert {rule.code for rule in validation.EXACT} <= set(codes)
    assert set(codes) >= validation.ROWS_CODES


EXACT_CODES = {rule.code for rule in validation.EXACT}
EXTENDED_ONLY = {  # corruptors of codes that both tiers know, at places where only the stricter tier looks
    "t_grid": [1],
    "uid": [1],
    "fail_code": [1, 2],
    "meta_keys": [1, 2, 3],
}


@pytest.mark.parametrize("kind", [FRAMES, WINDOWS])
def test_the_exact_tier_raises_for_exactly_the_tables_invariants(store: CacheStore, kind: str) -> None:
    seen: dict[str, int] = {}
    for code, of, corrupt in dms.CORRUPTORS:
        if of != kind:
            continue
        number = seen.setdefault(code, 0)
        seen[code] += 1
        arrays = dms.healthy(kind)
        corrupt(arrays)
        route = put(store, kind, arrays)
        if code in EXACT_CODES | {"kind"} and not (kind == FRAMES and number in EXTENDED_ONLY.get(code, [])):
            with pytest.raises(cs.CacheInvalidError) as caught:
                store.load(*route)
            assert caught.value.code == code
        else:
            assert store.load(*route).uid


@pytest.mark.parametrize("name", dms.CONTAINER_CORRUPTORS)
@pytest.mark.parametrize("kind", [FRAMES, WINDOWS])
def test_a_broken_container_is_one_finding(store: CacheStore, name: str, kind: str) -> None:
    route = put(store, kind, dms.healthy(kind))
    path = store.root.path / store.path(*route)
    path.write_bytes(dms.CONTAINER_CORRUPTORS[name](path.read_bytes()))
    found = store.findings(*route)
    assert {finding.code for finding in found} - {"extra_members"} == {"container"}


def test_several_broken_invariants_are_reported_at_once_with_counts_and_first_rows() -> None:
    cache = dms.frames(k1=599, fail={})
    cache.fail[100:] = 3
    cache.box[:30, 0] = np.nan
    cache.meta["time_base"] = "other"
    found = {finding.code: finding for finding in validation.findings(cache)}
    assert set(found) == {"valid_iff_fail0", "box_geometry", "time_base"}
    assert found["valid_iff_fail0"].count == 500
    assert len(found["valid_iff_fail0"].samples) == MAX_SAMPLES
    assert found["valid_iff_fail0"].truncated
    assert found["valid_iff_fail0"].samples[0] == "row 100 (t=10)"
    assert found["box_geometry"].count == 30


def test_validate_says_which_invariant_where_and_how_many() -> None:
    cache = dms.frames(k1=99, fail={})
    cache.fail[10:] = 3
    with pytest.raises(cs.CacheInvalidError, match=r"valid_iff_fail0: .*90 in all: row 10 \(t=1\), row 11"):
        cache.validate()


@pytest.mark.parametrize("t", [1200.012, 5000.045])
def test_times_that_the_older_tolerance_lets_pass_are_findings(t: float) -> None:
    k0 = round(t * 10) - 5
    cache = dms.frames(k0=k0, k1=k0 + 10)
    cache.t[5] = t
    cache.validate()
    assert [finding.code for finding in validation.findings(cache)] == ["t_grid"]


def test_two_units_in_the_last_place_are_allowed() -> None:
    cache = dms.frames(k0=41_000, k1=41_050)
    for _ in range(2):
        cache.t = np.nextafter(cache.t, np.float32(np.inf))
    assert validation.findings(cache) == []


def test_a_malformed_member_silences_only_the_rules_that_need_it() -> None:
    cache: Any = dms.frames()
    cache.t = cache.t.astype(np.float64)
    cache.spans = cache.spans[::-1].copy()
    cache.spans[0] = [5, 0]
    assert [finding.code for finding in validation.findings(cache)] == ["dtype", "spans_form"]


def test_absent_rows_of_a_claimed_span_are_counted_exactly() -> None:
    cache = dms.frames(k0=0, k1=-1)
    cache.spans = np.array([[0, 5]], np.float32)
    found = validation.findings(cache)
    assert [(finding.code, finding.count) for finding in found] == [("rows_complete", 51)]


def older_accepts(path: Path, kind: str) -> bool:
    """Whether plain `numpy.load` and the invariants of the contract's tables, as assertions, let a file pass."""
    try:
        with np.load(path) as file, np.errstate(all="ignore"):
            a = {name: file[name] for name in file.files}
            meta = json.loads(str(a["meta"]))
            spans, frames = a["spans"], kind == FRAMES
            t = a["t" if frames else "win_t_end"]
            values, valid = (a["feat"], a["valid"]) if frames else (a["emb"], a["win_valid"])
            n = len(t)
            good = (
                (a["uid"].dtype.kind, a["uid"].ndim) == ("U", 0)
                and str(a["kind"]) == kind
                and spans.dtype == np.float32
                and spans.ndim == 2
                and spans.shape[1] == 2
            )
            good &= t.dtype == np.float32 and t.shape == (n,) and bool((np.diff(t) > 0).all())
            good &= valid.dtype == bool and valid.shape == (n,)
            good &= values.dtype == np.float16 and values.ndim == 2 and len(values) == n
            good &= all(key in meta for key in cs.META_KEYS) and meta["time_base"] == cs.TIME_BASE
            if frames and good:
                x = t.astype(np.float64) * 10
                k = np.rint(x)
                fail, box, moving = a["fail"], a["box"], a.get("moving")
                good &= bool((np.abs(x - k) <= 1e-3 + 1e-5 * np.abs(x)).all())
                good &= a["frame_idx"].dtype == np.int64 and a["frame_idx"].shape == (n,)
                good &= bool((a["frame_idx"] == 2 * k.astype(np.int64)).all())
                good &= box.dtype == np.float32 and box.shape == (n, 4)
                good &= fail.dtype == np.uint8 and fail.shape == (n,) and bool((valid == (fail == 0)).all())
                good &= all(int(code) in cs.FAIL_CODES for code in fail)
                good &= a["channels"].dtype.kind == "U" and a["channels"].shape == (values.shape[1],)
                good &= moving is None or (moving.dtype == bool and moving.shape == (n,))
            elif good:
                good &= a["win_len"].dtype.kind in "iu" and a["win_len"].ndim == 0 and int(a["win_len"]) >= 1
            return bool(good and np.isfinite(values[valid]).all() and np.isnan(values[~valid]).all())
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return False


numbers = st.sampled_from([0.0, -1.0, 0.3, 2.00001, 1e9, 3e38, np.inf, -np.inf, np.nan])
dtypes = st.sampled_from(["f2", "f4", "f8", ">f4", "i8", "i4", "u8", "u1", "?", "U3", "S3"])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_content_of_a_file_makes_a_rule_stumble(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([FRAMES, WINDOWS]))
    arrays = dms.healthy(kind)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(arrays)))
        array = arrays[name]
        change = data.draw(st.sampled_from(["value", "value", "dtype", "shape", "drop", "text"]))
        if change == "drop":
            del arrays[name]
        elif change == "dtype":
            with np.errstate(all="ignore"):
                arrays[name] = np.zeros(array.shape, data.draw(dtypes))
        elif change == "shape":
            arrays[name] = array[None] if data.draw(st.booleans()) or not array.ndim else array[: len(array) // 2]
        elif change == "text":
            arrays[name] = np.array(data.draw(st.text(max_size=20)))
        elif array.size and array.dtype.kind in "fiub":
            with np.errstate(all="ignore"):
                array.flat[data.draw(st.integers(0, array.size - 1))] = np.array(data.draw(numbers)).astype(array.dtype)
        if not arrays:
            return
    with tempfile.TemporaryDirectory() as folder:
        store = CacheStore(FileRoot(folder))
        route = put(store, kind, arrays)
        found = store.findings(*route)
        codes = {finding.code for finding in found}
        try:
            store.load(*route).merged_with(store.load(*route))  # type: ignore[arg-type]
        except (cs.CacheUnreadableError, cs.CacheInvalidError) as error:
            refused = getattr(error, "code", "container")
        else:
            refused = None
        # What the older module accepts loads, unless its uid is unsafe; what is refused is found, too; and an
        # examination takes whatever there is.
        assert refused in (None, "uid") or not older_accepts(store.root.path / store.path(*route), kind)
        assert refused is None or refused in codes
        assert examine(store, *route, store.judge(*route).identity) is not None


def test_an_absurd_window_length_is_a_finding() -> None:
    cache = dms.windows()
    cache.win_len = 2**64
    assert {finding.code for finding in validation.findings(cache)} == {"win_len", "win_in_spans"}
