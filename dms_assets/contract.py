"""The words of the DMS cache contract that everything else refers to: the time base, the tables, the errors.

Belongs here: constants and exceptions. Does not belong here: any code that reads, judges or writes a cache.
"""

from __future__ import annotations

from typing import Final

HZ: Final = 10
FPS: Final = 20
TIME_BASE: Final = "frame/20: t=k/10, frame_idx=2k"
SPAN_TOL_S: Final = 0.051  # half a tick and a bit
MAX_SECONDS: Final = 100_000.0  # up to here float32 tells neighbouring ticks apart with certainty
FRAMES: Final = "route_frames"
WINDOWS: Final = "route_windows"
FAIL_CODES: Final = {0: "ok", 1: "no_box", 2: "no_frame", 3: "no_face", 4: "non_finite"}
META_KEYS: Final = (
    "baseline",
    "model_ids",
    "weight_sha256",
    "lib_versions",
    "decode_wh",
    "native_wh",
    "code_sha256",
    "video_source",
    "time_base",
)
RUNTIME_KEYS: Final = ("decode_ms_p50", "decode_ms_p95", "infer_ms_p50", "infer_ms_p95", "n_frames")


class CacheInvalidError(AssertionError, ValueError):
    """An invariant of the contract is broken. `code` is its name in the rule registry.

    It is an AssertionError because callers of the older module catch that; it is raised under `python -O` as well.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class RouteNameError(CacheInvalidError):
    """A name that can't be a route's or a baseline's: no path is ever built from it."""


class CacheUnreadableError(ValueError):
    """The container can't be read as a cache: `file`, `member` (None: the container itself) and `cause` say why."""

    def __init__(self, file: str, member: str | None, cause: str) -> None:
        super().__init__(f"{file}: {f'member {member}: ' if member else ''}{cause}")
        self.file, self.member, self.cause = file, member, cause

    def __reduce__(self) -> tuple[type[CacheUnreadableError], tuple[str, str | None, str]]:
        return type(self), (self.file, self.member, self.cause)


class ProvenanceMismatchError(CacheInvalidError):
    """Two caches of one route were made by other code or other weights; their rows don't belong in one file."""
