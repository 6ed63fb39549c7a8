"""The registry of baselines: what configuration may add and change, and how it is told what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from dms_assets.baselines import BUILT_IN, BaselineConfigError, registry
from dms_assets.contract import FRAMES, WINDOWS

SHA = "0" * 64
EXTERNAL: dict[str, Any] = {"extractor": "external", "channels": ["l2cs_yaw", "l2cs_pitch"]}


def test_without_configuration_there_are_the_built_in_baselines() -> None:
    assert list(registry({})) == sorted(baseline.name for baseline in BUILT_IN)
    assert registry({})["facemesh"].kind == FRAMES
    assert registry({})["flow"].kind == WINDOWS
    assert registry({})["flow"].lead_in == 15


def test_configuration_adds_a_baseline() -> None:
    added = registry({"l2cs": {**EXTERNAL, "valid_fraction_min": 0.7, "pool": "gpu"}})["l2cs"]
    assert added.external
    assert added.channels == ("l2cs_yaw", "l2cs_pitch")
    assert (added.valid_fraction_min, added.pool) == (0.7, "gpu")


def test_configuration_overrides_a_threshold_and_a_path_and_keeps_the_sha256() -> None:
    before = registry({})["facemesh"]
    entry = {"valid_fraction_min": 0.25, "weights": {"mesh": {"path": "/models/mesh.tflite"}}}
    after = registry({"facemesh": entry})["facemesh"]
    assert after.valid_fraction_min == 0.25
    assert after.weights["mesh"].path == "/models/mesh.tflite"
    assert after.weight_sha256 == before.weight_sha256


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("facemesh", {"code_version": "2"}, r"baselines\.facemesh\.code_version: .*only thresholds and paths"),
        ("facemesh", {"weights": {"nose": {"path": "/n"}}}, r"baselines\.facemesh\.weights\.nose: no such weight"),
        ("facemesh", {"weights": {"mesh": {"path": "/n", "sha256": SHA}}}, r"facemesh\.weights\.mesh\.sha256"),
        ("facemesh", {"valid_fraction_min": 1.5}, r"baselines\.facemesh\.valid_fraction_min"),
        ("facemesh", {"valid_fraction_min": float("nan")}, r"baselines\.facemesh\.valid_fraction_min"),
        ("Bad-Name", EXTERNAL, r"baselines\.Bad-Name: .*lower-case"),
        ("new", {**EXTERNAL, "chanels": ["a"]}, r"baselines\.new\.chanels"),
        ("new", {**EXTERNAL, "channels": ["a", "b", "a"]}, r"baselines\.new\.channels: named twice: a"),
        ("new", {**EXTERNAL, "options": {"size": 1}}, r"baselines\.new\.options\.size"),
        ("new", {**EXTERNAL, "win_len": 16}, r"win_len is for kind 'windows'"),
        ("new", {**EXTERNAL, "kind": "windows"}, r"channels are for kind 'frames'"),
        (
            "new",
            {"extractor": "clairvoyance", "code_version": "1"},
            r"baselines\.new\.extractor: .*'clairvoyance' is not",
        ),
        ("new", {"extractor": "external", "weights": {"m": {"path": "m.onnx", "sha256": SHA}}}, "m.path: .*relative"),
        (
            "new",
            {"extractor": "external", "weights": {"m": {"path": "/m.onnx"}}},
            r"baselines\.new\.weights\.m\.sha256",
        ),
    ],
)
def test_a_wrong_entry_is_named_with_its_key(name: str, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(BaselineConfigError, match=message):
        registry({name: entry})


def test_every_wrong_entry_is_named_at_once() -> None:
    with pytest.raises(BaselineConfigError, match=r"baselines\.one\..*baselines\.two\."):
        registry({"one": {**EXTERNAL, "a": 1}, "two": {**EXTERNAL, "b": 1}})


def test_a_baseline_can_not_be_changed_by_who_reads_it() -> None:
    with pytest.raises(TypeError):
        registry({})["facemesh"].weights["mesh"] = None  # type: ignore[index]
