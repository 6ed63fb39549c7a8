"""Published results: equal content is one version, old ones are removed, the latest is always whole."""

import os
from pathlib import Path

import pandas as pd

from resources.files import FileRoot
from resources.results import latest, publish


def test_a_result_is_read_back_with_nan_as_null(tmp_path: Path) -> None:
    root = FileRoot(tmp_path)
    assert latest(root, "vin/stats/a") is None
    published = publish(root, "vin/stats/a", {"mean": float("nan"), "n": 3}, {"t": pd.DataFrame({"x": [1, 2]})})
    assert latest(root, "vin/stats/a") == {"mean": None, "n": 3}
    assert pd.read_parquet(published.folder / "t.parquet").x.tolist() == [1, 2]


def test_equal_content_is_one_version_and_changed_tables_are_another(tmp_path: Path) -> None:
    root = FileRoot(tmp_path)
    first = publish(root, "a", {"n": 1}, {"t": pd.DataFrame({"x": [1]})}, {"f.png": b"one"})
    again = publish(root, "a", {"n": 1}, {"t": pd.DataFrame({"x": [1]})}, {"f.png": b"other"})
    other = publish(root, "a", {"n": 1}, {"t": pd.DataFrame({"x": [2]})})
    assert first.version == again.version != other.version
    assert os.readlink(tmp_path / "a" / "latest") == other.version


def test_old_versions_are_removed_and_the_current_one_never(tmp_path: Path) -> None:
    root = FileRoot(tmp_path)
    for n in range(5):
        last = publish(root, "a", {"n": n}, keep=2)
    back = publish(root, "a", {"n": 3}, keep=2)
    assert sorted(os.listdir(tmp_path / "a")) == sorted([last.version, back.version, "latest"])
    assert latest(root, "a") == {"n": 3}
