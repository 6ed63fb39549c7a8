"""What one extraction of one route did. Plain data, for the log, the asset's metadata and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RouteReport:
    """The outcome of `run_route`.

    `ticks_wanted` counts the ticks of the wanted spans, `ticks_reused` those that were stored before, `rows` the rows
    (frames) or windows that this run added and `valid` the valid ones among them; `failed` counts its other rows by
    the name of their code. `frames_requested` counts the frames the rows needed, `frames_decoded` what the codec had
    to decode for them. `ms_per_tick` has the stages `index`, `decode`, `convert`, `infer`, `write`. `video` is the
    video's identity as the cache's meta records it; `box_source` is `pose_cache`, `detector` or `frame`.
    `beyond_video_s` is the number of wanted seconds that the video does not reach.
    """

    baseline: str
    uid: str
    ticks_wanted: int
    ticks_reused: int
    rows: int
    valid: int
    failed: Mapping[str, int]
    frames_requested: int
    frames_decoded: int
    blocks: int
    ms_per_tick: Mapping[str, float]
    wall_s: float
    video: Mapping[str, object]
    box_source: str
    beyond_video_s: float
