"""The plan: one state per baseline and route, in the order of precedence, and the work that follows from it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dms_assets.baselines import Baseline, registry
from dms_assets.cache_file import Header
from dms_assets.cache_store import CacheStore
from dms_assets.contract import FRAMES, WINDOWS
from dms_assets.extraction.video import VideoFile
from dms_assets.plan import Policy, RoutePlan, State, Stored, Work, fingerprint, look, plan, plan_route, spoiling
from dms_assets.spans import count_ticks
from resources.files import FileRoot, Identity
from resources.findings import Finding, Severity
from tests.builders import dms

NOW = 1_000_000.0
OLD = Identity(1, 2, 3, int((NOW - 3600) * 1e9), 0)
YOUNG = dataclasses.replace(OLD, mtime_ns=int((NOW - 5) * 1e9))
VIDEO = VideoFile("r.hevc", Identity(1, 9, 1000, 77, 0))
GROWN = VideoFile("r.hevc", Identity(1, 9, 2000, 88, 0))
SHA = "a" * 64
OWN = registry({})["flow"]
FACES = registry({})["facemesh"]
THEIRS = registry({"theirs": {"extractor": "external", "channels": ["a"]}})["theirs"]


def header(entry: Baseline = FACES, spans: Any = ((0, 10),), **meta: Any) -> Header:
    array = np.array(spans, np.float32).reshape(-1, 2)
    rows = int(sum(round(10 * (end - begin)) + 1 for begin, end in array.tolist()))
    declared = {"baseline": entry.name, "code_version": entry.code_version, "weight_sha256": entry.weight_sha256}
    return Header("r", entry.kind, rows, array, {**declared, **meta})


def ask(
    stored: Stored | None,
    wanted: Any = ((0, 10),),
    baseline: Baseline = FACES,
    video: VideoFile | None = VIDEO,
    **policy: Any,
) -> RoutePlan:
    return plan_route(baseline, "r", wanted=wanted, stored=stored, video=video, policy=Policy(**policy), now=NOW)


STORED = Stored(OLD, header())
UNMET: dict[str, Any] = {"unmet": [{"video": VIDEO.as_meta, "beyond": [[8.0, 10.0]], "damaged": [[1.0, 1.2]]}]}


@pytest.mark.parametrize(
    ("stored", "changes", "state", "work", "aside"),
    [
        (STORED, {}, State.COVERED, Work.NONE, False),
        (STORED, {"wanted": ()}, State.COVERED, Work.NONE, False),
        (None, {}, State.ABSENT, Work.EXTRACT, False),
        (None, {"wanted": ()}, State.COVERED, Work.NONE, False),
        (None, {"video": None}, State.NO_VIDEO, Work.NONE, False),
        (STORED, {"video": None}, State.COVERED, Work.NONE, False),
        (STORED, {"wanted": ((0, 12),)}, State.PARTIAL, Work.EXTRACT, False),
        (STORED, {"wanted": ((0, 12),), "video": None}, State.NO_VIDEO, Work.NONE, False),
        (Stored(OLD, header(**UNMET)), {}, State.UNMEETABLE, Work.NONE, False),
        (Stored(OLD, header(**UNMET)), {"wanted": ((0, 7),)}, State.COVERED, Work.NONE, False),
        (Stored(OLD, header(**UNMET)), {"wanted": ((0, 12),)}, State.PARTIAL, Work.EXTRACT, False),
        (Stored(OLD, header(**UNMET)), {"video": GROWN}, State.PARTIAL, Work.EXTRACT, False),
        (Stored(OLD, header(**UNMET)), {"video": None}, State.UNMEETABLE, Work.NONE, False),
        (Stored(OLD, header(code_version="0")), {}, State.STALE, Work.NONE, False),
        (Stored(OLD, header(code_version="0")), {"rebuild_stale": True}, State.STALE, Work.REBUILD, False),
        (Stored(OLD, header(code_version="0")), {"rebuild_stale": True, "video": None}, State.STALE, Work.NONE, False),
        (Stored(OLD, header(code_version="0")), {"wanted": ((0, 12),)}, State.STALE, Work.NONE, False),
        (Stored(OLD, header(weight_sha256={"mesh": SHA})), {}, State.STALE, Work.NONE, False),
        (Stored(OLD, header(code_sha256="other")), {}, State.COVERED, Work.NONE, False),
        (Stored(OLD, invalid=("t_grid",)), {}, State.INVALID, Work.EXTRACT, True),
        (Stored(OLD, invalid=("t_grid",)), {"wanted": ()}, State.INVALID, Work.NONE, False),
        (Stored(OLD, header(baseline="other")), {}, State.INVALID, Work.EXTRACT, True),
        (Stored(OLD, dataclasses.replace(header(), uid="s")), {}, State.INVALID, Work.EXTRACT, True),
        (Stored(OLD, header(OWN, baseline="facemesh")), {}, State.INVALID, Work.EXTRACT, True),
        (Stored(OLD, unreadable="no zip"), {}, State.UNREADABLE, Work.EXTRACT, True),
        (Stored(OLD, unreadable="no zip"), {"video": None}, State.UNREADABLE, Work.NONE, False),
        (Stored(YOUNG, unreadable="no zip"), {}, State.SETTLING, Work.NONE, False),
        (Stored(YOUNG, invalid=("t_grid",)), {}, State.SETTLING, Work.NONE, False),
        (Stored(YOUNG, header()), {}, State.COVERED, Work.NONE, False),
        (Stored(OLD, inaccessible="Permission denied"), {}, State.INACCESSIBLE, Work.NONE, False),
        (Stored(OLD, inaccessible="Permission denied"), {"force": True}, State.INACCESSIBLE, Work.NONE, False),
        (STORED, {"force": True}, State.COVERED, Work.REBUILD, False),
        (STORED, {"force": True, "video": None}, State.COVERED, Work.NONE, False),
        (Stored(OLD, unreadable="no zip"), {"force": True}, State.UNREADABLE, Work.EXTRACT, True),
        (None, {"force": True}, State.ABSENT, Work.EXTRACT, False),
    ],
)
def test_each_situation_has_its_state_and_its_work(
    stored: Stored | None, changes: dict[str, Any], state: State, work: Work, aside: bool
) -> None:
    answer = ask(stored, **changes)
    assert (answer.state, answer.work, answer.move_aside) == (state, work, aside), answer.why
    assert answer.why
    assert not answer.external


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        (None, State.ABSENT),
        (Stored(OLD, unreadable="no zip"), State.UNREADABLE),
        (Stored(OLD, invalid=("t_grid",)), State.INVALID),
        (Stored(OLD, header(THEIRS, ((0, 5),))), State.PARTIAL),
        (Stored(OLD, header(THEIRS, weight_sha256={"m": SHA}, code_version="x")), State.COVERED),
    ],
)
def test_files_of_other_programs_have_a_state_and_never_work(stored: Stored | None, state: State) -> None:
    for video in (VIDEO, None):
        answer = ask(stored, baseline=THEIRS, video=video, force=True, rebuild_stale=True)
        assert (answer.state, answer.work, answer.move_aside, answer.external) == (state, Work.NONE, False, True)


def test_a_declared_provenance_of_another_program_is_compared() -> None:
    declared = dataclasses.replace(THEIRS, code_version="2")
    assert ask(Stored(OLD, header(THEIRS, code_version="1")), baseline=declared).state is State.STALE


def test_missing_and_beyond_are_exact_ticks() -> None:
    answer = ask(Stored(OLD, header(spans=((0, 4), (6, 10)), **UNMET)), wanted=((3, 7), (9, 12)))
    assert answer.missing.tolist() == [[41, 59], [101, 120]]
    assert answer.beyond.tolist() == [[90, 100]]
    assert answer.missing_spans.tolist() == [[pytest.approx(4.1), pytest.approx(5.9)], [pytest.approx(10.1), 12.0]]
    assert answer.wanted_ticks == 41 + 31


def test_ticks_that_another_video_could_not_give_are_missing_again() -> None:
    answer = ask(Stored(OLD, header(**UNMET)), video=GROWN)
    assert answer.missing.tolist() == [[10, 12], [80, 100]]
    assert not len(answer.beyond)


def test_windows_want_their_lead_in() -> None:
    assert ask(None, ((5, 6),), OWN).missing.tolist() == [[35, 60]]
    assert ask(None, ((0.5, 6),), OWN).missing.tolist() == [[0, 60]]
    assert ask(Stored(OLD, header(OWN, ((3.5, 6),))), ((5, 6),), OWN).state is State.COVERED
    assert ask(Stored(OLD, header(OWN, ((3.5, 6),))), ((4, 6),), OWN).missing.tolist() == [[25, 34]]


def test_rows_that_spans_lack_are_work() -> None:
    lacking = dataclasses.replace(header(), n=90)
    assert (ask(Stored(OLD, lacking)).state, ask(Stored(OLD, lacking)).work) == (State.PARTIAL, Work.EXTRACT)
    assert "11 ticks" in ask(Stored(OLD, lacking)).why


@pytest.mark.parametrize("junk", [None, 3, [3], [{}], [{"video": {}, "beyond": "x"}], [{"video": 3}]])
def test_a_meta_of_another_form_is_no_reason_to_fail(junk: Any) -> None:
    assert ask(Stored(OLD, header(unmet=junk))).state is State.COVERED


def test_a_wanted_span_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        ask(None, ((0, float("inf")),))


def test_only_errors_other_than_lacking_rows_spoil_a_cache() -> None:
    def finding(code: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(code, severity, "x", "x", "x")

    found = [
        finding("t_grid"),
        finding("rows_complete"),
        finding("extra_members", Severity.WARN),
        finding("box_vs_fail"),
    ]
    assert spoiling(found) == ("box_vs_fail", "t_grid")


# --- on disk


@pytest.fixture
def place(tmp_path: Path) -> tuple[CacheStore, FileRoot]:
    for name in ("caches", "videos"):
        (tmp_path / name).mkdir()
    return CacheStore(FileRoot(tmp_path / "caches")), FileRoot(tmp_path / "videos")


def stored_file(caches: CacheStore, uid: str) -> Path:
    return dms.frames(uid, baseline="theirs").save(caches.root.path / caches.path("theirs", uid))


def test_the_plan_of_a_root_changes_nothing_and_costs_a_route_nothing_of_another(
    place: tuple[CacheStore, FileRoot],
) -> None:
    caches, videos = place
    good, broken = stored_file(caches, "good"), stored_file(caches, "broken")
    broken.write_bytes(broken.read_bytes()[:200])
    os.utime(broken, (1, 1))
    (videos.path / "absent.mkv").write_bytes(b"x")
    before = sorted((path, path.stat().st_mtime_ns) for path in videos.path.parent.rglob("*"))
    answers = plan(THEIRS, {"good": [[0, 1]], "broken": [[0, 1]], "absent": [[0, 1]]}, caches=caches, videos=videos)
    assert {answer.uid: answer.state for answer in answers} == {
        "absent": State.ABSENT,
        "broken": State.UNREADABLE,
        "good": State.COVERED,
    }
    assert sorted((path, path.stat().st_mtime_ns) for path in videos.path.parent.rglob("*")) == before
    assert good.exists()


def test_a_known_look_is_reused_only_for_the_same_file(place: tuple[CacheStore, FileRoot]) -> None:
    caches, videos = place
    path = stored_file(caches, "good")
    os.utime(path, (1, 1))
    identity = caches.identity("theirs", "good")
    assert identity is not None
    known = {"good": Stored(identity, invalid=("t_grid",))}

    def state() -> State:
        return plan(THEIRS, {}, caches=caches, videos=videos, known=known)[0].state

    assert state() is State.INVALID
    os.utime(path, (2, 2))
    assert state() is State.COVERED


def test_a_whole_look_finds_what_a_header_hides(place: tuple[CacheStore, FileRoot]) -> None:
    caches, _ = place
    path = stored_file(caches, "bad")
    arrays = dict(np.load(path))
    arrays["box"][:, 2] = arrays["box"][:, 0] - 1
    dms.write(path, arrays)
    identity = caches.identity("theirs", "bad")
    assert identity is not None
    assert look(caches, "theirs", "bad", identity).invalid == ()
    assert "box_geometry" in look(caches, "theirs", "bad", identity, whole=True).invalid


def test_a_file_that_can_not_be_opened_is_neither_unreadable_nor_missing(place: tuple[CacheStore, FileRoot]) -> None:
    caches, videos = place
    path = caches.root.path / caches.path("theirs", "loop")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    (answer,) = plan(THEIRS, {"loop": [[0, 1]]}, caches=caches, videos=videos)
    assert (answer.state, answer.work) == (State.INACCESSIBLE, Work.NONE)
    assert "regular file" in answer.why


def test_a_missing_root_is_an_error_and_no_empty_plan(tmp_path: Path) -> None:
    caches = CacheStore(FileRoot(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError):
        plan(FACES, {"r": [[0, 1]]}, caches=caches, videos=FileRoot(tmp_path))
    (tmp_path / "caches").mkdir()
    with pytest.raises(FileNotFoundError):
        plan(
            FACES,
            {"r": [[0, 1]]},
            caches=CacheStore(FileRoot(tmp_path / "caches")),
            videos=FileRoot(tmp_path / "nowhere"),
        )


def test_a_fingerprint_depends_on_file_video_thresholds_and_wanted_spans() -> None:
    def of(**changes: Any) -> str:
        given = {"baseline": FACES, "file": OLD, "video": VIDEO, "wanted": ((0, 10),), **changes}
        return fingerprint(given["baseline"], given["file"], given["video"], given["wanted"])

    assert of() == of(wanted=[[0.0, 5.0], [5.1, 10.0]])  # the same ticks
    others = {
        of(file=None),
        of(file=YOUNG),
        of(video=None),
        of(video=GROWN),
        of(wanted=((0, 11),)),
        of(baseline=dataclasses.replace(FACES, valid_fraction_min=0.1)),
        of(baseline=dataclasses.replace(FACES, code_version="9")),
    }
    assert len(others - {of()}) == 7


def test_kinds_have_the_contracts_names() -> None:
    assert (FACES.kind, OWN.kind, count_ticks(ask(None).missing)) == (FRAMES, WINDOWS, 101)
