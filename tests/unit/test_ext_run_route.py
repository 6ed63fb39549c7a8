"""Extraction of a route: exactly the missing ticks, the right rows, honest failure codes, and nothing lost."""

from __future__ import annotations

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dms_assets.baselines import Baseline, registry
from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.cache_store import CacheStore
from dms_assets.contract import CacheInvalidError, ProvenanceMismatchError, RouteNameError
from dms_assets.digest import content_digest
from dms_assets.extraction.boxes import BoxesError
from dms_assets.extraction.extractor import ExtractorError, names
from dms_assets.extraction.report import RouteReport
from dms_assets.extraction.run_route import run_route
from dms_assets.extraction.video import VideoMissingError, VideoRefusedError
from dms_assets.plan import State, Work, plan
from resources.files import FileRoot
from tests.builders.video import access_units, encode, numbered

COUNT = 300
UID = "route1"
Spans = list[list[float]]


pytestmark = pytest.mark.usefixtures("third_party_extractors")


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(numbered(COUNT), tmp_path_factory.mktemp("stream") / "route1.hevc")


class Place:
    """A cache root, a video root with one route, and a box root."""

    def __init__(self, folder: Path, stream: Path) -> None:
        for name in ("caches", "videos", "boxes"):
            (folder / name).mkdir()
        self.folder = folder
        self.caches = CacheStore(FileRoot(folder / "caches"))
        self.video = folder / "videos" / "route1.hevc"
        self.video.write_bytes(stream.read_bytes())

    def run(self, baseline: Baseline, wanted: Spans, *, boxes: bool = False, **options: Any) -> RouteReport:
        return run_route(
            baseline,
            UID,
            wanted,
            caches=self.caches,
            videos=FileRoot(self.folder / "videos"),
            boxes=FileRoot(self.folder / "boxes") if boxes else None,
            **options,
        )

    def frames(self, baseline: Baseline) -> RouteCache:
        cache = self.caches.load(baseline.name, UID)
        assert isinstance(cache, RouteCache)
        assert self.caches.findings(baseline.name, UID) == []
        return cache

    def windows(self, baseline: Baseline) -> WindowCache:
        cache = self.caches.load(baseline.name, UID)
        assert isinstance(cache, WindowCache)
        assert self.caches.findings(baseline.name, UID) == []
        return cache


@pytest.fixture
def place(tmp_path: Path, stream: Path) -> Place:
    return Place(tmp_path, stream)


def baseline(extractor: str = "numbers", **entry: Any) -> Baseline:
    return registry({"test": {"extractor": extractor, "code_version": "1", **entry}})["test"]


def windows_baseline() -> Baseline:
    return baseline("number_windows", kind="windows", win_len=4)


def ticks(cache: RouteCache) -> list[int]:
    return [round(10 * float(t)) for t in cache.t]


def same_arrays(one: RouteCache | WindowCache, other: RouteCache | WindowCache) -> None:
    for (name, first), (_, second) in zip(one.arrays().items(), other.arrays().items(), strict=True):
        if name not in ("meta", "runtime"):
            np.testing.assert_array_equal(first, second, err_msg=name)


# --- which ticks, and what they cost


def test_every_row_holds_the_features_of_its_own_frame(place: Place) -> None:
    report = place.run(baseline(), [[0, 4.9], [6, 14]], block_ticks=7)
    cache = place.frames(baseline())
    assert ticks(cache) == [*range(50), *range(60, 141)]
    good = cache.valid
    np.testing.assert_array_equal(cache.feat[good, 0], cache.frame_idx[good])
    assert (report.rows, report.valid, report.failed) == (131, 131, {})
    assert cache.meta["native_wh"] == [256, 128]
    assert cache.meta["code_version"] == "1"
    assert "partial" not in cache.meta
    assert cache.runtime["n_frames"] == 131


def test_three_missing_spans_of_ten_decode_only_their_ticks_and_what_the_codec_forces(place: Place) -> None:
    spans = [[1.5 * n, 1.5 * n + 0.4] for n in range(10)]  # each begins with a group of 30 frames
    missing = [2, 5, 9]
    place.run(baseline(), [span for number, span in enumerate(spans) if number not in missing])
    before = place.frames(baseline())
    report = place.run(baseline(), spans)
    assert (report.ticks_wanted, report.ticks_reused) == (50, 35)
    assert report.rows == report.frames_requested == 15
    assert report.frames_decoded == 3 * 9  # frames 0, 2, 4, 6, 8 of a group need the four between
    kept = np.isin(place.frames(baseline()).t, before.t)
    np.testing.assert_array_equal(place.frames(baseline()).feat[kept], before.feat)
    again = place.run(baseline(), spans)
    assert (again.rows, again.frames_requested, again.frames_decoded, again.blocks) == (0, 0, 0, 0)


