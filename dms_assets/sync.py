"""What Dagster is told of the DMS inputs: the `uid` partitions, and a new data version where an input changed.

Belongs here: the comparison, as events outside runs. Does not belong here: when it happens (`automation`), and the
caches themselves. Absence never deletes a partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from dms_assets.contract import HZ
from dms_assets.extraction.video import list_videos
from dms_assets.files import DmsFiles
from dms_assets.outcomes import ANCHOR_SPANS, DRIVER_BOXES, DRIVER_VIDEO
from dms_assets.routes import is_uid
from dms_assets.spans import as_lists, count_ticks, runs_of
from resources.events import Materialised


def routes(files: DmsFiles, baselines: list[str]) -> list[str]:
    """Every route that is wanted, or of which a baseline has a cache; sorted.

    Raises:
        WantedTableError: the wanted-spans table can't be used.
        OSError: the table or a root is missing or can't be read: that is no empty answer.
    """
    found = set(files.wanted().spans)
    for baseline in baselines:
        found.update(files.caches.uids(baseline))
    return sorted(found)


def changed_inputs(
    files: DmsFiles, uids: Collection[str], known: Mapping[str, Mapping[str, str]]
) -> list[Materialised]:
    """A `Materialised` for each input of the routes `uids` whose data version differs from the known one.

    Args:
        files: the location's files.
        uids: the routes that are partitions.
        known: input (`driver_video`, `driver_boxes`, `anchor_spans`) -> uid -> data version.
    """
    found = []
    for uid, spans in files.wanted().spans.items():
        version = hashlib.sha256(spans.tobytes()).hexdigest()[:16]
        if known.get("anchor_spans", {}).get(uid) != version:
            told = {"spans": as_lists(spans), "seconds": count_ticks(runs_of(spans)) / HZ}
            found.append(Materialised(ANCHOR_SPANS, uid, version, told))
    for uid, videos in list_videos(files.videos).items():
        version = hashlib.sha256(repr([sorted(video.as_meta.items()) for video in videos]).encode()).hexdigest()[:16]
        if known.get("driver_video", {}).get(uid) != version:
            told = {"file": videos[0].name, "mib": videos[0].identity.size / 2**20, "files": len(videos)}
            found.append(Materialised(DRIVER_VIDEO, uid, version, told))
    for entry in files.boxes.scan(suffix=".npz") if files.boxes else []:
        uid, identity = entry.name.removesuffix(".npz"), entry.identity
        version = f"{identity.size}-{identity.mtime_ns}"
        if is_uid(uid) and known.get("driver_boxes", {}).get(uid) != version:
            found.append(Materialised(DRIVER_BOXES, uid, version, {"file": entry.name}))
    return [item for item in found if item.partition in uids]
