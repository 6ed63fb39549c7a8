"""The cache store: names are checked, nothing outside is opened, nobody's work is lost, judging costs only the file."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dms_assets import cache_schema as cs
from dms_assets.cache_file import read_header
from dms_assets.cache_store import CacheStore, ConcurrentWriterError
from dms_assets.contract import FRAMES, RouteNameError
from dms_assets.digest import content_digest
from dms_assets.npz import open_container
from resources.files import FileRoot
from tests.builders import dms

UID = dms.UID


@pytest.fixture
def store(tmp_path: Path) -> CacheStore:
    return CacheStore(FileRoot(tmp_path / "caches"))


def add(k0: int, k1: int, **extra: Any) -> Any:
    """A merge that adds ticks to whatever is stored."""

    def merge(stored: cs.RouteCache | cs.WindowCache | None) -> cs.RouteCache:
        piece = dms.frames(k0=k0, k1=k1, **extra)
        assert stored is None or isinstance(stored, cs.RouteCache)
        return piece if stored is None else stored.merged_with(piece)

    return merge


def test_a_new_store_is_empty_once_its_root_exists_and_an_error_before(store: CacheStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.uids("flow")
    with pytest.raises(FileNotFoundError):
        store.baselines()
    store.root.path.mkdir()
    assert store.uids("flow") == []
    assert store.baselines() == []
    assert store.identity("flow", UID) is None
    assert store.clean("flow", 0) == []
    assert os.listdir(store.root.path) == []


def test_listing_gives_identities_and_names_what_no_route_is_called(store: CacheStore) -> None:
    store.update("flow", UID, add(0, 50))
    folder = store.root.path / "cache" / "flow"
    for name in ("a|b.npz", ".hidden.npz", "notes.txt", "a..b.npz"):
        (folder / name).write_bytes(b"")
    (folder / "folder.npz").mkdir()
    (store.root.path / "cache" / "Not-A-Baseline").mkdir()
    (store.root.path / "cache" / "a_file").write_bytes(b"")
    listing = store.listing("flow")
    assert listing.files == {UID: store.identity("flow", UID)}
    assert [finding.where.split("/")[-1] for finding in listing.strange] == ["a..b.npz", "a|b.npz", "folder.npz"]
    assert {finding.code for finding in listing.strange} == {"uid_not_canonical"}
    assert store.baselines() == ["flow"]


@pytest.mark.parametrize("uid", ["../../evil", "a/b", "a\0b", ""])
def test_an_unsafe_name_reaches_no_file(store: CacheStore, uid: str) -> None:
    store.root.path.mkdir()
    for call in (store.load, store.header, store.findings, store.identity, store.move_aside):
        with pytest.raises(RouteNameError):
            call("flow", uid)
        with pytest.raises(RouteNameError):
            call("../flow", UID)
    with pytest.raises(RouteNameError):
        store.update("flow", uid, add(0, 1))
    assert os.listdir(store.root.path) == []


def test_a_uid_inside_a_file_never_leads_anywhere(store: CacheStore) -> None:
    arrays = dms.healthy(FRAMES)
    arrays["uid"] = np.array("../../evil")
    dms.write(store.root.path / store.path("flow", UID), arrays)
    with pytest.raises(cs.CacheInvalidError, match="uid"):
        store.update("flow", UID, add(0, 1))
    assert [finding.code for finding in store.findings("flow", UID)] == ["uid"]
    files = sorted(path for path in store.root.path.parent.rglob("*") if path.is_file())
    assert [path.name for path in files if not path.name.endswith(".lock")] == [f"{UID}.npz"]


def test_updating_merges_into_what_is_stored(store: CacheStore) -> None:
    store.update("flow", UID, add(0, 50))
    written = store.update("flow", UID, add(51, 100))
    assert written.covers([[0, 10]])
    stored = store.load("flow", UID)
    assert content_digest(stored) == content_digest(written) == store.digest("flow", UID)
    assert store.findings("flow", UID) == []
    header = store.header("flow", UID)
    assert (header.uid, header.n, header.spans.tolist()) == (UID, 101, [[0, 10]])


def test_a_result_of_another_route_or_baseline_is_not_written(store: CacheStore) -> None:
    with pytest.raises(cs.CacheInvalidError, match="uid"):
        store.update("flow", "other", add(0, 1))
    with pytest.raises(cs.CacheInvalidError, match="baseline"):
        store.update("clips", UID, add(0, 1))
    with pytest.raises(cs.CacheInvalidError, match="baseline"):
        store.save("clips", dms.frames())
    assert store.uids("flow") == store.uids("clips") == []


def test_another_programs_replacement_in_between_is_merged_again(store: CacheStore) -> None:
    store.update("flow", UID, add(0, 10))
    target = store.root.path / store.path("flow", UID)
    calls = []

    def merge(stored: Any) -> Any:
        calls.append(stored.n)
        if len(calls) == 1:  # a program that knows nothing of our locks
            stored.merged_with(dms.frames(k0=11, k1=20)).save(target)
        return stored.merged_with(dms.frames(k0=21, k1=30))

    store.update("flow", UID, merge)
    assert calls == [11, 21]
    assert store.load("flow", UID).covers([[0, 3]])


def test_a_file_that_another_program_makes_first_is_merged_too(store: CacheStore) -> None:
    def merge(stored: Any) -> Any:
        if stored is None:
            dms.frames(k0=0, k1=10).save(store.root.path / store.path("flow", UID))
        return add(11, 20)(stored)

    assert store.update("flow", UID, merge).covers([[0, 2]])


def test_a_program_that_never_stops_replacing_is_an_error(store: CacheStore) -> None:
    def merge(stored: Any) -> Any:
        dms.frames().save(store.root.path / store.path("flow", UID))
        return dms.frames()

    with pytest.raises(ConcurrentWriterError, match=UID):
        store.update("flow", UID, merge)


def test_our_writers_wait_for_each_other(store: CacheStore) -> None:
    threads = [threading.Thread(target=store.update, args=("flow", UID, add(10 * i, 10 * i + 9))) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.load("flow", UID).covers([[0, 11.9]])


def test_a_file_is_moved_aside_only_while_it_is_the_one_that_was_judged(store: CacheStore) -> None:
    path = store.root.path / store.path("flow", UID)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"broken")
    judged = store.judge("flow", UID).identity
    path.write_bytes(b"replaced meanwhile")
    assert store.move_aside("flow", UID, judged) is None
    first = store.move_aside("flow", UID)
    assert first is not None
    assert store.move_aside("flow", UID) is None
    path.write_bytes(b"broken again")
    second = store.move_aside("flow", UID)
    assert second is not None
    assert first != second
    assert store.uids("flow") == []
    assert len(store.aside("flow")) == 2
    assert (store.root.path / first).read_bytes() == b"replaced meanwhile"


def test_cleaning_removes_left_overs_and_old_files_aside(store: CacheStore) -> None:
    store.update("flow", UID, add(0, 1))
    folder = store.root.path / "cache" / "flow"
    left = f".{UID}.npz.{'0' * 32}.partial"
    (folder / left).write_bytes(b"half")
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    old, new = (f"{UID}.npz.corrupt-{stamp}" for stamp in ("20200101T000000Z", now))
    for name in (old, new, "foreign.npz.corrupt-x"):
        (folder / name).write_bytes(b"")
    assert store.clean("flow", 3600) == sorted([left, old])
    assert store.uids("flow") == [UID]
    assert (folder / new).exists()
    assert (folder / "foreign.npz.corrupt-x").exists()


def test_a_file_that_can_t_be_opened_is_an_io_error_not_a_finding(store: CacheStore) -> None:
    folder = store.root.path / "cache" / "flow"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.npz")
    (folder / "dangling.npz").symlink_to("nowhere.npz")
    (folder / "outside.npz").symlink_to("/etc/hostname")
    for uid in ("pipe", "dangling", "missing"):
        with pytest.raises(OSError, match=uid):
            store.findings("flow", uid)
    with pytest.raises(ValueError, match="out of the root"):
        store.findings("flow", "outside")


def test_a_header_inflates_no_features_and_reads_a_bounded_part_of_a_large_file(store: CacheStore) -> None:
    cache = dms.frames(k1=12_000, channels=64)
    store.save("flow", cache)
    size = (store.root.path / store.path("flow", UID)).stat().st_size
    with store.root.open(store.path("flow", UID)) as file:
        box = open_container(file.fileno(), UID)
        header = read_header(box)
        assert box.bytes_read < 24_000 < size / 20
    assert header.n == 12_001


def test_the_digest_leaves_out_time_and_runtime_and_nothing_else() -> None:
    cache = dms.frames()
    same = dms.frames(written_utc="2027-01-01T00:00:00Z")
    same.runtime = {}
    assert content_digest(cache) == content_digest(same)
    for name in ("t", "box", "feat", "frame_idx", "fail", "moving", "spans"):
        other = dms.frames()
        array = getattr(other, name)
        array[0] = array[0] + 1 if array.dtype != bool else ~array[0]
        assert content_digest(other) != content_digest(cache), name
    other = dms.frames(partial=True)
    assert content_digest(other) != content_digest(cache)
    other = dms.frames()
    other.channels = list(reversed(other.channels))
    assert content_digest(other) != content_digest(cache)


def test_the_digest_of_merged_history_leaves_out_its_times() -> None:
    one = dms.frames(k1=10).merged_with(dms.frames(k0=11))
    two = dms.frames(k1=10, written_utc="x").merged_with(dms.frames(k0=11, written_utc="y"))
    assert one.meta != two.meta
    assert content_digest(one) == content_digest(two)


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    one = dms.frames().save(tmp_path / "a.npz")
    cache = dms.frames()
    cache.meta = dict(reversed(cache.meta.items()))
    assert one.read_bytes() == cache.save(tmp_path / "b.npz").read_bytes()
