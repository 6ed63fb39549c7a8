"""Extraction under bad luck: videos that are no videos, that change while they are read, full disks, absurd wishes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dms_assets.contract import RouteNameError
from dms_assets.extraction.run_route import _work, run_route
from dms_assets.extraction.video import VideoMissingError, VideoRefusedError, list_videos
from dms_assets.spans import count_ticks
from resources import files
from resources.files import FileRoot, PathRefusedError
from tests.builders.video import access_units, encode, numbered
from tests.unit.test_ext_run_route import UID, Place, baseline, same_arrays, ticks

pytestmark = pytest.mark.usefixtures("third_party_extractors")


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(numbered(120), tmp_path_factory.mktemp("stream") / "route1.hevc")


@pytest.fixture
def place(tmp_path: Path, stream: Path) -> Place:
    return Place(tmp_path, stream)


@pytest.mark.parametrize("kind", ["folder", "fifo", "empty", "text", "link out of the root", "link to nothing"])
@pytest.mark.parametrize("suffix", [".hevc", ".mp4", ".mkv"])
def test_what_is_no_video_stores_nothing_and_names_the_file(place: Place, kind: str, suffix: str) -> None:
    place.video.unlink()
    path = place.video.with_suffix(suffix)
    outside = place.folder / "outside"
    outside.write_bytes(b"secret")
    make: dict[str, Callable[[], object]] = {
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "empty": lambda: path.write_bytes(b""),
        "text": lambda: path.write_bytes(b"no video " * 1000),
        "link out of the root": lambda: path.symlink_to(outside),
        "link to nothing": lambda: path.symlink_to("nowhere"),
    }
    make[kind]()
    with pytest.raises((OSError, VideoRefusedError, VideoMissingError, PathRefusedError), match=path.name):
        place.run(baseline(), [[0, 1]])
    assert place.caches.uids("test") == []
    list_videos(FileRoot(path.parent))  # and no other route is hurt by it


def test_a_video_that_is_replaced_while_it_is_read_gives_frames_of_one_file_and_is_noticed(
    place: Place, tmp_path: Path
) -> None:
    other = encode(numbered(60), tmp_path / "other.hevc")
    swapped: list[bool] = []

    def swap(done: int, _: int) -> None:
        if done == 10 and not swapped:
            os.replace(other, place.video)
            swapped.append(True)

    report = place.run(baseline(), [[0, 4.9]], block_ticks=8, progress=swap)
    assert swapped
    cache = place.frames(baseline())
    np.testing.assert_array_equal(cache.feat[cache.valid, 0], cache.frame_idx[cache.valid])
    assert report.failed == {}
    assert cache.meta["video"]["size"] != place.video.stat().st_size  # it names what was read


def test_a_video_that_shrinks_while_it_is_read_never_gives_a_wrong_frame(place: Place) -> None:
    def shrink(done: int, _: int) -> None:
        if done == 10:
            os.truncate(place.video, len(b"".join(access_units(place.video)[:40])) - 7)

    report = place.run(baseline(), [[0, 4.9]], block_ticks=8, progress=shrink)
    cache = place.frames(baseline())
    np.testing.assert_array_equal(cache.feat[cache.valid, 0], cache.frame_idx[cache.valid])
    assert report.failed["no_frame"] > 20
    again = place.run(baseline(), [[0, 4.9]])
    assert again.rows >= report.failed["no_frame"], "what the shorter file could not give is tried on what is there now"


def test_a_full_disk_keeps_the_blocks_before_and_the_run_goes_on_when_there_is_room(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writes = os.fsync, []

    def full(fd: int) -> None:
        writes.append(fd)
        if len(writes) > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        place.run(baseline(), [[0, 4.9]], block_ticks=10)
    monkeypatch.setattr(os, "fsync", real)
    begun = place.frames(baseline())
    assert 0 < begun.n < 50
    folder = place.folder / "caches" / "cache" / "test"
    assert [path.name for path in folder.glob("*.npz")] == [f"{UID}.npz"]
    assert place.run(baseline(), [[0, 4.9]]).rows == 50 - begun.n
    assert ticks(place.frames(baseline())) == list(range(50))


def test_two_runs_that_want_the_same_give_what_one_gives(place: Place, tmp_path: Path, stream: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda size: place.run(baseline(), [[0, 4.9]], block_ticks=size), (3, 7, 50)))
    (tmp_path / "alone").mkdir()
    alone = Place(tmp_path / "alone", stream)
    alone.run(baseline(), [[0, 4.9]])
    same_arrays(place.frames(baseline()), alone.frames(baseline()))


@pytest.mark.parametrize(
    "uid",
    ["", ".", "..", "a/b", "../x", "a\0b", "a b", "ä", "-rf", ".hidden", "a..b", "a\nb", "x" * 201, "a,b", "a\tb"],
)
def test_a_name_that_is_no_routes_name_is_refused_before_any_file_is_touched(place: Place, uid: str) -> None:
    before = sorted(place.folder.rglob("*"))
    with pytest.raises(RouteNameError):
        run_route(baseline(), uid, [[0, 1]], caches=place.caches, videos=FileRoot(place.video.parent))
    assert sorted(place.folder.rglob("*")) == before


@pytest.mark.parametrize("uid", ["a", "A.b-c_d", "0", "x" * 200, "00aa11bb22cc33dd_2026-10-01--08-00-00"])
def test_an_odd_but_safe_name_is_a_route_like_any_other(place: Place, uid: str) -> None:
    os.replace(place.video, place.video.with_name(f"{uid}.hevc"))
    report = run_route(baseline(), uid, [[0, 1]], caches=place.caches, videos=FileRoot(place.video.parent))
    assert report.rows == 11


@pytest.mark.parametrize(
    "spans", [[[5, 1]], [[-1, 1]], [[-3, -1]], [[0, float("inf")]], [[float("nan"), 1]], [[0, 1e12]], [[1e300, 1e300]]]
)
def test_wanted_spans_that_no_route_can_have_are_refused_before_any_work(place: Place, spans: Any) -> None:
    with pytest.raises(ValueError, match="span"):
        place.run(baseline(), spans)
    assert place.caches.uids("test") == []


def test_unreadable_video_is_an_os_error_that_names_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FileRoot, path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files.FileRoot, "open", refuse)
    with pytest.raises(PermissionError, match=r"route1\.hevc"):
        place.run(baseline(), [[0, 1]])
    assert place.caches.uids("test") == []


def test_a_stored_span_of_an_aeon_costs_a_rebuild_only_what_can_be(place: Place) -> None:
    windows = baseline("number_windows", kind="windows", win_len=4)
    place.run(windows, [[0, 1]])
    cache = place.windows(windows)
    cache.spans = np.array([[0, 1], [2, 1e8]], np.float32)
    place.caches.save("test", cache)
    work = _work(windows, np.array([[0, 10]]), place.windows(windows), None, rebuild=True)
    assert count_ticks(work.decode) <= 1_000_001
