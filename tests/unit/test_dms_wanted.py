"""Wanted spans: both tables, all spellings of a route, the union per route, and bad rows that cost only themselves."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dms_assets.contract import RouteNameError
from dms_assets.routes import canonical_uid, check_baseline
from dms_assets.wanted import Wanted, WantedTableError, read_wanted
from resources.files import FileRoot

OLD = "a2a0ccea32023010_2023-07-27--13-01-19"
NEW = "a2a0ccea32023010_0000003d--3fa0dc2a43"


def read(tmp_path: Path, text: str, window_s: float | None = None) -> Wanted:
    (tmp_path / "wanted.csv").write_text(text)
    return read_wanted(FileRoot(tmp_path), "wanted.csv", window_s)


@pytest.mark.parametrize("uid", [OLD, NEW])
@pytest.mark.parametrize("separator", "|/_")
def test_every_spelling_of_a_route_is_one_uid(uid: str, separator: str) -> None:
    assert canonical_uid(uid.replace("_", separator, 1)) == uid


def test_another_safe_name_is_its_own_uid() -> None:
    assert canonical_uid("synthetic__dev0__seg__route_0-1") == "synthetic__dev0__seg__route_0-1"


@pytest.mark.parametrize(
    "name",
    [
        "a2a0ccea32023010|2023-07-27--13-01-19--5",
        "a2a0ccea32023010/2023-07-27--13-01-19/5",
        "A2A0CCEA32023010|2023-07-27--13-01-19",
        "a2a0ccea32023010|2023-07-27--13-01-19\n",
        "../a2a0ccea32023010",
        "a b",
        "",
        "_a",
        "a\0",
    ],
)
def test_everything_else_is_refused(name: str) -> None:
    with pytest.raises(RouteNameError):
        canonical_uid(name)


def test_baseline_names_have_one_grammar() -> None:
    assert check_baseline("l2cs_2") == "l2cs_2"
    with pytest.raises(RouteNameError):
        check_baseline("L2CS")


def test_a_table_of_spans_gives_the_union_per_route_in_order(tmp_path: Path) -> None:
    spelled = OLD.replace("_", "|", 1)
    wanted = read(tmp_path, f"uid,t_start,t_end,note\nzz,1,2,x\n{OLD},8,12,\n{spelled},0,10,\n{OLD}, 12.1 ,13,\n")
    assert list(wanted.spans) == [OLD, "zz"]
    assert wanted.of(OLD).tolist() == [[0, 13]]
    assert wanted.of(OLD).dtype == np.float32
    assert wanted.of("unknown").shape == (0, 2)
    assert wanted.findings == ()


def test_anchors_want_the_window_before_them(tmp_path: Path) -> None:
    wanted = read(tmp_path, "uid,t_anchor\na,10\na,11\na,2\n", window_s=5)
    assert wanted.of("a").tolist() == [[0, 2], [5, 11]]
    with pytest.raises(WantedTableError, match="window_s"):
        read(tmp_path, "uid,t_anchor\na,10\n")


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    frame = pd.DataFrame({"uid": ["a", "b", None], "t_start": [0.0, 5.0, 1.0], "t_end": [1.0, 4.0, 2.0], "x": 1})
    frame.to_parquet(tmp_path / "w.parquet")
    wanted = read_wanted(FileRoot(tmp_path), "w.parquet")
    assert wanted.of("a").tolist() == [[0, 1]]
    assert list(wanted.spans) == ["a"]
    assert wanted.findings[0].samples == (
        "row 2: [5, 4] ends before it starts",
        "row 3: uid: is missing",
    )


def test_bad_rows_are_named_and_cost_only_themselves(tmp_path: Path) -> None:
    rows = ["good,1,2", "a,5,4", "a,nan,3", "a,-1,3", "a,x,3", "../../evil,0,1", ",0,1", "a,0,1e9", "a,,1", "a,inf,inf"]
    wanted = read(tmp_path, "uid,t_start,t_end\n" + "\n".join(rows) + "\n")
    assert list(wanted.spans) == ["good"]
    (finding,) = wanted.findings
    assert finding.count == 9
    assert [sample.split(":")[0] for sample in finding.samples] == [f"row {i}" for i in range(2, 11)]
    assert "evil" in finding.samples[4]
    assert finding.where == "wanted.csv"


def test_a_point_and_a_negative_anchor(tmp_path: Path) -> None:
    assert read(tmp_path, "uid,t_start,t_end\na,5,5\n").of("a").tolist() == [[5, 5]]
    wanted = read(tmp_path, "uid,t_anchor\na,-1\n", window_s=5)
    assert "begins before 0 s" in wanted.findings[0].samples[0]


@pytest.mark.parametrize(
    "text", ["", "uid,t_start\na,1\n", "a,b\n1,2\n", "uid,t_start,t_end\na,1,2,3\n", 'uid,t_start,t_end\n"a,1,2\n']
)
def test_a_table_that_is_none_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(WantedTableError, match=r"wanted\.csv"):
        read(tmp_path, text)


def test_a_parquet_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "w.parquet").write_bytes(b"PAR1 but not really PAR1")
    with pytest.raises(WantedTableError, match=r"w\.parquet"):
        read_wanted(FileRoot(tmp_path), "w.parquet")


@pytest.mark.parametrize("nested", [[1.0, 2.0], {"a": 1.0}])
@pytest.mark.parametrize("column", ["uid", "t_start", "t_end"])
def test_a_parquet_column_of_lists_or_structs_is_an_error(tmp_path: Path, column: str, nested: object) -> None:
    row = {"uid": "a", "t_start": 0.0, "t_end": 1.0}
    pd.DataFrame([{**row, column: nested, "other": nested}]).to_parquet(tmp_path / "w.parquet")
    with pytest.raises(WantedTableError, match=rf"w\.parquet.*{column} holds"):
        read_wanted(FileRoot(tmp_path), "w.parquet")
    pd.DataFrame([{**row, "other": nested}]).to_parquet(tmp_path / "w.parquet")
    assert read_wanted(FileRoot(tmp_path), "w.parquet").of("a").tolist() == [[0, 1]]


def test_a_missing_table_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_wanted(FileRoot(tmp_path), "missing.csv")


def test_the_digest_knows_the_table_and_the_window(tmp_path: Path) -> None:
    text = "uid,t_anchor\na,10\n"
    digests = {read(tmp_path, text, w).digest for w in (5.0, 6.0)} | {read(tmp_path, text + "a,11\n", 5.0).digest}
    assert len(digests) == 3
    assert read(tmp_path, text, 5.0).digest in digests
