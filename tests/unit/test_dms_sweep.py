"""Sweeps: one bad file costs only itself, nothing unchanged is opened, and coverage is that of each route alone."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dms_assets import npz, spans, sweep_result
from dms_assets.cache_store import CacheStore
from dms_assets.spans import Spans
from dms_assets.statistics import QUANTILES, column_statistics
from dms_assets.sweep import sweep
from dms_assets.sweep_result import SweepResult, SweepResultError, read_result
from resources.files import FileRoot
from resources.results import latest
from tests.builders import dms


def put(store: CacheStore, baseline: str, cache: Any) -> None:
    """Write a cache without waiting for the disk; replaced, not overwritten, as every writer does."""
    path = store.root.path / store.path(baseline, cache.uid)
    dms.write(path.with_name(".writing"), cache.arrays()).rename(path)


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    made = CacheStore(FileRoot(tmp_path / "caches"))
    for i in range(6):
        put(made, "flow", dms.frames(f"route_{i}", 0, 50 + i, seed=i))
    return made


def want(**seconds: list[list[float]]) -> dict[str, Spans]:
    return {uid: spans.merge_spans(table) for uid, table in seconds.items()}


WANTED = want(route_0=[[0, 5]], route_1=[[0, 6]], route_9=[[1, 2]], route_5=[[5, 5.5]])


def run(store: CacheStore, known: SweepResult | None = None, **changes: Any) -> SweepResult:
    arguments: dict[str, Any] = {"wanted_digest": "w1", "known": known, **changes}
    return sweep(store, "flow", arguments.pop("wanted", WANTED), **arguments)


def covered(result: SweepResult) -> dict[str, list[Any]]:
    """Of each route: whether it has a file, and its ticks wanted, covered, missing and beyond the video."""
    return {row["uid"]: list(row.values())[1:] for row in result.table("coverage").to_dict("records")}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened, one entry each time."""
    seen: list[str] = []
    original = npz.open_container

    def counting(fd: int, file: str, *args: Any, **kwargs: Any) -> Any:
        seen.append(file)
        return original(fd, file, *args, **kwargs)

    monkeypatch.setattr("dms_assets.cache_store.open_container", counting)
    return seen


def test_a_sweep_reads_every_file_and_counts_what_is_wanted(store: CacheStore) -> None:
    result = run(store)
    assert result.read == 6
    coverage = covered(result)
    assert list(coverage) == [*(f"route_{i}" for i in range(6)), "route_9"]
    assert coverage["route_0"] == [True, 51, 51, 0, 0]
    assert coverage["route_1"] == [True, 61, 52, 9, 0]
    assert coverage["route_2"] == [True, 0, 0, 0, 0]
    assert coverage["route_9"] == [False, 11, 0, 11, 0]
    missing = result.table("missing")
    assert missing["uid"].tolist() == ["route_1", "route_9"]
    assert missing[["t_start", "t_end"]].to_numpy().tolist() == np.array([[5.2, 6], [1, 2]], np.float32).tolist()
    totals = result.totals
    assert (totals["files"], totals["routes_wanted"], totals["routes_covered"]) == (6, 4, 2)
    assert totals["seconds"] == {"wanted": 12.9, "covered": 10.9, "missing": 2.0, "beyond": 0.0}
    assert totals["files_by_state"] == {"valid": 6}
    assert totals["failures"]["no_box"] > 0
    assert totals["rows"] == sum(51 + i for i in range(6))


def test_coverage_is_that_of_each_route_alone(store: CacheStore) -> None:
    result = run(store)
    for row in result.table("coverage").to_dict("records"):
        header = store.header("flow", row["uid"]) if row["stored"] else None
        wanted = WANTED.get(row["uid"], np.zeros((0, 2), np.float32))
        missing = spans.missing_ticks(wanted, header.spans if header else [])
        assert (row["wanted_ticks"], row["missing_ticks"]) == (len(spans.ticks_of(wanted)), len(missing))


