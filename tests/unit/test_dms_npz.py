"""Reading containers: bounded memory, no unpickling, one error with file, member and cause."""

import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dms_assets import cache_schema as cs
from dms_assets.cache_file import opened, read_header, read_raw
from dms_assets.npz import open_container, pack
from tests.builders import dms

ROOT = Path(__file__).parents[2]
FRAMES_FILE = pack(dms.healthy("route_frames"))


def npz_with(name: str, member: bytes, *, compress: bool = True) -> bytes:
    """A healthy file whose member `name` is replaced by raw bytes."""
    out = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(io.BytesIO(FRAMES_FILE)) as source, zipfile.ZipFile(out, "w", method) as archive:
        for info in source.infolist():
            archive.writestr(info.filename, member if info.filename == f"{name}.npy" else source.read(info.filename))
    return out.getvalue()


def npy_header(text: str) -> bytes:
    body = text.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body


CLAIMS_74_GIB = npy_header("{'descr': '<f2', 'fortran_order': False, 'shape': (620000000, 64), }")


def load_with_little_memory(path: Path) -> subprocess.CompletedProcess[str]:
    """Load a file in a process that may use 400 MB of address space beyond what imports take."""
    script = (
        "import sys, resource\n"
        "from dms_assets.cache_schema import load_any, CacheUnreadableError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "limit = used + 400_000_000\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        "    load_any(sys.argv[1])\n"
        "except CacheUnreadableError as error:\n"
        "    print(error)\n"
        "else:\n"
        "    print('loaded')\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_header_that_claims_74_gib_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz_with("feat", CLAIMS_74_GIB))
    message, peak_kib = load_with_little_memory(path).stdout.splitlines()
    assert "member feat" in message
    assert "(620000000, 64)" in message
    assert int(peak_kib) < 300_000


def declaring(data: bytes, name: str, size: int) -> bytes:
    """The file with another inflated size of a member in its directory."""
    changed = bytearray(data)
    at = changed.find(f"{name}.npy".encode(), changed.find(b"PK\1\2")) - 46
    changed[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(changed)


def test_a_zip_bomb_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(declaring(npz_with("feat", bytes(1 << 27)), "feat", 3 << 30))
    assert path.stat().st_size < 1 << 18
    message, peak_kib = load_with_little_memory(path).stdout.splitlines()
    assert f"member feat: declares {3 << 30} bytes" in message
    assert int(peak_kib) < 200_000


def test_a_member_that_inflates_to_more_than_it_declares_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(declaring(npz_with("feat", bytes(1 << 27)), "feat", 1000))
    message, peak_kib = load_with_little_memory(path).stdout.splitlines()
    assert "member feat" in message
    assert "1000 bytes" in message
    assert int(peak_kib) < 200_000


def test_the_bound_is_on_all_members_together(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(FRAMES_FILE)
    with opened(path) as box:
        inflated = sum(member.size for member in box.members.values())
    with opened(path, max_bytes=inflated) as box:
        read_raw(box)
    with opened(path, max_bytes=inflated - 1) as box, pytest.raises(cs.CacheUnreadableError, match="are allowed"):
        read_raw(box)
    with pytest.raises(cs.CacheUnreadableError, match="more than the allowed 100"), opened(path, max_bytes=100):
        pass


@pytest.mark.parametrize(
    ("member", "cause"),
    [
        (b"", "no npy array"),
        (b"\x93NUMPY\x01\x00\xff\xff{     ", "ends early"),
        (npy_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + bytes(8), "unpickling"),
        (npy_header("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }") + bytes(8), "unpickling"),
        (npy_header("__import__('os').system('true')"), "can't be read"),
        (npy_header("{'descr': '<f4', 'shape': (1,), }") + bytes(4), "can't be read"),
        (npy_header("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,), }"), "can't be read"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "shape"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }") + bytes(4), "claims"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }") + bytes(8), "claims"),
        (npy_header("(" * 5000), "can't be read"),
    ],
)
def test_a_broken_member_is_named_with_its_cause(tmp_path: Path, member: bytes, cause: str) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz_with("t", member))
    with pytest.raises(cs.CacheUnreadableError, match=cause) as caught:
        cs.load_any(path)
    assert (caught.value.file, caught.value.member) == ("a.npz", "t")


def test_a_repeated_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    out = io.BytesIO(FRAMES_FILE)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(out, "a") as archive:
        archive.writestr("uid.npy", b"")
    path.write_bytes(out.getvalue())
    with pytest.raises(cs.CacheUnreadableError, match=r"member uid: is there twice"):
        cs.load_any(path)
    with pytest.raises(cs.CacheUnreadableError, match=r"twice"):
        cs.cache_kind(path)


def test_what_the_older_module_reads_is_read(tmp_path: Path) -> None:
    """Stored members, a zip comment, junk after the zip, an unknown pickled member, Fortran order."""
    arrays = dms.healthy("route_frames")
    arrays["box"] = np.asfortranarray(arrays["box"])
    plain = io.BytesIO()
    np.savez(plain, **arrays)
    with zipfile.ZipFile(plain, "a") as archive:
        archive.comment = b"c" * 20_000
        archive.writestr("notes.npy", dms.npy_of_objects())
    path = tmp_path / "a.npz"
    path.write_bytes(plain.getvalue() + b"junk")
    with np.load(path) as older:
        assert np.array_equal(older["box"], cs.RouteCache.load(path).box, equal_nan=True)
    with opened(path, whole=False) as box:
        assert read_header(box).n == 51


def test_no_member_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    out = io.BytesIO()
    np.save(out, np.array([Trap()]), allow_pickle=True)
    path = tmp_path / "a.npz"
    for name in ("feat", "meta", "uid"):
        path.write_bytes(npz_with(name, out.getvalue()))
        with pytest.raises(cs.CacheUnreadableError, match="unpickling"):
            cs.load_any(path)
    assert not (tmp_path / "sprung").exists()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_give_the_one_error_or_a_cache(tmp_path: Path, data: st.DataObject) -> None:
    damaged = bytearray(FRAMES_FILE)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]
    path = tmp_path / "a.npz"
    path.write_bytes(damaged)
    for read in (cs.load_any, cs.cache_kind):
        try:
            read(path)
        except (cs.CacheUnreadableError, cs.CacheInvalidError) as error:
            assert "a.npz" in str(error)  # noqa: PT017 - which error is drawn with the damage
    try:
        with opened(path, whole=False) as box:
            read_header(box)
    except (cs.CacheUnreadableError, cs.CacheInvalidError):
        pass


def test_errors_survive_a_process_boundary() -> None:
    error = cs.CacheUnreadableError("a.npz", "feat", "broken")
    assert str(pickle.loads(pickle.dumps(error))) == "a.npz: member feat: broken"  # noqa: S301 - our own bytes


def test_a_shrinking_file_is_an_unreadable_one(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(FRAMES_FILE + bytes(1 << 17))
    big = dms.frames(k1=12_000, channels=16).save(path)
    with open(big, "rb") as file:
        box = open_container(file.fileno(), "a.npz")
        os.truncate(big, 100)
        with pytest.raises(cs.CacheUnreadableError, match="member feat"):
            box.array("feat")
