"""`dms-cache`: what it says, its exit codes, JSON that is nothing but JSON, and 80 columns."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dms_assets import cache_schema as cs
from dms_assets.cache_store import CacheStore
from dms_assets.cli import app, main
from resources.files import FileRoot
from tests.builders import dms

GOLDEN = Path(__file__).parents[1] / "golden" / "dms"
UID = dms.UID


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheStore:
    """A configured store: flow has a covered and a partly covered route, nothing is wanted of the third."""
    store = CacheStore(FileRoot(tmp_path / "caches"))
    for uid in (UID, "partly", "unwanted"):
        dms.write(store.root.path / store.path("l2cs", uid), dms.frames(uid, baseline="l2cs").arrays())
    (tmp_path / "wanted.csv").write_text(f"uid,t_start,t_end\n{UID},0,5\npartly,4,7\n")
    (tmp_path / "video").mkdir()
    config = tmp_path / "pipeline.toml"
    config.write_text('[dms]\ncache_root = "caches"\nvideo_root = "video"\nwanted_spans = "wanted.csv"\n')
    monkeypatch.setenv("VIN_DMS_CONFIG", str(config))
    return store


def run(*arguments: str | Path, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    assert "Traceback" not in done.output
    if "--json" not in arguments:
        assert max(map(len, done.output.splitlines()), default=0) <= 80
    return done


def run_json(*arguments: str | Path, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def test_inspect_shows_a_file(store: CacheStore) -> None:
    shown = run_json("inspect", GOLDEN / "ok_windows.npz")
    assert (shown["kind"], shown["n"], shown["D"]) == ("WindowCache", 18, 8)
    assert "ok_frames" in run("inspect", GOLDEN / "ok_frames.npz").stdout
    assert "CRC" in run("inspect", GOLDEN / "bad_crc.npz", code=1).stderr
    assert "No such file" in run("inspect", "missing.npz", code=2).stderr


def test_check_of_files_reports_every_finding_and_exits_by_severity(tmp_path: Path) -> None:
    found = run_json("check", GOLDEN / "ok_frames.npz", GOLDEN / "bad_spans_reversed.npz", code=1)
    assert found["checked"] == 2
    assert found["findings"][0]["code"] == "spans_form"
    assert "spans_form" in run("check", GOLDEN / "bad_spans_reversed.npz", code=1).stdout
    assert "container" in run("check", GOLDEN / "bad_truncated.npz", code=1).stdout
    assert "0 findings" in run("check", GOLDEN / "ok_frames.npz").stdout
    arrays = dms.healthy("route_frames")
    arrays["notes"] = arrays["t"]
    extra = dms.write(tmp_path / f"{UID}.npz", arrays)
    assert run_json("check", extra)["findings"][0]["severity"] == "WARN"
    run("check", extra, "--severity", "WARN", code=1)


def test_check_of_a_store_reads_every_file(store: CacheStore) -> None:
    assert run_json("check")["checked"] == 3
    (store.root.path / store.path("l2cs", "broken")).write_bytes(b"")
    found = run_json("check", "--baseline", "l2cs", code=1)
    assert [finding["code"] for finding in found["findings"]] == ["container"]
    assert found["baselines"]["l2cs"]["files_by_state"] == {"valid": 3, "unreadable": 1}
    assert "broken.npz" in run("check", code=1).stdout.replace("\n", "")


def test_coverage_names_what_is_missing(store: CacheStore, tmp_path: Path) -> None:
    found = run_json("coverage", code=1)["baselines"]["l2cs"]
    assert (found["routes_wanted"], found["routes_covered"]) == (2, 1)
    assert found["missing"] == [["partly", 5.1, 7.0]]
    assert found["seconds"] == {"wanted": 8.2, "covered": 6.2, "missing": 2.0, "beyond": 0.0}
    assert "partly: 5.1-7 s missing" in run("coverage", code=1).stdout
    other = tmp_path / "other.csv"
    other.write_text(f"uid,t_anchor\n{UID.replace('_', '|', 1)},5\n")
    run("coverage", "--wanted", other, "--window-s", "3")
    other.write_text(f"uid,t_start,t_end\n{UID},5,4\n")
    assert "wanted_rows" in run("coverage", "--wanted", other, code=1).stdout


def test_coverage_counts_a_bad_file_and_goes_on(store: CacheStore) -> None:
    (store.root.path / store.path("l2cs", "partly")).write_bytes(b"")
    found = run_json("coverage", code=1)["baselines"]["l2cs"]
    assert [finding["code"] for finding in found["findings"]] == ["container"]
    assert found["missing"] == [["partly", 4.0, 7.0]]


def test_plan_says_what_the_nightly_job_would_do_and_changes_nothing(store: CacheStore) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in store.root.path.rglob("*"))
    rows = run_json("plan", "--baseline", "l2cs")["routes"]
    assert {row["uid"]: row["state"] for row in rows} == {UID: "covered", "partly": "partial", "unwanted": "covered"}
    assert all(row["external"] and row["work"] == "none" for row in rows)
    assert "nothing to do" in run("plan", "-b", "l2cs").stdout
    states = {row["baseline"]: row["state"] for row in run_json("plan")["routes"] if row["uid"] == "partly"}
    assert states == {"facemesh": "no_video", "flow": "no_video", "l2cs": "partial"}
    assert before == sorted((path, path.stat().st_mtime_ns) for path in store.root.path.rglob("*"))


def test_merge_writes_one_file_and_refuses_what_does_not_belong_together(tmp_path: Path) -> None:
    first, second, out = tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "out.npz"
    dms.frames(k1=20).save(first)
    dms.frames(k0=21, k1=50).save(second)
    assert run_json("merge", first, second, "--out", out)["n"] == 51
    assert cs.load_any(out).covers([[0, 5]])
    assert "51 rows, spans 0-5 s" in " ".join(run("merge", first, second, "-o", first).stdout.split())
    dms.frames(k0=21, code_version="2").save(second)
    before = out.read_bytes()
    assert "code_version" in run("merge", first, second, "-o", out, code=1).stderr
    run("merge", first, GOLDEN / "bad_crc.npz", "-o", out, code=1)
    run("merge", first, GOLDEN / "ok_windows.npz", "-o", out, code=1)
    assert out.read_bytes() == before
    run("merge", first, second, "-o", out, "--allow-provenance-change")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    assert "not a regular file" in run("inspect", tmp_path / "pipe.npz", code=2).stderr.replace("\n", " ")
    assert run_json("check", tmp_path / "pipe.npz", code=1)["findings"][0]["code"] == "inaccessible"


def test_a_file_that_cannot_be_opened_is_a_finding_of_that_file_alone(tmp_path: Path) -> None:
    loop = tmp_path / "loop.npz"
    loop.symlink_to(loop)
    found = run_json("check", GOLDEN / "ok_frames.npz", loop, GOLDEN / "bad_spans_reversed.npz", code=1)
    assert found["checked"] == 3
    assert [(each["where"], each["code"]) for each in found["findings"]][:2] == [
        (str(loop), "inaccessible"),
        (str(GOLDEN / "bad_spans_reversed.npz"), "spans_form"),
    ]


def test_what_files_hold_is_never_taken_for_a_style(store: CacheStore, tmp_path: Path) -> None:
    arrays = dms.frames().arrays()
    arrays["meta"] = json.dumps({**json.loads(str(arrays["meta"])), "note": "[/red] :smile:"})
    arrays["channels"] = ["[/b]", *arrays["channels"].tolist()[1:]]
    arrays["[/x]"] = arrays["t"]
    marked = dms.write(tmp_path / f"{UID}.npz", arrays)
    shown = run("inspect", marked).stdout
    assert "[/red] :smile:" in shown
    assert "[/b]" in shown
    assert "[/x]" in run("check", marked).stdout
    (store.root.path / store.path("l2cs", UID)).with_name("[red]x.npz").write_bytes(b"")
    assert "[red]x.npz" in run("check", "-b", "l2cs", "--severity", "WARN", code=1).stdout.replace("\n", "")


def test_output_that_knows_few_characters_gets_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "\u00e9\ud800\U0001f600"
    arrays = dms.frames().arrays()
    arrays["meta"] = json.dumps({**json.loads(str(arrays["meta"])), "note": note})
    path = dms.write(tmp_path / f"{UID}.npz", arrays)

    def said(encoding: str, *options: str) -> str:
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding, write_through=True))
        monkeypatch.setattr(sys, "argv", ["dms-cache", "inspect", str(path), *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return out.getvalue().decode(encoding)

    assert json.loads(said("ascii", "--json"))["meta"]["note"] == note
    assert json.loads(said("utf-8", "--json"))["meta"]["note"] == note
    assert r"\xe9\ud800\U0001f600" in said("ascii")
    assert r"\ud800" in said("utf-8")


def test_wanted_spans_without_any_baseline_are_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    table = tmp_path / "t.csv"
    table.write_text("uid,t_start,t_end\na,0,1\n")
    done = run("coverage", "--root", tmp_path / "empty", "--wanted", table, code=1)
    assert f"no baseline below {tmp_path / 'empty'}" in " ".join(done.stderr.split())
    table.write_text("uid,t_start,t_end\n")
    run("coverage", "--root", tmp_path / "empty", "--wanted", table)


@pytest.mark.parametrize("command", ["check", "coverage", "plan"])
def test_a_baseline_that_nobody_knows_is_a_wrong_argument(store: CacheStore, command: str) -> None:
    said = " ".join(run(command, "-b", "nope", code=2).stderr.split())
    assert "'nope': no folder in" in said
    assert "l2cs" in said


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "100001"])
def test_a_window_that_is_none_is_a_wrong_argument(store: CacheStore, tmp_path: Path, seconds: str) -> None:
    (tmp_path / "a.csv").write_text(f"uid,t_anchor\n{UID},5\n")
    done = run("coverage", "--wanted", tmp_path / "a.csv", "--window-s", seconds, code=2)
    assert "above 0 and at most 100000 s" in " ".join(done.stderr.replace("│", " ").split())


def test_merge_locks_the_file_it_writes_and_makes_no_folder_for_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    dms.frames(k1=20).save(first)
    run("merge", first, second, "-o", tmp_path / "new" / "out", code=2)
    second.write_bytes(b"")
    run("merge", first, second, "-o", tmp_path / "new" / "out", code=1)
    assert not (tmp_path / "new").exists()
    dms.frames(k0=21, k1=50).save(second)
    assert run_json("merge", first, second, "-o", tmp_path / "new" / "out")["path"] == str(tmp_path / "new" / "out.npz")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"out.npz", ".out.npz.lock"}


def test_the_self_test_passes() -> None:
    assert run("self-test").stdout == "self-test passed\n"
    assert run_json("self-test") == {"problems": []}


@pytest.mark.parametrize("command", ["check", "coverage", "plan"])
def test_what_can_t_be_done_is_said_in_one_line_with_code_2(
    store: CacheStore, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(command, "--root", tmp_path / "not mounted", code=2)
    run(command, "--baseline", "../x", code=2)
    if command != "check":
        assert "missing.csv" in run(command, "--wanted", tmp_path / "missing.csv", code=2).stderr.replace("\n", "")
    (tmp_path / "pipeline.toml").write_text("broken = ")
    assert "pipeline.toml" in run(command, code=2).stderr.replace("\n", "")


def test_the_command_line_loads_without_dagster() -> None:
    script = "import dms_assets.cli, sys; sys.exit('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False, env=os.environ)
    assert done.returncode == 0


def test_a_full_disk_is_one_line_and_exit_code_2() -> None:
    command = [sys.executable, "-c", "from dms_assets.cli import main; main()", "--help"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "standard output can't be written: No space left on device\n")