def test_a_covered_route_needs_no_video(place: Place) -> None:
    place.run(baseline(), [[0, 1]])
    place.video.unlink()
    assert place.run(baseline(), [[0.2, 0.8]]).rows == 0
    with pytest.raises(VideoMissingError, match=r"route1\.hevc"):
        place.run(baseline(), [[0, 2]])


def test_the_order_of_requests_and_the_size_of_blocks_change_nothing(
    place: Place, tmp_path: Path, stream: Path
) -> None:
    random = np.random.default_rng(5)
    for one in (baseline(), windows_baseline()):
        spans = []
        for _ in range(6):
            begin = float(random.integers(0, 150)) / 10
            spans.append([begin, begin + float(random.integers(0, 40)) / 10])
            place.run(one, [spans[-1]], block_ticks=int(random.integers(1, 9)))
        other = Place(_made(tmp_path / one.kind), stream)
        other.run(one, spans)
        mixed, direct = place.caches.load("test", UID), other.caches.load("test", UID)
        if isinstance(mixed, WindowCache) and isinstance(direct, WindowCache):
            # Lead-ins of single requests may reach further back than that of their union; no window may be missing.
            assert set(direct.win_t_end.tolist()) <= set(mixed.win_t_end.tolist())
            np.testing.assert_array_equal(mixed.emb[np.isin(mixed.win_t_end, direct.win_t_end)], direct.emb)
        else:
            same_arrays(mixed, direct)
        (place.folder / "caches" / "cache" / "test" / f"{UID}.npz").unlink()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


# --- windows


def test_windows_get_their_lead_in_and_none_is_missing_inside_a_span(place: Place) -> None:
    flow = windows_baseline()
    report = place.run(flow, [[5, 6]])
    cache = place.windows(flow)
    assert cache.spans.tolist() == [[pytest.approx(4.7), pytest.approx(6.0)]]
    ends = np.rint(10 * cache.win_t_end.astype(float)).astype(int)
    assert ends.tolist() == list(range(50, 61))
    np.testing.assert_array_equal(cache.emb, 2 * (ends[:, None] + np.arange(-3, 1)))
    assert (report.rows, report.frames_requested) == (11, 14)
    assert place.run(flow, [[5, 6]]).frames_decoded == 0


def test_a_gap_between_stored_windows_is_closed_without_a_seam(place: Place) -> None:
    flow = windows_baseline()
    place.run(flow, [[1, 2]])
    place.run(flow, [[4, 5]])
    place.run(flow, [[2.1, 3.9]], block_ticks=3)
    cache = place.windows(flow)
    assert cache.spans.tolist() == [[pytest.approx(0.7), pytest.approx(5.0)]]
    assert np.rint(10 * cache.win_t_end.astype(float)).astype(int).tolist() == list(range(10, 51))
    assert cache.win_valid.all()


def test_a_route_begins_with_the_first_full_window(place: Place) -> None:
    flow = windows_baseline()
    place.run(flow, [[0, 1]])
    assert np.rint(10 * place.windows(flow).win_t_end.astype(float)).astype(int).tolist() == list(range(3, 11))


# --- failures


def test_each_failure_has_its_code_and_its_nan_row(place: Place) -> None:
    np.savez(
        place.folder / "boxes" / f"{UID}.npz",
        frame_idx=np.arange(80, COUNT, 2),
        box=np.where(np.arange(80, COUNT, 2)[:, None] == 110, np.nan, np.array([[8.0, 2.0, 200.0, 120.0]])).astype(
            np.float32
        ),
        v_ego=np.arange(80, COUNT, 2) / 100,
    )
    report = place.run(baseline(), [[3.5, 6], [14.5, 15.5]], boxes=True)
    cache = place.frames(baseline())
    fails = dict(zip(ticks(cache), cache.fail.tolist(), strict=True))
    assert [fails[tick] for tick in (35, 39, 40, 50, 51, 52, 55, 149, 150)] == [1, 1, 0, 3, 4, 4, 1, 0, 2]
    assert report.failed == {"no_box": 6, "no_face": 1, "non_finite": 2, "no_frame": 6}
    assert report.box_source == cache.meta["box_source"] == "pose_cache"
    assert (cache.box[cache.valid] == [8, 2, 200, 120]).all()
    assert cache.moving is not None
    np.testing.assert_array_equal(cache.moving, np.clip(cache.frame_idx, 80, 298) / 100 > 2)


