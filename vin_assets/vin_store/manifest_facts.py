"""What the manifest alone says: block sizes, memory of a sample, the shapes of a one-step batch.

Belongs here: answers that need no payload. Does not belong here: reading chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vin_assets.vin_store.format import (
    BACKBONE,
    CANDIDATE_COUNT,
    CANDIDATE_POSES,
    REFERENCE_POSES,
    RRI,
    ZARR_ARRAY,
    Manifest,
    ShardSpec,
)
from vin_assets.vin_store.results import VinOfflineBlockDiagnostic, VinOfflineMemoryDiagnostic
from vin_assets.vin_store.rows import numeric_meta
from vin_assets.vin_store.store import Store

MIB = 1 << 20
_P3D = ("R", "T", "focal_length", "principal_point", "image_size")
_BATCH_COMPONENTS = (
    "pm_dist_before",
    "pm_dist_after",
    "pm_acc_before",
    "pm_comp_before",
    "pm_acc_after",
    "pm_comp_after",
)
_BATCH_BACKBONE = ("voxel_extent", "occ_pr", "occ_input", "free_input", "counts", "cent_pr", "pts_world")
_BATCH_OPTIONAL = {
    "gt_obbs.obbs": "gt.obbs",
    "detected_obbs.obbs": "detected.obbs",
    "detected_obbs.probs": "detected.obb_probs",
    "trajectory.time_ns": "vin.trajectory.time_ns",
    "trajectory.gravity_in_world": "vin.trajectory.gravity_in_world",
}


def block_shapes(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """The shape of each numeric block, row axis included, from the first shard that declares it; sorted by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for shard in manifest.shards:
        for name, block in shard.blocks.items():
            if block.kind == ZARR_ARRAY and block.shape is not None:
                shapes.setdefault(name, block.shape)
    return dict(sorted(shapes.items()))


def block_diagnostics(manifest: Manifest) -> list[VinOfflineBlockDiagnostic]:
    """Every block of every shard, sorted by shard id, then name."""
    rows = [
        VinOfflineBlockDiagnostic(
            shard.shard_id, name, block.kind, block.dtype, block.shape, block.optional, block.estimated_bytes
        )
        for shard in manifest.shards
        for name, block in shard.blocks.items()
    ]
    return sorted(rows, key=lambda row: (row.shard_id, row.name))


def numeric_bytes(manifest: Manifest) -> int:
    """Uncompressed bytes of every numeric block."""
    return sum(block.estimated_bytes or 0 for shard in manifest.shards for block in shard.blocks.values())


def memory_component(name: str) -> str | None:
    """The component that a block's memory counts for, None for the ones that no sample of a batch needs."""
    if name.startswith(BACKBONE):
        return "backbone"
    if name in (CANDIDATE_COUNT, RRI) or name.startswith("oracle.pm_"):
        return "oracle_rri"
    if name == CANDIDATE_POSES or name in REFERENCE_POSES or name.startswith("oracle.p3d."):
        return "pose_camera"
    if name.startswith("vin."):
        return "vin_snippet"
    return "other_numeric" if name.startswith("oracle.") else None


def memory_diagnostics(shards: Sequence[ShardSpec]) -> list[VinOfflineMemoryDiagnostic]:
    """The memory of the samples whose shards are `shards` (one entry per scanned row), by component."""
    components = ("backbone", "oracle_rri", "vin_snippet", "pose_camera", "other_numeric")
    by_shard: dict[str, list[int]] = {}
    for shard in shards:
        if shard.shard_id not in by_shard:
            sizes = dict.fromkeys(components, 0)
            for name, block in shard.blocks.items():
                component = memory_component(name)
                if component is not None:
                    sizes[component] += block.row_bytes
            by_shard[shard.shard_id] = [*sizes.values(), sum(sizes.values())]
    if not shards:
        return []
    table = np.array([by_shard[shard.shard_id] for shard in shards], np.float64) / MIB
    return [
        VinOfflineMemoryDiagnostic(
            name, float(column.mean()), float(np.median(column)), float(np.percentile(column, 95))
        )
        for name, column in zip((*components, "total"), table.T, strict=True)
        if column.max() > 0
    ]


def batch_shapes(store: Store) -> dict[str, str] | None:
    """The shapes of the first index row as a labelled one-step batch, None where none can be built.

    Shapes are those of the arrays themselves, so that a manifest that lies about them changes nothing.
    """
    shard = store.shard_of(store.rows[0]) if store.rows else None
    if shard is None:
        return None
    wanted = {"candidate_poses_world_cam": CANDIDATE_POSES, "reference_pose_world_rig": shard.reference_pose()}
    wanted |= {"rri": RRI} | {name: f"oracle.{name}" for name in _BATCH_COMPONENTS}
    cameras = {f"p3d_cameras.{name}": f"oracle.p3d.{name}" for name in _P3D}
    wanted |= cameras | {"candidate_count": CANDIDATE_COUNT}
    snippet = {f"vin_snippet.{name}": f"vin.{name}" for name in ("points_world", "lengths", "t_world_rig")}
    required = _shapes(store, shard, {**wanted, **snippet}.items())
    if len(required) < len(wanted) + len(snippet):
        return None
    required["reference_pose_world_rig"] = (12,)
    shapes: dict[str, tuple[int, ...] | str] = {key: required[key] for key in wanted}
    count = required["rri"][0] if required["rri"] else 0
    if required["p3d_cameras.R"][:1] == (count,):
        shapes["p3d_cameras.batch_mode"] = "flat (B*N)"
        shapes |= {f"{key}_grouped": (1, *required[key]) for key in cameras}
    shapes |= {key: required[key] for key in snippet}
    backbone = _shapes(store, shard, ((f"backbone.{name}", f"{BACKBONE}{name}") for name in _BATCH_BACKBONE))
    if backbone:
        shapes |= backbone
    else:
        shapes["backbone"] = "None"
    shapes |= _shapes(store, shard, _BATCH_OPTIONAL.items())
    return {key: str(shape) for key, shape in shapes.items()}


def _shapes(store: Store, shard: ShardSpec, names: Iterable[tuple[str, str | None]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for key, name in names:
        meta = numeric_meta(store.root, shard, name) if name is not None else None
        if meta is not None:
            found[key] = meta.row_shape
    return found