def test_windows_want_their_lead_in(store: CacheStore) -> None:
    put(store, "clips", dms.windows("route_0", 0, 100))
    result = sweep(store, "clips", want(route_0=[[1, 10], [12, 12]]), lead_in=15)
    coverage = result.table("coverage").to_dict("records")[0]
    assert (coverage["wanted_ticks"], coverage["missing_ticks"]) == (117, 16)
    assert result.table("missing")[["t_start", "t_end"]].to_numpy().tolist() == [[10.5, 12.0]]


def test_ticks_past_the_video_are_stored_yet_not_covered(store: CacheStore) -> None:
    unmet = [{"video": {"size": 1}, "beyond": [[4, 5]], "damaged": []}]
    put(store, "flow", dms.frames("route_0", 0, 50, unmet=unmet))
    coverage = covered(run(store))
    assert coverage["route_0"] == [True, 51, 40, 0, 11]


def test_an_unchanged_sweep_opens_no_file(store: CacheStore, opened: list[str]) -> None:
    first = run(store)
    assert len(opened) == 6
    opened.clear()
    again = run(store, known=first)
    assert opened == []
    assert again.read == 0
    assert again.totals == first.totals


def test_a_kept_result_read_back_is_as_good_as_the_one_in_memory(
    store: CacheStore, opened: list[str], tmp_path: Path
) -> None:
    first = run(store)
    results = FileRoot(tmp_path / "results")
    version = first.publish(results, "flow")
    opened.clear()
    kept = read_result(results, "flow", "flow")
    again = run(store, known=kept)
    assert (opened, again.read) == ([], 0)
    for name in sweep_result.TABLES:
        pd.testing.assert_frame_equal(again.table(name), first.table(name), check_dtype=False)
    assert again.totals == first.totals
    assert again.findings() == first.findings()
    document = latest(results, "flow")
    assert document is not None
    assert document["totals"]["files"] == 6
    assert (again.version, run(store, wanted_digest="w2").version) == (version, run(store, wanted_digest="w2").version)
    assert again.version != run(store, wanted_digest="w2").version


def test_only_the_last_results_stay(store: CacheStore, tmp_path: Path) -> None:
    root = FileRoot(tmp_path / "results")
    versions = [run(store, wanted_digest=f"w{i}").publish(root, "flow") for i in range(4)]
    assert len({*os.listdir(root.path / "flow")} & {*versions}) == 2
    assert read_result(root, "flow", "flow").wanted == "w3+0"


def test_only_what_changed_is_opened(store: CacheStore, opened: list[str]) -> None:
    first = run(store)
    put(store, "flow", dms.frames("route_1", 0, 60))
    put(store, "flow", dms.frames("route_7", 0, 9))
    (store.root.path / store.path("flow", "route_4")).unlink()
    opened.clear()
    again = run(store, known=first)
    assert sorted(opened) == [store.path("flow", "route_1"), store.path("flow", "route_7")]
    fresh = run(store)
    for name in sweep_result.TABLES:
        pd.testing.assert_frame_equal(again.table(name), fresh.table(name))


def test_other_wanted_spans_open_nothing_and_change_the_coverage(store: CacheStore, opened: list[str]) -> None:
    first = run(store)
    opened.clear()
    again = run(store, known=first, wanted=want(route_0=[[0, 6]]), wanted_digest="w2")
    assert opened == []
    assert again.totals["seconds"]["missing"] == 1.0
    assert again.totals["routes_wanted"] == 1


def test_other_rules_judge_every_file_again(store: CacheStore, opened: list[str], monkeypatch: Any) -> None:
    first = run(store)
    opened.clear()
    monkeypatch.setattr("dms_assets.sweep.rules_digest", lambda: "other rules")
    assert run(store, known=first).read == len(opened) == 6