def test_boxes_are_never_taken_from_a_later_frame(place: Place) -> None:
    known = np.array([40, 60, 100])
    left = known.astype(np.float32)[:, None] + np.array([[0, 0, 100, 100]], np.float32)
    np.savez(place.folder / "boxes" / f"{UID}.npz", t=known / 20, box=left)
    place.run(baseline(), [[1.5, 6.5]], boxes=True)
    cache = place.frames(baseline())
    for frame, fail, box in zip(cache.frame_idx, cache.fail, cache.box, strict=True):
        before = known[known <= frame]
        if len(before) and frame - before[-1] <= 20:
            assert box[0] == before[-1]
        else:
            assert fail == 1


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"box": np.zeros((3, 4))}, "frame_idx or t"),
        ({"box": np.zeros((2, 4)), "frame_idx": np.arange(3)}, r"\(2, 4\)"),
        ({"box": np.zeros((3, 4)), "frame_idx": np.array([0, 2, 1])}, "rising"),
        ({"box": np.array(["a"]), "frame_idx": np.arange(1)}, "not numbers"),
        ({"box": np.zeros((3, 4)), "t": np.arange(3.0), "moving": np.zeros(2, bool)}, "moving"),
    ],
)
def test_a_bad_pose_cache_is_named(place: Place, members: dict[str, NDArray[Any]], message: str) -> None:
    np.savez(place.folder / "boxes" / f"{UID}.npz", **members)  # type: ignore[arg-type]
    with pytest.raises(BoxesError, match=rf"route1\.npz.*{message}"):
        place.run(baseline(), [[0, 1]], boxes=True)


def test_a_pose_cache_that_is_no_archive_is_named(place: Place) -> None:
    (place.folder / "boxes" / f"{UID}.npz").write_bytes(b"not a zip file")
    with pytest.raises(BoxesError, match=r"route1\.npz"):
        place.run(baseline(), [[0, 1]], boxes=True)


def test_damaged_frames_are_failed_rows_and_tried_again_with_another_video(place: Place, stream: Path) -> None:
    units = access_units(stream)
    units[40] = units[40][:20] + bytes(len(units[40]) - 20)
    place.video.write_bytes(b"".join(units))
    assert place.run(baseline(), [[0, 5]]).failed == {"no_face": 1, "no_frame": 10}
    assert place.run(baseline(), [[0, 5]]).frames_requested == 0
    place.video.write_bytes(stream.read_bytes())
    report = place.run(baseline(), [[0, 5]])
    assert (report.rows, report.failed) == (10, {})
    assert "unmet" not in place.frames(baseline()).meta


def test_ticks_beyond_the_video_are_tried_again_only_when_it_has_grown(place: Place, stream: Path) -> None:
    units = access_units(stream)
    place.video.write_bytes(b"".join(units[:120]))
    first = place.run(baseline(), [[5, 7]])
    assert (first.failed, first.beyond_video_s) == ({"no_face": 1, "no_frame": 11, "non_finite": 2}, 1.1)
    second = place.run(baseline(), [[5, 7]])
    assert (second.rows, second.beyond_video_s) == (0, 1.1)
    place.video.write_bytes(b"".join(units))
    other = place.run(baseline(), [[8, 9]])  # something else is wanted in between
    assert other.rows == 11
    third = place.run(baseline(), [[5, 7]])
    assert (third.rows, third.failed, third.beyond_video_s) == (11, {}, 0.0)
    assert place.frames(baseline()).valid[-1]


def test_a_span_far_beyond_the_video_is_one_block_more(place: Place) -> None:
    report = place.run(baseline(), [[14, 1000]], block_ticks=10)
    assert (report.rows, report.valid, report.blocks) == (9861, 10, 2)
    assert report.frames_decoded == 29  # frames 270 to 298


def test_an_extractor_that_raises_keeps_the_blocks_before(place: Place) -> None:
    with pytest.raises(RuntimeError, match="out of luck"):
        place.run(baseline("raises"), [[0, 10]], block_ticks=25)
    cache = place.frames(baseline("raises"))
    assert ticks(cache) == list(range(50))
    assert cache.meta["partial"] is True


def test_a_video_that_can_not_be_trusted_stores_nothing(place: Place, stream: Path) -> None:
    place.video.write_bytes(b"".join(access_units(stream)[7:]))
    with pytest.raises(VideoRefusedError, match=r"route1\.hevc"):
        place.run(baseline(), [[0, 1]])
    assert place.caches.uids("test") == []


# --- what is stored already


