"""A long extraction that is killed again and again: each resumption goes on, and nothing of the result differs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dms_assets.cache_schema import RouteCache, WindowCache
from dms_assets.cache_store import CacheStore
from dms_assets.contract import CacheUnreadableError
from dms_assets.digest import content_digest
from resources.files import FileRoot
from tests.builders import third_party
from tests.builders.video import encode, numbered

FRAMES, TICKS, KILLS = 6000, 1501 + 1400, 60
_CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from dms_assets.baselines import registry
from dms_assets.cache_store import CacheStore
from dms_assets.extraction.run_route import run_route
from resources.files import FileRoot
baseline = registry({"test": {"extractor": sys.argv[3], "code_version": "1", **eval(sys.argv[4])}})["test"]
root = sys.argv[2]
print("ready", flush=True)
report = run_route(baseline, "r", [[0, 150], [160, 299.9]], caches=CacheStore(FileRoot(root + "/caches")),
    videos=FileRoot(root + "/videos"), block_ticks=20)
print(report.rows, flush=True)
"""


def start(site: Path, root: Path, extractor: str, entry: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CODE, str(site), str(root), extractor, entry]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def stored(root: Path) -> RouteCache | WindowCache | None:
    try:
        return CacheStore(FileRoot(root / "caches")).load("test", "r")
    except FileNotFoundError:
        return None


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(numbered(FRAMES), tmp_path_factory.mktemp("stream") / "r.hevc", crf=32)


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("extractor", "entry", "kills"),
    [("slow", "{}", KILLS * 2 // 3), ("slow_windows", '{"kind": "windows", "win_len": 16}', KILLS // 3)],
)
def test_a_killed_extraction_goes_on_from_its_last_block_and_ends_in_the_same_cache(
    tmp_path: Path, stream: Path, extractor: str, entry: str, kills: int
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    third_party.install(site)
    roots = [tmp_path / "killed", tmp_path / "whole"]
    for root in roots:
        (root / "caches").mkdir(parents=True)
        (root / "videos").mkdir()
        os.link(stream, root / "videos" / "r.hevc")
    random = np.random.default_rng(1)
    rows, grown = 0, 0
    for _ in range(kills):
        process = start(site, roots[0], extractor, entry)
        time.sleep(float(random.uniform(0.0, 0.5)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        try:
            cache = stored(roots[0])
        except CacheUnreadableError as error:
            pytest.fail(f"a killed writer left half a file: {error}")
        now = 0 if cache is None else len(cache.spans) and int(np.rint(10 * np.diff(cache.spans).sum()))
        assert now >= rows
        grown += now > rows
        rows = now
    assert grown > kills // 4
    assert rows < TICKS  # every kill hit a living extraction
    for root in roots:
        process = start(site, root, extractor, entry)
        out, _ = process.communicate(timeout=200)
        assert process.returncode == 0
        done = int(out)
        assert 0 < done < TICKS - rows + 100 if root is roots[0] else done > 2800
    killed, whole = (stored(root) for root in roots)
    assert killed is not None
    assert whole is not None
    for (name, one), (_, other) in zip(killed.arrays().items(), whole.arrays().items(), strict=True):
        if name not in ("runtime", "meta"):
            np.testing.assert_array_equal(one, other, err_msg=name)
    assert content_digest(killed) == content_digest(whole)
    assert CacheStore(FileRoot(roots[0] / "caches")).findings("test", "r") == []
    folder = roots[0] / "caches" / "cache" / "test"
    assert [path.name for path in folder.glob("*.npz")] == ["r.npz"]
    CacheStore(FileRoot(roots[0] / "caches")).clean("test", 0)
    assert [path.name for path in folder.iterdir() if path.name.endswith(".partial")] == []
