"""What a cache's meta remembers of ticks that the video could not give, and under which video.

Belongs here: the meta key `unmet`, read and brought up to date. Does not belong here: deciding what to do (`plan`).

`unmet` is a list of {"video": identity, "beyond": spans, "damaged": spans}: ticks past the last frame, and ticks whose
frame could not be decoded, both stored as failed rows. They are tried again only under another identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dms_assets.spans import Ticks, as_lists, from_runs, join_runs, minus, runs_of, runs_of_ticks

KEY = "unmet"
NONE: Ticks = np.zeros((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class Unmet:
    """Runs of ticks under one video's identity."""

    video: Mapping[str, Any]
    beyond: Ticks
    damaged: Ticks


def read_unmet(meta: Mapping[str, Any]) -> list[Unmet]:
    """What `meta` remembers; entries of another form, which no extraction here writes, are passed over."""
    entries = meta.get(KEY)
    found = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("video"), dict):
            try:
                found.append(Unmet(entry["video"], runs_of(entry.get("beyond", [])), runs_of(entry.get("damaged", []))))
            except (TypeError, ValueError):
                continue
    return found


def beyond_now(meta: Mapping[str, Any], video: Mapping[str, Any] | None) -> Ticks:
    """Runs that lie past the end of this very video (None: whatever video was there)."""
    return _joined(*(unmet.beyond for unmet in read_unmet(meta) if video is None or unmet.video == video))


def to_retry(meta: Mapping[str, Any], video: Mapping[str, Any] | None) -> Ticks:
    """Runs that another video than this one could not give; none while there is no video."""
    if video is None:
        return NONE
    others = [unmet for unmet in read_unmet(meta) if unmet.video != video]
    return _joined(*(runs for unmet in others for runs in (unmet.beyond, unmet.damaged)))


def updated(
    meta: Mapping[str, Any], video: Mapping[str, Any], tried: Ticks, beyond: list[int], damaged: list[int]
) -> list[dict[str, Any]]:
    """The value of `unmet` after the runs `tried` were tried under `video`, with these ticks (ascending) unmet."""
    entries = []
    mine = Unmet(video, NONE, NONE)
    for unmet in read_unmet(meta):
        rest = Unmet(unmet.video, minus(unmet.beyond, tried), minus(unmet.damaged, tried))
        if unmet.video == video:
            mine = rest
        elif len(rest.beyond) or len(rest.damaged):
            entries.append(rest)
    entries.append(
        Unmet(video, _joined(mine.beyond, runs_of_ticks(beyond)), _joined(mine.damaged, runs_of_ticks(damaged)))
    )
    return [
        {
            "video": dict(unmet.video),
            "beyond": as_lists(from_runs(unmet.beyond)),
            "damaged": as_lists(from_runs(unmet.damaged)),
        }
        for unmet in entries
        if len(unmet.beyond) or len(unmet.damaged)
    ]


def both(first: Ticks, second: Ticks) -> Ticks:
    """The ticks in both of two joined runs."""
    return minus(first, minus(first, second))


def _joined(*runs: Ticks) -> Ticks:
    return join_runs(np.concatenate([NONE, *runs]))