def test_another_code_version_is_refused_before_any_work_and_rebuilt_when_asked(place: Place) -> None:
    place.run(baseline(), [[0, 2]])
    newer = dataclasses.replace(baseline(), code_version="2")
    with pytest.raises(ProvenanceMismatchError, match="code_version"):
        place.run(newer, [[0, 3]])
    report = place.run(newer, [[1, 3]], rebuild=True, block_ticks=5)
    assert report.rows == 31
    cache = place.frames(newer)
    assert ticks(cache) == list(range(31))
    assert cache.meta["code_version"] == "2"
    assert "merged_from" not in cache.meta


def test_a_comment_in_an_extractor_rebuilds_nothing(place: Place) -> None:
    place.run(baseline(), [[0, 1]])
    with open(str(sys.modules["numbers_extractors"].__file__), "a") as file:
        file.write("# said better\n")
    (answer,) = plan(baseline(), {UID: [[0, 1]]}, caches=place.caches, videos=FileRoot(place.video.parent))
    assert (answer.state, answer.work) == (State.COVERED, Work.NONE)
    assert place.run(baseline(), [[0, 2]]).rows == 10
    meta = place.frames(baseline()).meta
    assert meta["code_sha256"] != meta["merged_from"][0]["code_sha256"]


def test_two_runs_of_one_route_at_once_lose_nothing(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda start: place.run(baseline(), [[start, start + 2]], block_ticks=3), (0, 3, 6, 9)))
    cache = place.frames(baseline())
    assert ticks(cache) == [*range(21), *range(30, 51), *range(60, 81), *range(90, 111)]


def test_a_rebuild_that_fails_leaves_the_old_cache(place: Place) -> None:
    place.run(baseline(), [[0, 8]])
    old = place.caches.identity("test", UID)
    with pytest.raises(RuntimeError, match="out of luck"):
        place.run(dataclasses.replace(baseline("raises"), code_version="2"), [[0, 8]], rebuild=True, block_ticks=10)
    assert place.caches.identity("test", UID) == old


def test_other_channels_are_refused_before_any_work(place: Place) -> None:
    place.run(baseline(), [[0, 1]])
    with pytest.raises(CacheInvalidError, match="channels"):
        place.run(baseline(channels=["a", "b"]), [[0, 2]])


@pytest.mark.parametrize("content", [b"", b"half a zip file"])
def test_an_unreadable_cache_is_moved_aside_and_made_anew(place: Place, content: bytes) -> None:
    place.run(baseline(), [[0, 1]])
    path = place.folder / "caches" / place.caches.path("test", UID)
    path.write_bytes(content)
    assert place.run(baseline(), [[0, 1]]).rows == 11
    (aside,) = place.caches.aside("test")
    assert (path.parent / aside).read_bytes() == content
    assert place.frames(baseline()).n == 11


def test_rows_that_a_stored_span_lacks_are_extracted(place: Place) -> None:
    place.run(baseline(), [[0, 2]])
    cache = place.frames(baseline())
    keep = np.ones(cache.n, bool)
    keep[5:8] = False
    for name in ("t", "frame_idx", "box", "valid", "fail", "feat"):
        setattr(cache, name, getattr(cache, name)[keep])
    place.caches.save("test", cache)
    assert place.run(baseline(), [[0, 2]]).rows == 3
    assert place.frames(baseline()).n == 21


def test_the_same_content_has_the_same_digest_whatever_the_blocks(place: Place, tmp_path: Path, stream: Path) -> None:
    place.run(baseline(), [[0, 6]], block_ticks=7)
    other = Place(_made(tmp_path / "other"), stream)
    other.run(baseline(), [[0, 6]])
    one, two = place.frames(baseline()), other.frames(baseline())
    one.meta["video"] = two.meta["video"]  # another copy has another time
    assert content_digest(one) == content_digest(two)


# --- who is asked


def test_third_party_extractors_are_found_by_entry_point() -> None:
    assert {"facemesh", "flow", "onnx", "external", "numbers", "slow"} <= set(names())


@pytest.mark.parametrize(
    ("extractor", "message"), [("lacks_library", "library_nobody_has"), ("absent", "Absent"), ("nobody", "not known")]
)
def test_an_extractor_that_can_not_be_loaded_says_why(extractor: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        baseline(extractor)


def test_external_baselines_and_unsafe_names_are_refused(place: Place) -> None:
    with pytest.raises(ExtractorError, match="other programs"):
        place.run(registry({"theirs": {"extractor": "external"}})["theirs"], [[0, 1]])
    with pytest.raises(RouteNameError):
        run_route(baseline(), "../x", [[0, 1]], caches=place.caches, videos=FileRoot(place.folder / "videos"))
    with pytest.raises(ValueError, match="finite"):
        place.run(baseline(), [[0, float("nan")]])
