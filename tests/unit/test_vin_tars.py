"""Tar headers in every form found in the wild, and every way in which a tar is damaged."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from vin_assets.vin_store.tars import BLOCK, Pair, TarScan, pair_of, scan_tar

RAW = "AriaSyntheticEnvironment_{}_AtekDataSample_{:06d}"


def build(names: list[str], size: int = 700, kind: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(b"p" * size))
    return file.getvalue()


def scan(path: Path, data: bytes) -> TarScan:
    path.write_bytes(data)
    with path.open("rb") as file:
        return scan_tar(file)


def snippets(count: int) -> list[str]:
    return [f"{RAW.format(7, number)}.{member}.jpeg" for number in range(count) for member in ("a", "b")]


def pairs(count: int) -> frozenset[Pair]:
    return frozenset(("7", f"ASE_7_Atek_{number:06d}") for number in range(count))


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        (f"{RAW.format(81286, 3)}.mfcd#camera+images_0.jpeg", ("81286", "ASE_81286_Atek_000003")),
        (f"folder/{RAW.format(81286, 3)}.x", ("81286", "ASE_81286_Atek_000003")),
        (f"{RAW.format(1, 2)}-extra.x", ("1", "ASE_1_Atek_000002-extra")),
        ("scene-a/snippet-000.tar.gz", ("scene-a", "snippet-000")),
        ("top/scene-a/snippet-000.x", ("scene-a", "snippet-000")),
        ("./snippet.x", None),
        ("snippet.x", None),
        ("scene/.hidden", None),
        ("scene/", None),
        ("/snippet.x", None),
        ("", None),
    ],
)
def test_the_pair_of_a_member(name: str, pair: Pair | None) -> None:
    assert pair_of(name) == pair


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_plain_tar_costs_one_header_per_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    read: list[int] = []
    pread = os.pread

    def counted(fd: int, length: int, offset: int) -> bytes:
        read.append(length)
        return pread(fd, length, offset)

    monkeypatch.setattr(os, "pread", counted)
    assert scan(tmp_path / "a.tar", build(snippets(50), 5000, kind)) == TarScan(pairs(50))
    assert sum(read) == BLOCK * (100 + 2)  # the first one twice: it tells what the file is


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_beyond_a_header(tmp_path: Path, kind: int) -> None:
    deep = "d" * 120
    names = [f"{deep}/{deep}/scene-ü/snippet-{'s' * 150}.x", *snippets(1)]
    found = scan(tmp_path / "a.tar", build(names, kind=kind))
    assert found == TarScan(pairs(1) | {("scene-ü", f"snippet-{'s' * 150}")})


def test_a_ustar_prefix(tmp_path: Path) -> None:
    names = [f"{'d' * 120}/scene/snippet.x"]
    data = build(names, kind=tarfile.USTAR_FORMAT)
    assert data[345:350] == b"ddddd"
    assert scan(tmp_path / "a.tar", data) == TarScan(frozenset({("scene", "snippet")}))


def test_sizes_beyond_8_gib(tmp_path: Path) -> None:
    size = 9 << 30
    info = tarfile.TarInfo("scene/large.x")
    info.size = size
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.seek(BLOCK + size)  # a hole: nothing is stored
        file.write(build(snippets(1)))
    with path.open("rb") as file:
        assert file.read(BLOCK)[124] == 0x80
        assert scan_tar(file) == TarScan(pairs(1) | {("scene", "large")})


def test_a_pax_size_counts_before_the_headers_own(tmp_path: Path) -> None:
    data = bytearray(build(snippets(2), kind=tarfile.PAX_FORMAT))
    info = tarfile.TarInfo("scene/large.x")
    info.size = 3000
    info.pax_headers = {"size": "3000", "comment": "ü" * 10}
    head = info.tobuf(tarfile.PAX_FORMAT)
    own = tarfile.TarInfo("scene/large.x").tobuf(tarfile.USTAR_FORMAT)  # says 0 bytes
    assert scan(tmp_path / "a.tar", head[:-BLOCK] + own + b"p" * 3072 + bytes(data)) == TarScan(
        pairs(2) | {("scene", "large")}
    )


def test_folders_and_links_are_no_snippets(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind in (("scene/folder", tarfile.DIRTYPE), ("scene/link", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "scene/" + "x" * 150
            archive.addfile(info)
        archive.addfile(tarfile.TarInfo("scene/empty.x"))
    assert scan(tmp_path / "a.tar", file.getvalue()) == TarScan(frozenset({("scene", "empty")}))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.mark.parametrize("kind", COMPRESS)
def test_compressed_content_under_a_tar_name(tmp_path: Path, kind: str) -> None:
    data = build(snippets(30), 5000)
    assert scan(tmp_path / "a.tar", COMPRESS[kind](data)) == TarScan(pairs(30))


@pytest.mark.parametrize("kind", COMPRESS)
def test_cut_compressed_content_counts_as_far_as_it_goes(tmp_path: Path, kind: str) -> None:
    names = [f"scene/{number}.{os.urandom(40).hex()}" for number in range(400)]
    data = COMPRESS[kind](b"".join(build([name], 4)[: 2 * BLOCK] for name in names) + bytes(1024))
    whole = scan(tmp_path / "a.tar", data)
    assert (len(whole.pairs), whole.damage) == (400, None)
    found = scan(tmp_path / "a.tar", data[: len(data) * 3 // 4])
    assert found.damage is not None
    assert found.pairs < whole.pairs
    if kind != "bzip2":  # its one block is all or nothing
        assert found.pairs


def test_two_gzip_streams_in_a_row_are_one_archive(tmp_path: Path) -> None:
    data = build(snippets(4))
    assert scan(tmp_path / "a.tar", gzip.compress(data[:2000]) + gzip.compress(data[2000:])) == TarScan(pairs(4))


def cut_at(position: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position]


# Two members of 700 bytes per snippet: each takes a header and two blocks.
MEMBER = 3 * BLOCK


@pytest.mark.parametrize(
    ("change", "reason", "whole"),
    [
        (cut_at(4 * MEMBER + BLOCK + 100), "cut inside the payload", 3),
        (cut_at(4 * MEMBER), "cut at a member's end", 2),
        (cut_at(4 * MEMBER + 77), "cut inside a header", 2),
        (cut_at(100), "not a tar: shorter than one header", 0),
        (lambda data: bytes(len(data)), "zero-filled", 0),
        (lambda data: b"no tar at all " * 100, "not a tar", 0),
        (lambda data: b"\x1f\x8bno gzip either" * 100, "gzip content is damaged", 0),
        (lambda data: data[: 4 * MEMBER] + b"\xff" * BLOCK + data[4 * MEMBER + BLOCK :], "damaged: no valid header", 2),
        (lambda data: data + bytes(2 << 20), "follow the end of the archive", 5),
    ],
)
def test_damage_is_told_and_costs_only_the_rest(
    tmp_path: Path, change: Callable[[bytes], bytes], reason: str, whole: int
) -> None:
    found = scan(tmp_path / "a.tar", change(build(snippets(5))))
    assert found.damage is not None
    assert reason in found.damage
    assert found.pairs == pairs(whole)


def test_an_absurd_extended_header_is_damage_and_no_allocation(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    found = scan(tmp_path / "a.tar", info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    assert found.damage == f"the extended header at byte 0 claims {1 << 40} bytes"


@given(st.binary(max_size=2000))
def test_no_bytes_raise(data: bytes) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"vin-tar-{os.getpid()}"
    try:
        assert scan(path, data).damage is not None
    finally:
        path.unlink()


@given(st.integers(0, 6000), st.binary(min_size=1, max_size=30))
def test_no_overwritten_bytes_raise_or_add_members(position: int, junk: bytes) -> None:
    data = bytearray(build(snippets(2)))
    data[position : position + len(junk)] = junk
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"vin-tar-{os.getpid()}"
    try:
        found = scan(path, bytes(data))
    finally:
        path.unlink()
    assert len(found.pairs) <= 4