def test_one_bad_file_costs_only_itself(store: CacheStore) -> None:
    folder = store.root.path / "cache" / "flow"
    (folder / "route_1.npz").write_bytes(b"broken")
    arrays = {name: np.array(value) for name, value in dms.frames("route_2").arrays().items()}
    arrays["spans"] = arrays["spans"].astype(np.float64)
    dms.write(folder / "route_2.npz", arrays)
    arrays = {name: np.array(value) for name, value in dms.frames("route_3").arrays().items()}
    arrays["fail"][4] = 9
    arrays["feat"][3] = np.inf
    dms.write(folder / "route_3.npz", arrays)
    os.mkfifo(folder / "route_8.npz")
    (folder / "a|b.npz").write_bytes(b"")
    result = run(store)
    states = result.files.set_index("uid")["state"].to_dict()
    assert states == {
        "route_0": "valid",
        "route_1": "unreadable",
        "route_2": "invalid",
        "route_3": "invalid",
        "route_4": "valid",
        "route_5": "valid",
        "route_8": "inaccessible",
    }
    found = {(f.where.split("/")[-1], f.code) for f in result.findings()}
    assert {
        ("a|b.npz", "uid_not_canonical"),
        ("route_1.npz", "container"),
        ("route_2.npz", "dtype"),
        ("route_3.npz", "fail_code"),
        ("route_3.npz", "feat_finite_on_valid"),
        ("route_8.npz", "inaccessible"),
    } <= found
    coverage = covered(result)
    assert coverage["route_1"] == [True, 61, 0, 61, 0]
    assert set(result.table("channels")["uid"]) == {"route_0", "route_3", "route_4", "route_5"}


def test_a_file_that_could_not_be_read_is_tried_again(store: CacheStore) -> None:
    os.mkfifo(store.root.path / "cache" / "flow" / "pipe.npz")
    first = run(store)
    assert run(store, known=first).read == 1


def test_progress_is_told_to_the_end(store: CacheStore) -> None:
    told: list[tuple[int, int]] = []
    run(store, progress=lambda done, total: told.append((done, total)))
    assert told == [(6, 6)]


def test_an_empty_baseline_is_an_empty_result(store: CacheStore) -> None:
    result = sweep(store, "unknown", {})
    assert (result.totals["files"], result.totals["valid_fraction"]) == (0, None)
    assert result.histogram("c0") is None
    assert run(store, wanted={}).totals["routes_wanted"] == 0


def test_a_missing_root_is_an_error_and_no_empty_result(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sweep(CacheStore(FileRoot(tmp_path / "not mounted")), "flow", {})


def test_a_damaged_kept_result_is_one_error(store: CacheStore, tmp_path: Path) -> None:
    root = FileRoot(tmp_path)
    with pytest.raises(SweepResultError):
        read_result(root, "nowhere", "flow")
    folder = tmp_path / "result" / run(store).publish(root, "result")
    with pytest.raises(SweepResultError, match="baseline"):
        read_result(root, "result", "clips")
    (folder / "files.parquet").write_bytes(b"PAR1 broken PAR1")
    with pytest.raises(SweepResultError, match=r"files\.parquet"):
        read_result(root, "result", "flow")


def test_column_statistics_equal_numpys() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(202, 3)).astype(np.float16)
    values[:2] = [[0.0, -0.0, 65504.0], [1.0, -1.0, 0.0]]
    numbers = column_statistics(values)
    wide = values.astype(np.float64)
    assert np.allclose(numbers.mean, wide.mean(axis=0))
    assert np.allclose(numbers.std, wide.std(axis=0))
    assert np.allclose(numbers.quantiles, np.quantile(wide, QUANTILES, axis=0).T)
    assert np.isnan(column_statistics(values[:0]).mean).all()


def test_a_histogram_put_together_from_files_is_close_to_that_of_all_values(store: CacheStore) -> None:
    for i in range(6):
        put(store, "flow", dms.frames(f"route_{i}", 0, 2000, seed=i, fail={}))
    result = run(store)
    found = result.histogram("c1", bins=20)
    assert found is not None
    counts, edges = found
    values = np.concatenate([dms.frames(f"route_{i}", 0, 2000, seed=i, fail={}).feat[:, 1] for i in range(6)])
    exact, _ = np.histogram(values.astype(np.float64), edges)
    assert abs(int(counts.sum()) - 6 * 2001) <= 20
    assert np.abs(counts - exact).sum() < 0.1 * exact.sum()


def test_a_histogram_of_a_constant_channel_holds_every_value(store: CacheStore) -> None:
    cache = dms.frames("route_0", 0, 100, fail={})
    cache.feat[:] = 0
    for i in range(6):
        cache.uid = f"route_{i}"
        put(store, "flow", cache)
    found = run(store).histogram("c0")
    assert found is not None
    assert found[0].tolist() == [606] + [0] * 39
