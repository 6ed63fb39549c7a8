"""The command line: tables for people, JSON for pipelines, exit codes for both."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.builders.vin import raw_dataset, tiny_store
from vin_assets.cli import app


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tiny_store(tmp_path, 11)


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def answer(*args: object, code: int = 0) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_every_table_fits_80_columns_without_colours(store: Path) -> None:
    raw = raw_dataset(store.parent)
    for args in (("inspect",), ("inspect", 0), ("stats",), ("coverage", "--raw-data-root", raw), ("check",)):
        result = run(args[0], store, *args[1:])
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.output
        assert max(map(len, result.stdout.splitlines())) <= 80, result.stdout


def test_inspect_shows_the_store(store: Path) -> None:
    found = answer("inspect", store)
    assert (found["version"], found["samples"], found["shards"]) == (11, 6, 2)
    assert {"name": "oracle.rri", "dtype": "float32", "shape": "(8,)", "mib": 2 * 96 / 2**20} in found["blocks"]
    assert "oracle.candidate_poses_world_cam" in run("inspect", store).stdout


@pytest.mark.parametrize("name", ["5", "scene-a::snippet-000"])
def test_inspect_decodes_a_sample_s_records(store: Path, name: str) -> None:
    found = answer("inspect", store, name)
    assert (found["shard_id"], found["row"]) == ("shard-000001", 2)
    assert found["records"]["gt.obb_sem_id_to_name"]["7"] == "sofa"
    assert '"7": "sofa"' in run("inspect", store, name).stdout.replace("\n", "")


def test_inspect_of_an_unknown_sample_names_it(store: Path) -> None:
    result = run("inspect", store, "nobody")
    assert result.exit_code == 2
    assert "'nobody'" in result.stderr


def test_stats_are_the_statistics(store: Path) -> None:
    found = answer("stats", store, "--max-samples", 4)
    assert (found["sampled_samples"], found["rows_read"]) == (4, 4)
    assert len(found["request_digest"]) == 64
    assert "rotation_delta_deg" in run("stats", store).stdout


def test_coverage_refuses_the_manifest_s_paths_and_says_how_to_go_on(store: Path) -> None:
    result = run("coverage", store)
    assert result.exit_code == 0
    assert "--trust-manifest-paths" in result.stdout
    assert run("coverage", store, "--fail-on", "warn").exit_code == 1
    raw = raw_dataset(store.parent)
    found = answer("coverage", store, "--raw-data-root", raw, "--tar-index", store.parent / "index")
    assert (found["covered_snippets"], found["tars_opened"], found["findings"]) == (5, 13, [])
    again = answer("coverage", store, "--raw-data-root", raw, "--tar-index", store.parent / "index")
    assert again["tars_opened"] == 0
    low = answer("coverage", store, "--raw-data-root", raw, "--minimum", 0.5, "--fail-on", "warn", code=1)
    assert [finding["code"] for finding in low["findings"]] == ["coverage_below_minimum"]


def test_check_fails_on_the_asked_severity(store: Path) -> None:
    assert answer("check", store) == {"readable": True, "findings": []}
    (store / "shards/shard-000000/vin/points_world/c/0/0/0").unlink()
    assert run("check", store).exit_code == 0
    assert run("check", store, "--fail-on", "warn").exit_code == 1
    (store / "shards/shard-000000/oracle/rri/c/0/0").write_bytes(b"")
    result = run("check", store)
    assert result.exit_code == 1
    assert "chunk_undecodable" in result.stdout
    assert "1 errors, 1 warnings" in result.stdout
    assert run("check", store, "--fail-on", "never").exit_code == 0


def test_an_unreadable_store_is_one_sentence_on_standard_error(store: Path) -> None:
    (store / "manifest.json").write_text('{"version": 9}')
    for command in ("inspect", "stats", "coverage"):
        result = run(command, store)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "version 9 is not supported" in result.stderr.replace("\n", " ")
    found = answer("check", store, code=1)
    assert (found["readable"], found["findings"][0]["code"]) == (False, "unsupported_version")


def test_brackets_in_a_store_are_text_and_no_markup(store: Path) -> None:
    path = store / "sample_index.jsonl"
    path.write_text(path.read_text().replace('"shard-000001"', '"[bold]x[/nothing]"'))
    result = run("check", store)
    assert result.exit_code == 1
    assert "[bold]x[/nothing]" in result.stdout


def test_the_command_needs_no_dagster_and_pipes_cleanly(store: Path) -> None:
    code = "import sys; from vin_assets.cli import main; assert 'dagster' not in sys.modules; main()"
    command = [sys.executable, "-c", code, "check", str(store), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert json.loads(result.stdout)["findings"] == []
    assert result.stderr == ""
