"""The project's own files: what an installation would hold."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_packages_that_are_installed_are_those_that_exist() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = [
        ".".join(file.parent.relative_to(ROOT).parts)
        for top in ("resources", "vin_assets", "dms_assets")
        for file in (ROOT / top).rglob("__init__.py")
    ]
    assert sorted(listed) == sorted(found)


def test_the_lock_file_pins_every_package_and_holds_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    assert all(line.count("==") == 1 and "/" not in line and "@" not in line for line in lines)
