"""Scanning the headers of a raw tar of 6,000 members, measured against `tarfile`, and joining 160,000 pairs.

Both scans run in one process on a warm page cache, best of five, and have to give the same pairs.

Usage: python -m benchmarks.tar_scan [--members N]
"""

import argparse
import io
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vin_assets.vin_store.coverage import join
from vin_assets.vin_store.tars import pair_of, scan_tar

MEMBERS_PER_SNIPPET = 76


def build(path: Path, members: int) -> None:
    payload = b"x" * 3000
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for number in range(members):
            snippet, member = divmod(number, MEMBERS_PER_SNIPPET)
            info = tarfile.TarInfo(f"AriaSyntheticEnvironment_1_AtekDataSample_{snippet:06d}.mfcd#camera+{member}.jpeg")
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))


def with_tarfile(path: Path) -> set[tuple[str, str]]:
    with tarfile.open(path) as archive:
        found = {pair_of(member.name) for member in archive if member.isfile()}
    return {pair for pair in found if pair is not None}


def with_walker(path: Path) -> set[tuple[str, str]]:
    with path.open("rb") as file:
        return set(scan_tar(file).pairs)


def best_of(work: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times), result


def main() -> None:
    parser = argparse.ArgumentParser(description="header walker against tarfile")
    parser.add_argument("--members", type=int, default=6080)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tar-scan-") as folder:
        path = Path(folder) / "shard.tar"
        build(path, options.members)
        with_walker(path)
        walker, ours = best_of(lambda: with_walker(path))
        library, theirs = best_of(lambda: with_tarfile(path))
    if ours != theirs:
        raise SystemExit("the two scans differ")
    print(f"{options.members} members, {len(ours)} snippets")
    print(f"tarfile {library * 1e3:7.1f} ms")
    print(f"walker  {walker * 1e3:7.1f} ms   {library / walker:.1f} times faster")
    dataset = {(f"scene-{scene}", f"snippet-{snippet}") for scene in range(800) for snippet in range(200)}
    stored = {pair for number, pair in enumerate(sorted(dataset)) if number % 3}
    joined, result = best_of(lambda: join("store", dataset, stored), 3)
    print(f"join of 800 scenes x 200 snippets {joined * 1e3:.0f} ms, coverage {result.coverage:.3f}")


if __name__ == "__main__":
    main()
