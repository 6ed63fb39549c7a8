"""Which raw tars belong to a store: what its manifest names, below the configured raw roots and nowhere else.

Belongs here: patterns of the manifest, containment, order. Does not belong here: opening tars (`tars`), joins
(`coverage`).
"""

from __future__ import annotations

import glob as shell
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resources.files import FileRoot, Identity, PathRefusedError
from resources.globbing import glob, has_magic
from vin_assets.vin_store.format import Manifest

_URL = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*://|pipe:)")


@dataclass(frozen=True, slots=True)
class RawTar:
    """One regular, non-empty file: its real path, the root it is opened through, and its identity."""

    path: str
    root: FileRoot
    identity: Identity


@dataclass(frozen=True, slots=True)
class RawTars:
    """The tars of a store, and what stood in the way of others."""

    tars: list[RawTar] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)


def _texts(found: Any, name: str, unsupported: list[str]) -> list[str]:
    if found is None:
        return []
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return found
    unsupported.append(f"{name}: a list of texts is expected, found {str(found)[:80]!r}")
    return []


def _text(found: Any, name: str, unsupported: list[str]) -> str | None:
    if found is None or isinstance(found, str):
        return found or None
    unsupported.append(f"{name}: a text is expected, found {str(found)[:80]!r}")
    return None


def _has_nul(text: str, name: str, unsupported: list[str]) -> bool:
    """Whether `text` can't be a path, because it holds a NUL character."""
    if "\0" in text:
        unsupported.append(f"{name}: {text[:80]!r} holds a NUL character")
    return "\0" in text


def _data_root(config: dict[str, Any], replaced_by: Path | None, unsupported: list[str]) -> str | None:
    if replaced_by is not None:
        return os.path.abspath(replaced_by)
    paths = config.get("paths") if isinstance(config.get("paths"), dict) else {}
    root = _text(paths.get("root"), "paths.root", unsupported) if paths else None
    data_root = _text(paths.get("data_root"), "paths.data_root", unsupported) if paths else None
    if any(
        [_has_nul(root or "", "paths.root", unsupported), _has_nul(data_root or "", "paths.data_root", unsupported)]
    ):
        return None
    if root is None and data_root is None:
        return None
    joined = os.path.join(os.path.expanduser(root or ""), os.path.expanduser(data_root or ""))
    if not os.path.isabs(joined):
        unsupported.append(f"paths.data_root: {joined!r} is relative and paths.root gives no absolute folder")
        return None
    return joined


def patterns(manifest: Manifest, raw_data_root: Path | None) -> tuple[list[str], list[str]]:
    """The absolute patterns that a manifest names for its tars, and the entries that are not supported."""
    config = manifest.source.dataset_config
    unsupported: list[str] = []
    base = _data_root(config, raw_data_root, unsupported)
    urls = _texts(config.get("tar_urls"), "tar_urls", unsupported)
    if urls:
        wanted = []
        for url in urls:
            if _has_nul(url, "tar_urls", unsupported):
                continue
            path = os.path.expanduser(url)
            if _URL.match(url) or (base is None and not os.path.isabs(path)):
                unsupported.append(url)
            else:
                wanted.append(os.path.normpath(os.path.join(base or "/", path)))
        return wanted, unsupported
    if base is None:
        return [], unsupported
    variant = _text(config.get("atek_variant"), "atek_variant", unsupported) or "efm"
    if _has_nul(variant, "atek_variant", unsupported):
        return [], unsupported
    folder = shell.escape(os.path.join(base, f"ase_{variant}"))
    scenes = _texts(config.get("scene_ids"), "scene_ids", unsupported)
    named = [scene for scene in scenes if not _has_nul(scene, "scene_ids", unsupported)]
    found = [f"{folder}/{shell.escape(scene)}/*.tar" for scene in named] if scenes else [f"{folder}/**/*.tar"]
    return [os.path.normpath(pattern) for pattern in found], unsupported


def _split(pattern: str) -> tuple[str, str]:
    """A pattern's leading part without wildcards, and the rest."""
    parts = pattern.split("/")
    fixed = next((number for number, part in enumerate(parts) if has_magic(part)), len(parts))
    return "/".join(parts[:fixed]) or "/", "/".join(parts[fixed:])


def find_tars(
    manifest: Manifest, raw_data_root: Path | None, raw_roots: Sequence[Path], trust_manifest_paths: bool
) -> RawTars:
    """The tars that a manifest names, resolved, without repetition, sorted by path components."""
    wanted, unsupported = patterns(manifest, raw_data_root)
    allowed = [os.path.realpath(root) for root in (raw_data_root, *raw_roots) if root is not None]
    if trust_manifest_paths:
        allowed.append("/")
    refused: set[str] = set()
    tars: dict[str, RawTar] = {}
    for pattern in wanted:
        fixed, rest = _split(pattern)
        real = os.path.realpath(fixed)
        root_path = next((root for root in allowed if real == root or real.startswith(root.rstrip("/") + "/")), None)
        if root_path is None:
            refused.add(pattern)
            continue
        root = FileRoot(root_path)
        leaving: list[str] = []
        found = glob(root, f"{root.relative(real)}/{rest}", leaving)
        refused.update(f"{root_path}/{path}" for path in leaving)
        for path in found:
            try:
                tar = _regular(root, path)
            except PathRefusedError:
                refused.add(f"{root_path}/{path}")
            except OSError:
                continue  # it vanished since it was listed
            else:
                if tar is not None:
                    tars.setdefault(tar.path, tar)
    ordered = sorted(tars.values(), key=lambda tar: tar.path.split("/"))
    return RawTars(ordered, sorted(refused), unsupported, wanted)


def _regular(root: FileRoot, path: str) -> RawTar | None:
    fd = root.open_fd(path, os.O_PATH)
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return None
    return RawTar(str(root.resolve(path)), root, Identity.of(status))
