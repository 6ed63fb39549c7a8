"""Manifests and disks that are against us: what they cost is one clear sentence."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from resources.files import FileRoot
from tests.builders.vin import edit_manifest, tiny_store
from vin_assets.cli import app
from vin_assets.vin_store.coverage import damaged_tar_findings
from vin_assets.vin_store.format import FormatError, Manifest, manifest_version, parse_manifest
from vin_assets.vin_store.integrity import check_store
from vin_assets.vin_store.raw_paths import find_tars, patterns
from vin_assets.vin_store.results import VinOfflineCoverageStats
from vin_assets.vin_store.store import ManifestUnreadableError, VinOfflineStoreConfig, open_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tiny_store(tmp_path, 11)


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1" * 5000, "4300 digits"),
        ('"\\ud800"', "field unknown: no text, it holds half of a surrogate pair"),
        ('[{"a": ["x", "\\udfff"]}]', "field unknown[0].a[1]: no text"),
        ('{"\\ud800": 1}', r"field 'unknown.\ud800': no text"),
        ("[" * 100_000 + "]" * 100_000, "recursion"),
    ],
)
def test_what_no_parser_takes_makes_the_manifest_unreadable(store: Path, value: str, reason: str) -> None:
    path = store / "manifest.json"
    path.write_text(path.read_text().rstrip().removesuffix("}") + f', "unknown": {value}}}')
    for command in ("inspect", "stats", "coverage"):
        result = run(command, store)
        assert (result.exit_code, result.stdout) == (2, ""), result.exception
        assert "manifest.json" in result.stderr.replace("\n", "")
    (finding,) = check_store(VinOfflineStoreConfig(store))
    assert (finding.code, finding.where) == ("manifest_unreadable", str(path))
    assert reason in finding.text


def test_a_whole_surrogate_pair_is_a_character(store: Path) -> None:
    found, _ = manifest_version((store / "manifest.json").read_bytes())
    assert parse_manifest(found | {"created_at": "\U0001f600"}).created_at == "\U0001f600"
    with pytest.raises(FormatError, match="field created_at: no text"):
        parse_manifest(found | {"created_at": "\ud83d"})


@pytest.mark.parametrize("shape", [[3, 10**400], [3, 2**63], [3] * 17])
def test_a_shape_that_no_array_has_is_named(store: Path, shape: list[int]) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["shards"][0]["blocks"]["oracle.rri"]["shape"] = shape

    edit_manifest(store, change)
    for command in ("inspect", "stats"):
        result = run(command, store)
        assert (result.exit_code, result.stdout) == (2, ""), result.exception
        assert "field shards[0].blocks.oracle.rri.shape" in result.stderr.replace("\n", " ")


def manifest_of(store: Path, **config: Any) -> Manifest:
    edit_manifest(store, lambda manifest: manifest["source"].update(dataset_config=config))
    with open_store(VinOfflineStoreConfig(store)) as opened:
        return opened.manifest


PATHS = {"root": "/r", "data_root": "d"}


@pytest.mark.parametrize(
    ("config", "wanted", "unsupported"),
    [
        ({"paths": PATHS, "tar_urls": ["a\0.tar", "~\0/b.tar", "c.tar"]}, ["/r/d/c.tar"], ["tar_urls", "tar_urls"]),
        ({"paths": PATHS, "tar_urls": ["a\0.tar"]}, [], ["tar_urls"]),
        ({"paths": PATHS | {"root": "~\0"}}, [], ["paths.root"]),
        ({"paths": PATHS | {"data_root": "\0"}}, [], ["paths.data_root"]),
        ({"paths": PATHS, "atek_variant": "e\0"}, [], ["atek_variant"]),
        ({"paths": PATHS, "scene_ids": ["1\0", "2"]}, ["/r/d/ase_efm/2/*.tar"], ["scene_ids"]),
        ({"paths": PATHS, "scene_ids": ["1\0"]}, [], ["scene_ids"]),
    ],
)
def test_a_nul_in_a_raw_path_is_unsupported(
    store: Path, config: dict[str, Any], wanted: list[str], unsupported: list[str]
) -> None:
    manifest = manifest_of(store, **config)
    found, told = patterns(manifest, None)
    assert found == wanted
    assert [text.partition(":")[0] for text in told] == unsupported
    assert all("holds a NUL character" in text for text in told)
    assert find_tars(manifest, None, [], True).tars == []


@pytest.mark.parametrize("text", ["[/red]", "[/bold]", "[bold]x", ":smile:"])
def test_markup_in_names_and_dtypes_is_printed_as_it_is(store: Path, text: str) -> None:
    def rename(manifest: dict[str, Any]) -> None:
        for shard in manifest["shards"]:
            for name, block in list(shard["blocks"].items()):
                if name in ("vin.lengths", "gt.obb_sem_id_to_name") or block["kind"] != "zarr_array":
                    block["name"] = name + text
                    shard["blocks"][name + text] = shard["blocks"].pop(name)
                elif name == "oracle.rri":
                    block["dtype"] = text

    edit_manifest(store, rename)
    index = store / "sample_index.jsonl"
    index.write_text(index.read_text().replace('"scene_id":"', f'"scene_id":"{text}'))
    for args in (("inspect",), ("inspect", 0), ("stats",), ("coverage",), ("check",)):
        result = run(args[0], store, *args[1:])
        assert result.exit_code in (0, 1), result.exception
        assert not result.exception or isinstance(result.exception, SystemExit)
        assert args == ("stats",) or text in result.stdout


def piped(store: Path, *args: str, stdout: Any) -> subprocess.Popen[str]:
    code = "from vin_assets.cli import main; main()"
    command = [sys.executable, "-c", code, *args[:1], str(store), *args[1:]]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.parametrize("args", [("inspect", "--json"), ("check", "--json"), ("inspect",)])
def test_a_full_disk_is_one_line_and_exit_code_2(store: Path, args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full, piped(store, *args, stdout=full) as process:
        error = process.communicate()[1]
    assert (process.returncode, error) == (2, f"standard output can't be written: {os.strerror(errno.ENOSPC)}\n")


@pytest.mark.parametrize("args", [("check", "--json"), ("inspect",)])
def test_a_closed_pipe_is_no_finding(store: Path, args: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with piped(store, *args, stdout=writer) as process:
        os.close(writer)
        error = process.communicate()[1]
    assert (process.returncode, error) == (-13, "")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize(
    ("closed", "finding"),
    [
        ("shards/shard-000000", "shard_directory_missing"),
        ("shards/shard-000000/oracle/rri/zarr.json", "array_unreadable"),
        ("shards/shard-000000/oracle/rri/c/0/0", "chunk_undecodable"),
        ("splits/all.npy", "splits_unreadable"),
        ("manifest.json", "manifest_unreadable"),
        ("sample_index.jsonl", "index_unreadable"),
    ],
)
def test_a_lack_of_access_is_mended_by_access(
    store: Path, monkeypatch: pytest.MonkeyPatch, code: int, closed: str, finding: str
) -> None:
    opened = FileRoot.open_fd

    def open_fd(root: FileRoot, path: str, flags: int = os.O_RDONLY) -> int:
        if root.relative(path) == closed:
            raise OSError(code, os.strerror(code), path)
        return opened(root, path, flags)

    monkeypatch.setattr(FileRoot, "open_fd", open_fd)
    found = [each for each in check_store(VinOfflineStoreConfig(store)) if each.code == finding]
    assert [each.how_to_fix for each in found] == ["Give the pipeline's user access to it."]


def test_a_tar_without_access_is_mended_by_access() -> None:
    damaged = [("/raw/a.tar", os.strerror(errno.EACCES)), ("/raw/b.tar", "it ends early")]
    found = damaged_tar_findings(VinOfflineCoverageStats("/s", 2, 0, 0, 0, 0, 0, 0, 0, None, damaged_tars=damaged))
    assert [each.how_to_fix for each in found] == [
        "Give the pipeline's user access to it.",
        "Download or copy the tar again.",
    ]


def test_other_faults_keep_their_remedy(store: Path) -> None:
    (store / "manifest.json").write_text(json.dumps([]))
    refused = pytest.raises(ManifestUnreadableError, match="Write the store again or restore the file")
    with refused, open_store(VinOfflineStoreConfig(store)):
        pass
