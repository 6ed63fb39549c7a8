"""Long tests of the cache store: many writers at once, kills, full disks, read-only folders, and `python -O`."""

import multiprocessing as mp
import os
import random
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from dms_assets import cache_schema as cs
from dms_assets.cache_store import CacheStore
from resources.files import FileRoot
from tests.builders import dms

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
ROUTES = [f"route_{i}" for i in range(4)]
SECONDS = 45.0
WORKERS = 8


def _write_and_read(folder: Path, worker: int, stop: Event, out: Any) -> None:
    """Add a worker's own ticks to random routes and read random routes; report what it added, or what went wrong."""
    store, rng = CacheStore(FileRoot(folder)), random.Random(worker)
    added: list[tuple[str, int]] = []
    reads = 0
    try:
        while not stop.is_set():
            uid, block = rng.choice(ROUTES), len(added) * WORKERS * 2 + worker
            piece = dms.frames(uid, 5 * block, 5 * block + 4)
            store.update("flow", uid, lambda old, piece=piece: piece if old is None else old.merged_with(piece))  # type: ignore[misc]
            added.append((uid, block))
            for _ in range(3):
                uid = rng.choice(ROUTES)
                if store.identity("flow", uid) is not None:
                    store.load("flow", uid)
                    store.header("flow", uid)
                    reads += 1
        out.put((worker, added, reads, ""))
    except (OSError, ValueError) as error:
        out.put((worker, added, reads, repr(error)))


