"""Frames out of videos: whatever is done to a stream, no frame is delivered under a wrong number."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from dms_assets.extraction.video import Video, VideoMissingError, VideoRefusedError, find_video, list_videos
from resources.files import FileRoot
from tests.builders.video import access_units, encode, numbered, numbered_frame, read_number, remux

COUNT = 150
KINDS: dict[str, dict[str, Any]] = {
    "gop30": {},
    "closed_b": {"bframes": 3},
    "open_b": {"bframes": 3, "open_gop": True},
    "long": {"gop": 1000},
}
SPARSE = [0, 2, 4, 50, 52, 54, 56, 88, 90, 91, 148]


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("streams")
    made = {}
    for name, options in KINDS.items():
        for suffix in (".hevc", ".mp4", ".mkv"):
            (folder / suffix[1:]).mkdir(exist_ok=True)
            made[name + suffix] = encode(numbered(COUNT), folder / suffix[1:] / (name + suffix), **options)
    return made


def delivered(path: Path, wanted: list[int]) -> dict[int, int | None]:
    """The number burnt into each wanted frame, None where none was delivered."""
    root = FileRoot(path.parent)
    with Video(root, find_video(root, path.stem)) as video:
        return {number: None if image is None else read_number(image) for number, image in video.frames(wanted)}


def assert_never_wrong(got: dict[int, int | None], right: list[int]) -> None:
    """Nothing is delivered under another number, and the frames of `right` are delivered."""
    assert {number: burnt for number, burnt in got.items() if burnt is not None and burnt != number} == {}
    assert [number for number in right if got[number] is None] == []


@pytest.mark.parametrize("suffix", [".hevc", ".mp4", ".mkv"])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_frames_carry_the_right_number(streams: dict[str, Path], kind: str, suffix: str) -> None:
    assert_never_wrong(delivered(streams[kind + suffix], SPARSE), SPARSE)


@pytest.mark.parametrize("kind", KINDS)
def test_every_single_frame_carries_the_right_number(streams: dict[str, Path], kind: str) -> None:
    for number in (0, 1, 28, 29, 30, 31, 59, 60, 61, 149):
        assert delivered(streams[kind + ".hevc"], [number]) == {number: number}


def test_only_what_the_codec_forces_is_decoded(streams: dict[str, Path]) -> None:
    for name in ("gop30.hevc", "gop30.mp4"):
        root = FileRoot(streams[name].parent)
        with Video(root, find_video(root, "gop30")) as video:
            assert [number for number, _ in video.frames([35, 40, 95, 97])] == [35, 40, 95, 97]
            assert video.decoded == (40 - 30 + 1) + (97 - 90 + 1)


def test_neighbouring_groups_are_decoded_once(streams: dict[str, Path]) -> None:
    root = FileRoot(streams["gop30.hevc"].parent)
    with Video(root, find_video(root, "gop30")) as video:
        list(video.frames(range(0, COUNT, 2)))
        assert video.decoded == COUNT - 5  # the last, odd frame of a group is needed by none


def test_frames_outside_the_video_are_not_delivered(streams: dict[str, Path]) -> None:
    assert delivered(streams["gop30.mp4"], [148, 150, 10_000]) == {148: 148, 150: None, 10_000: None}


# --- raw streams that were damaged


def damaged(streams: dict[str, Path], kind: str, folder: Path, units: Any) -> Path:
    path = folder / "damaged.hevc"
    path.write_bytes(b"".join(units(access_units(streams[kind + ".hevc"]))))
    return path


@pytest.mark.parametrize("cut", [7, 37])
@pytest.mark.parametrize("kind", ["gop30", "open_b", "long"])
def test_a_raw_stream_cut_inside_its_first_group_is_refused(
    streams: dict[str, Path], tmp_path: Path, kind: str, cut: int
) -> None:
    sets = access_units(streams[kind + ".hevc"])[0]
    start = max(sets.find(b"\0\0\1\x26"), sets.find(b"\0\0\1\x28"))
    head = sets[:start]  # parameter sets stay, so that only the numbering is at stake
    path = damaged(streams, kind, tmp_path, lambda units: [head, *units[cut:]])
    with pytest.raises(VideoRefusedError, match=r"damaged\.hevc.*begins inside a group of pictures"):
        delivered(path, [0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_raw_stream_cut_inside_its_last_unit_loses_that_frame_alone(
    streams: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    path = damaged(streams, kind, tmp_path, lambda units: [*units[:-1], units[-1][: len(units[-1]) // 2]])
    got = delivered(path, list(range(COUNT)))
    assert_never_wrong(got, list(range(144)))
    assert None in got.values()


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_stream_loses_nothing_at_its_end_and_a_cut_one_never_shows_a_wrong_frame(
    tmp_path: Path, kind: str
) -> None:
    for count in (31, 44):
        path = encode(numbered(count), tmp_path / "tail.hevc", **KINDS[kind])
        data, last = path.read_bytes(), len(access_units(path)[-1])
        assert_never_wrong(delivered(path, list(range(count))), list(range(count)))
        for cut in range(1, last, max(last // 9, 1)):
            path.write_bytes(data[:-cut])
            assert_never_wrong(delivered(path, list(range(count))), list(range(count - 6)))


LOST = {
    "inside": (40, 45),
    "first of a group": (60, 61),
    "last of a group": (57, 60),
    "over two groups": (85, 95),
    "most of a group": (31, 60),
}


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("kind", KINDS)
def test_after_lost_units_no_number_of_a_raw_stream_is_guessed(
    streams: dict[str, Path], tmp_path: Path, kind: str, lost: str
) -> None:
    first, last = LOST[lost]
    path = damaged(streams, kind, tmp_path, lambda units: units[:first] + units[last:])
    got = delivered(path, list(range(COUNT)))
    assert_never_wrong(got, list(range(max(first - 4, 0))) if kind != "long" or lost else [])
    assert got[COUNT - 1] is None


@pytest.mark.parametrize("kind", KINDS)
def test_zeroed_bytes_cost_frames_up_to_the_next_start_and_never_the_numbers(
    streams: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    def zero(units: list[bytes]) -> list[bytes]:
        unit = units[40]
        units[40] = unit[:20] + bytes(len(unit) - 20)
        return units

    got = delivered(damaged(streams, kind, tmp_path, zero), list(range(COUNT)))
    assert_never_wrong(got, list(range(36)))
    if kind in ("gop30", "closed_b"):
        assert_never_wrong(got, list(range(60, COUNT)))
    assert None in got.values()


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_never_gives_a_wrong_frame(streams: dict[str, Path], tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    suffix = (".hevc", ".mp4", ".mkv")[seed % 3]
    data = bytearray(streams[list(KINDS)[seed % len(KINDS)] + suffix].read_bytes())
    for _ in range(3):
        begin = int(random.integers(len(data)))
        length = int(random.integers(1, 400))
        data[begin : begin + length] = (
            bytes(len(data[begin : begin + length])) if seed % 2 else random.bytes(len(data[begin : begin + length]))
        )
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(data)
    try:
        got = delivered(path, list(range(COUNT)))
    except VideoRefusedError:
        return
    assert_never_wrong(got, [])


@pytest.mark.parametrize("seed", range(12))
def test_where_a_stream_has_checksums_no_flipped_byte_passes(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    path = tmp_path / f"sums{('.hevc', '.mp4', '.mkv')[seed % 3]}"
    encode(numbered(60), path, checksums=True, **KINDS[list(KINDS)[seed % len(KINDS)]])
    data = bytearray(path.read_bytes())
    for _ in range(4):
        data[int(random.integers(len(data)))] ^= int(random.integers(1, 256))
    path.write_bytes(data)
    try:
        got = delivered(path, list(range(60)))
    except VideoRefusedError:
        return
    assert {number: burnt for number, burnt in got.items() if burnt not in (number, None)} == {}


def test_a_raw_stream_with_groups_of_several_lengths_is_trusted_up_to_the_first_odd_one(
    streams: dict[str, Path], tmp_path: Path
) -> None:
    path = damaged(streams, "gop30", tmp_path, lambda units: units[:30] + units[30:55] + units[60:])
    assert_never_wrong(delivered(path, list(range(COUNT))), list(range(54)))
    assert delivered(path, [56, 60, 100]) == {56: None, 60: None, 100: None}


def test_a_file_without_any_frame_is_refused(tmp_path: Path) -> None:
    for name in ("empty.hevc", "empty.mp4", "empty.mkv"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(VideoRefusedError, match=name):
            delivered(tmp_path / name, [0])
        (tmp_path / name).unlink()


# --- containers


def test_a_wrong_time_base_changes_no_number(tmp_path: Path) -> None:
    for time_base in (Fraction(1, 30), Fraction(1, 7)):
        for suffix in (".mp4", ".mkv"):
            name = f"{suffix[1:]}{time_base.denominator}{suffix}"
            path = encode(numbered(70), tmp_path / name, bframes=3, time_base=time_base)
            assert_never_wrong(delivered(path, [0, 33, 34, 69]), [0, 33, 34, 69])


def test_a_fragmented_mp4_is_read_exactly(tmp_path: Path) -> None:
    options = {"movflags": "frag_keyframe+empty_moov"}
    path = encode(numbered(COUNT), tmp_path / "fragments.mp4", bframes=3, muxer_options=options)
    assert_never_wrong(delivered(path, SPARSE), SPARSE)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    got = delivered(path, list(range(COUNT)))
    assert_never_wrong(got, list(range(60)))
    assert got[COUNT - 1] is None


def test_an_edit_list_that_hides_frames_is_refused(streams: dict[str, Path], tmp_path: Path) -> None:
    for shift in (10, 30):

        def earlier(_: int, packet: Any, shift: int = shift) -> bool:
            packet.pts -= shift * 512
            packet.dts -= shift * 512
            return True

        path = remux(streams["gop30.mp4"], tmp_path / f"edit{shift}.mp4", earlier, avoid_negative_ts="disabled")
        with pytest.raises(VideoRefusedError, match="edit list"):
            delivered(path, [0])


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_made_up_timestamps_are_refused_where_frames_are_reordered(
    streams: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    def number(count: int, packet: Any) -> bool:
        packet.pts = packet.dts = count
        packet.time_base = Fraction(1, 20)
        return True

    plain = remux(streams["gop30.hevc"], tmp_path / f"plain{suffix}", number)
    assert_never_wrong(delivered(plain, SPARSE), SPARSE)
    for kind in ("closed_b", "open_b"):
        path = remux(streams[kind + ".hevc"], tmp_path / f"{kind}{suffix}", number)
        with pytest.raises(VideoRefusedError, match="made up"):
            delivered(path, [0])


def test_repeated_timestamps_are_refused(streams: dict[str, Path], tmp_path: Path) -> None:
    seen: list[int] = []

    def repeat(count: int, packet: Any) -> bool:
        if count == 42:
            packet.pts = max(seen)
        seen.append(packet.pts)
        return True

    path = remux(streams["closed_b.mp4"], tmp_path / "twice.mp4", repeat)
    with pytest.raises(VideoRefusedError, match="occurs twice"):
        delivered(path, [0])


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("name", ["gop30.mp4", "open_b.mp4", "closed_b.mkv", "long.mkv"])
def test_after_lost_packets_no_number_of_a_container_is_guessed(
    streams: dict[str, Path], tmp_path: Path, name: str, lost: str
) -> None:
    first, last = LOST[lost]
    path = remux(streams[name], tmp_path / f"lost_{name}", lambda n, _: not first <= n < last)
    got = delivered(path, list(range(COUNT)))
    assert_never_wrong(got, list(range(max(first - 4, 0))))
    assert got[COUNT - 1] is None


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("kind", KINDS)
def test_zeroed_bytes_in_a_container_never_give_a_wrong_frame_and_cost_none_before_them(
    streams: dict[str, Path], tmp_path: Path, kind: str, suffix: str
) -> None:
    unit = max(access_units(streams[kind + ".hevc"])[38:45], key=len)
    data = bytearray(streams[kind + suffix].read_bytes())
    begin = data.find(unit[len(unit) // 2 :][:40])  # one encoder made both, so that the same picture is found
    assert begin > 0
    data[begin : begin + 40] = bytes(40)
    path = tmp_path / f"zeroed{suffix}"
    path.write_bytes(data)
    got = delivered(path, list(range(COUNT)))
    assert_never_wrong(got, list(range(34)))
    if kind in ("gop30", "closed_b"):
        assert_never_wrong(got, list(range(60, COUNT)))


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_container_cut_inside_its_first_group_never_gives_a_wrong_frame(
    streams: dict[str, Path], tmp_path: Path, kind: str, suffix: str
) -> None:
    path = remux(streams[kind + suffix], tmp_path / f"head{suffix}", lambda number, _: number >= 7)
    try:
        got = delivered(path, list(range(COUNT)))
    except VideoRefusedError:
        return
    assert set(got.values()) == {None}, "which frames were lost in front can't be known"


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_container_cut_at_its_tail_is_refused_or_gives_what_is_whole(
    streams: dict[str, Path], tmp_path: Path, kind: str, suffix: str
) -> None:
    data = streams[kind + suffix].read_bytes()
    path = tmp_path / f"tail{suffix}"
    for part in (0.5, 0.9, 0.999):
        path.write_bytes(data[: int(len(data) * part)])
        try:
            got = delivered(path, list(range(COUNT)))
        except VideoRefusedError:
            continue
        assert_never_wrong(got, list(range(30)))


def test_other_codecs_are_numbered_by_their_timestamps(tmp_path: Path) -> None:
    path = tmp_path / "avc.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=20)
        stream.width, stream.height, stream.pix_fmt = 256, 128, "yuv420p"
        stream.options = {"g": "25", "bf": "2"}
        for number in range(80):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(numbered_frame(number), format="rgb24")))
        container.mux(stream.encode(None))
    assert_never_wrong(delivered(path, [0, 24, 25, 26, 51, 79]), [0, 24, 25, 26, 51, 79])


@pytest.mark.parametrize("name", ["list.mp4", "list.mkv"])
def test_a_playlist_under_a_videos_name_opens_no_other_file(
    streams: dict[str, Path], tmp_path: Path, name: str
) -> None:
    target = streams["gop30.mp4"]
    for text in (f"ffconcat version 1.0\nfile '{target}'\n", f"#EXTM3U\n#EXTINF:5,\n{target}\n#EXT-X-ENDLIST\n"):
        (tmp_path / name).write_text(text)
        with pytest.raises(VideoRefusedError, match=name):
            delivered(tmp_path / name, [0])


# --- which file


def test_a_route_without_a_video_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(VideoMissingError, match=r"route1\.hevc, route1\.mp4, route1\.mkv"):
        find_video(FileRoot(tmp_path), "route1")


def test_two_videos_of_a_route_are_refused(tmp_path: Path) -> None:
    for suffix in (".mp4", ".mkv"):
        (tmp_path / f"route1{suffix}").write_bytes(b"x")
    with pytest.raises(VideoRefusedError, match=r"route1\.mp4, route1\.mkv.*keep one"):
        find_video(FileRoot(tmp_path), "route1")
    assert [file.name for file in list_videos(FileRoot(tmp_path))["route1"]] == ["route1.mkv", "route1.mp4"]


def test_a_grown_video_has_another_identity(tmp_path: Path) -> None:
    root = FileRoot(tmp_path)
    (tmp_path / "route1.hevc").write_bytes(b"x")
    before = find_video(root, "route1").as_meta
    assert find_video(root, "route1").as_meta == before
    with open(tmp_path / "route1.hevc", "ab") as file:
        file.write(b"y")
    assert find_video(root, "route1").as_meta != before
