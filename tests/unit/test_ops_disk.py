"""The guard against a full disk."""

from pathlib import Path

import pytest

from resources.disk import GIB, LowDiskError, require_free


def test_work_stops_before_the_disk_is_full_and_names_folder_amount_and_setting(tmp_path: Path) -> None:
    require_free(tmp_path, 1.0, "[dms] min_free_gib", free=lambda _: GIB)
    with pytest.raises(LowDiskError, match=r"only 0\.50 GiB .* 1 GiB .*\[dms\] min_free_gib"):
        require_free(tmp_path, 1.0, "[dms] min_free_gib", free=lambda _: GIB // 2)


def test_a_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    asked: list[Path] = []

    def free(folder: Path) -> int:
        asked.append(folder)
        return GIB

    require_free(tmp_path / "cache" / "flow", 0.5, "x", free)
    assert asked == [tmp_path]
    require_free(tmp_path, 0, "x")
