"""File access: nothing leaves the root, nothing is half written, nothing is created by looking."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from resources.files import FileRoot, PathRefusedError, remove_leftovers, write_atomically


@pytest.fixture
def root(tmp_path: Path) -> FileRoot:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "sub" / "a.txt").write_bytes(b"inside")
    (tmp_path / "secret.txt").write_bytes(b"outside")
    return FileRoot(tmp_path / "root")


def test_reads_what_lies_inside(root: FileRoot) -> None:
    assert root.read("sub/a.txt") == b"inside"
    assert root.read(root.path / "sub" / "a.txt") == b"inside"
    assert root.stat("sub/a.txt").size == 6
    assert root.exists("sub")
    assert not root.exists("sub/b.txt")
    assert not root.exists("sub/a.txt/b")


@pytest.mark.parametrize("path", ["../secret.txt", "sub/../../secret.txt", "/etc/passwd", "sub/\0a.txt"])
def test_refuses_paths_that_leave_the_root(root: FileRoot, path: str) -> None:
    with pytest.raises(PathRefusedError):
        root.read(path)
    with pytest.raises(PathRefusedError), root.publish(path):
        pass


@pytest.mark.parametrize("target", ["../../secret.txt", "ABSOLUTE"])
def test_refuses_symlinks_that_leave_the_root(root: FileRoot, target: str) -> None:
    outside = root.path.parent / "secret.txt"
    (root.path / "sub" / "link").symlink_to(outside if target == "ABSOLUTE" else target)
    with pytest.raises(PathRefusedError, match="leads out of the root"):
        root.read("sub/link")
    with pytest.raises(PathRefusedError, match="leads out of the root"), root.publish("sub/link") as file:
        file.write(b"lost")
    assert outside.read_bytes() == b"outside"
    assert [entry.name for entry in root.scan("sub")] == ["a.txt"]


def test_follows_symlinks_that_stay_inside(root: FileRoot) -> None:
    (root.path / "relative").symlink_to("sub/a.txt")
    (root.path / "absolute").symlink_to(root.path / "sub" / "a.txt")
    assert root.read("relative") == root.read("absolute") == b"inside"
    with root.publish("relative") as file:
        file.write(b"new")
    assert (root.path / "relative").is_symlink()
    assert root.read("sub/a.txt") == b"new"


def test_a_fifo_is_refused_without_waiting_for_a_writer(root: FileRoot) -> None:
    os.mkfifo(root.path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        root.read("pipe")


def test_a_bounded_read_says_so(root: FileRoot) -> None:
    with pytest.raises(OSError, match="more than the allowed 3 bytes"):
        root.read("sub/a.txt", limit=3)


def test_a_pinned_root_stays_the_folder_it_was(root: FileRoot) -> None:
    other = root.path.parent / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub" / "a.txt").write_bytes(b"replacement")
    with root.pinned() as held:
        root.path.rename(root.path.parent / "moved")
        other.rename(root.path)
        assert held.read("sub/a.txt") == b"inside"
        assert [entry.name for entry in held.scan("sub")] == ["a.txt"]
        (root.path.parent / "moved" / "out").symlink_to(root.path / "sub" / "a.txt")
        with pytest.raises(PathRefusedError, match="leads out of the root"):
            held.read("out")
        assert root.read("sub/a.txt") == b"replacement"


def test_a_link_tells_its_target_and_a_file_has_none(root: FileRoot) -> None:
    (root.path / "sub" / "link").symlink_to("../../secret.txt")
    assert root.link_target("sub/link") == "../../secret.txt"
    assert root.link_target("sub/a.txt") is None
    with pytest.raises(FileNotFoundError):
        root.link_target("sub/nothing")


def test_a_missing_folder_is_an_error_and_not_empty(root: FileRoot) -> None:
    with pytest.raises(FileNotFoundError):
        root.scan("nowhere")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(root: FileRoot) -> None:
    with pytest.raises(TypeError), root.publish("sub/a.txt") as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert os.listdir(root.path / "sub") == ["a.txt"]
    assert root.read("sub/a.txt") == b"inside"


def test_left_overs_of_a_killed_writer_are_removed_and_a_living_ones_stay(root: FileRoot) -> None:
    folder = root.path / "sub"
    code = (
        "import sys, time; from pathlib import Path; from resources.files import write_atomically\n"
        "with write_atomically(Path(sys.argv[1])) as f: f.write(b'x'); f.flush(); print('open', flush=True);"
        " time.sleep(60)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, folder / "k.npz"], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    assert remove_leftovers(folder) == []
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert not [name for name in os.listdir(folder) if name.endswith(".npz")]
    assert len(remove_leftovers(folder)) == 1
    assert os.listdir(folder) == ["a.txt"]


def test_a_folder_is_published_whole_and_latest_points_to_it(root: FileRoot) -> None:
    for version, text in (("v1", "one"), ("v2", "two"), ("v1", "ignored: same version, same content")):
        with root.publish_folder("out/stats", version) as folder:
            (folder / "r.json").write_text(text)
        assert os.readlink(root.path / "out/stats/latest") == version
    assert root.read("out/stats/latest/r.json") == b"one"
    with pytest.raises(FileNotFoundError), root.publish_folder("out/stats", "v3") as folder:
        (folder / "missing" / "r.json").write_text("half")
    assert sorted(os.listdir(root.path / "out/stats")) == ["latest", "v1", "v2"]


def test_a_lock_excludes_threads_as_well(root: FileRoot) -> None:
    order = []

    def enter() -> None:
        with root.lock("sub/a.txt"):
            order.append("in")

    with root.lock("sub/a.txt"):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(0.1)
        order.append("out")
    thread.join()
    assert order == ["out", "in"]


def test_the_last_complete_writer_wins(tmp_path: Path) -> None:
    target = tmp_path / "t.bin"

    def write(letter: bytes) -> None:
        for _ in range(20):
            with write_atomically(target) as file:
                file.write(letter * 10_000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() in {b"a" * 10_000, b"b" * 10_000, b"c" * 10_000}
    assert os.listdir(tmp_path) == ["t.bin"]


def test_removing_takes_the_link_and_never_what_lies_outside(root: FileRoot, tmp_path: Path) -> None:
    (root.path / "link.txt").symlink_to(tmp_path / "secret.txt")
    root.remove("link.txt")
    root.remove("sub/a.txt")
    root.remove("sub/a.txt")
    assert sorted(os.listdir(root.path / "sub")) == []
    assert (tmp_path / "secret.txt").read_bytes() == b"outside"
    with pytest.raises(PathRefusedError):
        root.remove("../secret.txt")
