"""A third party's package with extractors of its own, as installed: importable, with entry points in its metadata."""

from __future__ import annotations

from pathlib import Path

_MODULE = '''
"""Extractors that read the number burnt into a test frame."""

import time

import numpy as np

from dms_assets.extraction.extractor import NoOptions, Row
from tests.builders.video import read_number


class Numbers:
    """Frame number, and the left edge of the box it was given; moods that tests need are bound to numbers."""

    Options = NoOptions
    channels = ("number", "left")
    model_ids = ("numbers",)
    lib_versions = {}
    own_detector = False

    def __init__(self, baseline, weights):
        self.channels = baseline.channels or self.channels

    def row(self, image, box):
        number = read_number(image)
        if number == 100:
            return Row(None, None)
        if number == 102:
            return Row(np.array([70000.0, 0.0]), box)
        if number == 104:
            return Row(np.array([np.nan, 0.0]), box)
        return Row(np.array([float(number), box[0]]), box)


class Raises(Numbers):
    def row(self, image, box):
        if read_number(image) >= 120:
            raise RuntimeError("out of luck")
        return super().row(image, box)


class Slow(Numbers):
    def row(self, image, box):
        time.sleep(0.004)
        return super().row(image, box)


class NumberWindows:
    """The numbers of the frames of a window."""

    Options = NoOptions
    model_ids = ("numbers",)
    lib_versions = {}

    def __init__(self, baseline, weights):
        self.dim = baseline.win_len

    def prepare(self, image, box, previous):
        return float(read_number(image))

    def window(self, frames):
        return np.array(frames)


class SlowWindows(NumberWindows):
    def prepare(self, image, box, previous):
        time.sleep(0.004)
        return super().prepare(image, box, previous)
'''

_ENTRY_POINTS = """[dms_assets.extractors]
numbers = numbers_extractors:Numbers
raises = numbers_extractors:Raises
slow = numbers_extractors:Slow
number_windows = numbers_extractors:NumberWindows
slow_windows = numbers_extractors:SlowWindows
absent = numbers_extractors:Absent
lacks_library = library_nobody_has:Thing
"""


def install(folder: Path) -> Path:
    """Put the package into `folder`, which has to be on `sys.path`."""
    (folder / "numbers_extractors.py").write_text(_MODULE)
    info = folder / "numbers_extractors-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers-extractors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    return folder