def test_8_processes_and_8_threads_lose_no_span_and_no_reader_sees_an_error(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    stop, out = context.Event(), context.Queue()
    arguments = [(tmp_path, worker, stop, out) for worker in range(2 * WORKERS)]
    processes = [context.Process(target=_write_and_read, args=each) for each in arguments[:WORKERS]]
    threads = [threading.Thread(target=_write_and_read, args=each) for each in arguments[WORKERS:]]
    runners: list[Any] = [*processes, *threads]
    for runner in runners:
        runner.start()
    time.sleep(SECONDS)
    stop.set()
    results = [out.get(timeout=120) for _ in arguments]
    for runner in runners:
        runner.join(60)
    assert [error for *_, error in results if error] == []
    store = CacheStore(FileRoot(tmp_path))
    wanted: dict[str, list[int]] = {uid: [] for uid in ROUTES}
    for _, added, reads, _ in results:
        assert added
        assert reads
        for uid, block in added:
            wanted[uid].extend(range(5 * block, 5 * block + 5))
    assert len({worker for worker, *_ in results}) == 2 * WORKERS
    for uid, ticks in wanted.items():
        cache = store.load("flow", uid)
        assert isinstance(cache, cs.RouteCache)
        assert (cache.frame_idx // 2).tolist() == sorted(ticks)
        assert store.findings("flow", uid) == []
    assert store.uids("flow") == sorted(ROUTES)
    assert store.clean("flow", 0) == []


_WRITER = """
import sys
from dms_assets.cache_store import CacheStore
from resources.files import FileRoot
from tests.builders import dms
store = CacheStore(FileRoot(sys.argv[1]))
print("ready", flush=True)
for i in range(10**9):
    cache = dms.frames("killed", 0, 3000, channels=16, seed=i % 7)
    store.save("flow", cache)
"""


def test_100_kills_leave_a_whole_target_and_nothing_that_looks_like_a_cache(tmp_path: Path) -> None:
    store, rng = CacheStore(FileRoot(tmp_path)), random.Random(0)
    store.save("flow", dms.frames("killed", 0, 3000, channels=16))
    first = store.identity("flow", "killed")
    folder = tmp_path / "cache" / "flow"
    left_overs = 0
    for start in range(0, 100, 4):  # interpreters start slowly: four at a time
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
            for _ in range(min(4, 100 - start))
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        for writer in writers:
            time.sleep(rng.uniform(0, 0.12))
            writer.send_signal(signal.SIGKILL)
            assert writer.wait() == -signal.SIGKILL
            assert writer.stdout is not None
            writer.stdout.close()
            cache = store.load("flow", "killed")
            assert isinstance(cache, cs.RouteCache)
            assert cache.n == 3001
        assert [path.name for path in folder.glob("*.npz")] == ["killed.npz"]
        assert store.uids("flow") == ["killed"]
        left_overs += len(store.clean("flow", 0))
        assert [path.name for path in folder.iterdir() if path.name.endswith(".partial")] == []
    assert store.identity("flow", "killed") != first
    assert left_overs > 0  # else no kill hit a writer at work


_FILL = """
import os, sys
from dms_assets.cache_store import CacheStore
from resources.files import FileRoot
from tests.builders import dms
store = CacheStore(FileRoot(sys.argv[1]))
try:
    store.update("flow", dms.UID, lambda old: old.merged_with(dms.frames(k0=51, k1=30_000, channels=4)))
except OSError as error:
    print(error.errno, error)
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=ENVIRONMENT)


def _stored(folder: Path) -> tuple[CacheStore, bytes]:
    store = CacheStore(FileRoot(folder))
    store.save("flow", dms.frames())
    return store, (folder / store.path("flow", dms.UID)).read_bytes()


def _left(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder / "cache" / "flow") if not name.endswith(".lock"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk; the next test needs no root")
def test_a_full_disk_is_a_clear_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        _, before = _stored(disk)
        done = subprocess.run(
            [sys.executable, "-c", _FILL, str(disk)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("28 "), done.stdout + done.stderr  # ENOSPC
        assert "No space left" in done.stdout
        assert "Traceback" not in done.stderr
        assert (disk / "cache" / "flow" / f"{dms.UID}.npz").read_bytes() == before
        assert _left(disk) == [f"{dms.UID}.npz"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_size_limit_is_a_clear_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    _, before = _stored(tmp_path)
    script = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    script += "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n" + _FILL
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("27 "), done.stdout + done.stderr  # EFBIG
    assert (tmp_path / "cache" / "flow" / f"{dms.UID}.npz").read_bytes() == before
    assert _left(tmp_path) == [f"{dms.UID}.npz"]


def test_a_read_only_folder_is_a_clear_error_and_can_be_read(tmp_path: Path) -> None:
    _, before = _stored(tmp_path)
    folder = tmp_path / "cache" / "flow"
    for path in [tmp_path, *tmp_path.parents][:3]:  # pytest's own folders, for the other user to pass through
        path.chmod(path.stat().st_mode | 0o055)
    as_nobody = "store = CacheStore(FileRoot(sys.argv[1]))\nstore.load('flow', dms.UID)\n"
    as_nobody += "if os.geteuid() == 0:\n    os.seteuid(65534)\n"  # after loading: the interpreter imports lazily
    script = (
        _FILL.replace("store = CacheStore(FileRoot(sys.argv[1]))\n", as_nobody)
        + "print(store.load('flow', dms.UID).n, store.header('flow', dms.UID).n)\n"
    )
    folder.chmod(0o555)
    try:
        done = run(script, tmp_path)
    finally:
        folder.chmod(0o755)
    assert len(done.stdout.splitlines()) == 2, done.stderr
    said, read = done.stdout.splitlines()
    assert said.startswith("13 "), done.stdout + done.stderr  # EACCES
    assert "Permission denied" in said
    assert read == "51 51"
    assert (folder / f"{dms.UID}.npz").read_bytes() == before
    assert _left(tmp_path) == [f"{dms.UID}.npz"]


def test_everything_holds_under_python_o() -> None:
    tests = sorted(
        str(path) for path in Path(__file__).parent.glob("test_dms_*.py") if path.name != Path(__file__).name
    )
    command = [sys.executable, "-O", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not soak"]
    # pytest warns that plain asserts are off; those of test modules are rewritten and hold.
    command += ["-W", "ignore::pytest.PytestConfigWarning", *tests]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
