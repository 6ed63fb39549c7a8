"""The cache contract: golden files are answered as their table says, public names behave as the contract."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dms_assets import cache_schema as cs
from dms_assets import validation
from dms_assets.cache_file import opened, read_header, read_raw

GOLDEN = Path(__file__).parents[1] / "golden" / "dms"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "cases.json").read_text())["cases"]
NAMES = [case["file"] for case in CASES]


def codes(path: Path) -> list[str]:
    try:
        with opened(path) as box:
            raw = read_raw(box, stem=path.stem, complete=True)
    except cs.CacheUnreadableError:
        return ["container"]
    return [finding.code for finding in validation.findings(cs.from_raw(raw), raw.facts)]


def test_all_golden_files_are_there() -> None:
    assert len(CASES) == 22
    assert {path.name for path in GOLDEN.glob("*.npz")} == set(NAMES)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_golden_file_is_judged_as_its_case_says(case: dict[str, Any]) -> None:
    found = codes(GOLDEN / case["file"])
    if case["expect"] == "valid":
        assert found == []
    else:
        assert found[0] == case["invariant"]
        # A reversed span holds no tick, so that its rows lie in none: the one case with a consequence.
        assert set(found) <= {case["invariant"], "rows_in_spans"}


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_file_that_the_older_module_accepts_loads_unless_its_uid_is_unsafe(case: dict[str, Any]) -> None:
    path = GOLDEN / case["file"]
    if case["expect"] == "valid" or (case["older_module"] == "accepts" and case["invariant"] != "uid"):
        cache = cs.load_any(path)
        assert case["kind"] == cache.KIND
        assert cache.uid == path.stem
    elif case["invariant"] == "container":
        with pytest.raises(cs.CacheUnreadableError, match=path.name):
            cs.load_any(path)
    else:
        with pytest.raises(AssertionError, match=path.name) as caught:
            cs.load_any(path)
        assert isinstance(caught.value, cs.CacheInvalidError)
        assert caught.value.code == case["invariant"]


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("ok_")])
def test_a_header_says_what_the_whole_file_says(name: str) -> None:
    cache = cs.load_any(GOLDEN / name)
    with opened(GOLDEN / name, whole=False) as box:
        header = read_header(box)
    assert (header.uid, header.kind, header.meta) == (cache.uid, cache.KIND, cache.meta)
    assert header.n == (cache.n if isinstance(cache, cs.RouteCache) else cache.m)
    assert np.array_equal(header.spans, cache.spans)
    assert cs.cache_kind(GOLDEN / name) == cache.KIND


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("ok_")])
def test_saving_what_was_loaded_gives_members_that_numpy_reads_back_the_same(name: str, tmp_path: Path) -> None:
    path = cs.load_any(GOLDEN / name).save(tmp_path / name)
    with np.load(GOLDEN / name) as before, np.load(path) as after:
        assert set(after.files) >= set(before.files)
        for member in set(before.files) - {"meta", "runtime"}:
            assert before[member].dtype == after[member].dtype
            assert np.array_equal(before[member], after[member], equal_nan=before[member].dtype.kind == "f")
        for member in ("meta", "runtime"):
            assert json.loads(str(before[member])) == json.loads(str(after[member]))
    again = cs.load_any(path).save(tmp_path / "again.npz")
    assert again.read_bytes() == path.read_bytes()


def test_a_frame_cache_is_not_loaded_as_a_window_cache() -> None:
    with pytest.raises(cs.CacheInvalidError, match="kind"):
        cs.WindowCache.load(GOLDEN / "ok_frames.npz")


def test_the_synthetic_cache_has_both_ends_and_nothing_wrong() -> None:
    cache = cs.synthetic_route_cache()
    assert (cache.n, cache.C) == (601, 4)
    assert cache.moving is not None
    assert validation.findings(cache) == []
    assert cache.covers([[0, 60]])
    assert not cache.covers([[0, 60.1]])


def test_an_npz_suffix_is_appended_and_parents_are_made(tmp_path: Path) -> None:
    final = cs.savez_atomic(tmp_path / "a" / "b.v1", x=np.arange(3))
    assert final == tmp_path / "a" / "b.v1.npz"
    assert os.listdir(final.parent) == ["b.v1.npz"]


def test_arrays_that_need_pickling_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pickling"):
        cs.savez_atomic(tmp_path / "a", x=np.array([{}]))
    assert os.listdir(tmp_path) == []


def test_an_invalid_cache_is_not_written(tmp_path: Path) -> None:
    cache = cs.synthetic_route_cache(t1=1)
    cache.fail[0] = 9
    with pytest.raises(cs.CacheInvalidError):
        cache.save(tmp_path / "a.npz")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("uid", ["../../evil", "a/b", "a\0b", ".hidden", "", "a..b", "x" * 201, "a b", "a\n"])
def test_no_path_is_built_from_an_unsafe_uid(uid: str) -> None:
    with pytest.raises(cs.CacheInvalidError, match="uid"):
        cs.cache_path("flow", uid)
    with pytest.raises(cs.CacheInvalidError, match="uid"):
        cs.RouteCache.empty(uid, ["a"], cs.make_meta("flow", [])).validate()


@pytest.mark.parametrize("baseline", ["../x", "Flow", "_a", "", "a-b", "a\n"])
def test_no_path_is_built_from_an_unsafe_baseline(baseline: str) -> None:
    for make in (cs.cache_dir, cs.summ_dir):
        with pytest.raises(cs.CacheInvalidError, match="baseline"):
            make(baseline)


def test_paths_lie_where_the_contract_says(tmp_path: Path) -> None:
    assert cs.cache_path("flow", "a_b", tmp_path) == tmp_path / "cache" / "flow" / "a_b.npz"
    assert cs.summ_dir("flow", tmp_path) == tmp_path / "summ" / "flow"
    assert cs.cache_dir("flow").parent.parent == cs.RESULTS_ROOT
    assert cs.RESULTS_ROOT.parts[-2:] == ("results", "baselines_dms")


def test_meta_has_the_contracts_types_and_extra_keys_override() -> None:
    meta = cs.make_meta("flow", ["m"], decode_wh=(640, 400), partial=True, video_source="remote", time_base="x")
    assert meta["decode_wh"] == [640, 400]
    assert (meta["partial"], meta["video_source"], meta["time_base"], meta["code_sha256"]) == (True, "remote", "x", "")
    assert set(cs.META_KEYS) <= set(meta)


def test_runtime_percentiles_are_over_finite_entries() -> None:
    runtime = cs.make_runtime([1.0, 3.0, np.nan, np.inf], [], 4)
    assert (runtime["decode_ms_p50"], runtime["decode_ms_p95"]) == (2.0, pytest.approx(2.9))
    assert np.isnan(runtime["infer_ms_p50"])
    assert (runtime["n_frames"], runtime["wall_s"]) == (4, None)


@pytest.mark.parametrize("runtime", [None, "{broken", "[1]", 3])
def test_a_bad_runtime_never_refuses_a_file(runtime: object, tmp_path: Path) -> None:
    arrays = cs.synthetic_route_cache(uid="a", t1=1).arrays()
    del arrays["runtime"]
    if runtime is not None:
        arrays["runtime"] = np.array(runtime)
    assert cs.load_any(cs.savez_atomic(tmp_path / "a", **arrays)).runtime == {}


def test_meta_that_is_absent_makes_a_cache_invalid(tmp_path: Path) -> None:
    arrays = cs.synthetic_route_cache(uid="a", t1=1).arrays()
    del arrays["meta"]
    with pytest.raises(cs.CacheInvalidError, match="meta_json"):
        cs.load_any(cs.savez_atomic(tmp_path / "a", **arrays))


def test_loaded_arrays_can_be_written_to() -> None:
    cache = cs.RouteCache.load(GOLDEN / "ok_frames.npz")
    cache.t[0] = 0
    cache.spans[0] = 0


def test_checksums_are_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ab")
    (tmp_path / "b").write_bytes(b"c")
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert cs.code_sha256([tmp_path / "a", tmp_path / "b"]) == abc
    (tmp_path / "abc").write_bytes(b"abc")
    assert cs.sha256_file(tmp_path / "abc", chunk=2) == abc


def run_module(*arguments: str, optimised: bool = False) -> subprocess.CompletedProcess[str]:
    flags = ["-O"] if optimised else []
    command = [sys.executable, *flags, "-m", "dms_assets.cache_schema", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])


def test_the_self_test_passes_also_under_python_o() -> None:
    for arguments, optimised in ((["--self-test"], False), ([], True)):
        done = run_module(*arguments, optimised=optimised)
        assert (done.returncode, done.stdout) == (0, "self-test passed\n"), done.stderr


def test_inspect_prints_the_header_as_json_and_fails_on_a_broken_file() -> None:
    shown = json.loads(run_module("--inspect", str(GOLDEN / "ok_windows.npz")).stdout)
    assert (shown["kind"], shown["uid"], shown["n"], shown["D"]) == ("WindowCache", "ok_windows", 18, 8)
    assert shown["channels"] is None
    broken = run_module("--inspect", str(GOLDEN / "bad_crc.npz"), optimised=True)
    assert broken.returncode == 1
    assert "bad_crc.npz" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_a_broken_invariant_raises_under_python_o_as_well() -> None:
    script = "from dms_assets.cache_schema import *; import sys; load_any(sys.argv[1])"
    command = [sys.executable, "-O", "-c", script, str(GOLDEN / "bad_valid_vs_fail.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 1
    assert "CacheInvalidError: valid_iff_fail0" in done.stderr
