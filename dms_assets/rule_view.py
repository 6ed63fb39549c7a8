"""What the rules of the contract look at: a cache, what its file says beyond the arrays, and what several rules share.

Belongs here: values computed once for many rules, and the form (dtype, shape) of every member. Does not belong here: a
rule (`rules`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dms_assets import spans
from dms_assets.contract import FRAMES, HZ, WINDOWS
from resources.findings import MAX_SAMPLES


@dataclass(frozen=True, slots=True)
class Problem:
    """What a rule found: a sentence with numbers, how many, and the first of them."""

    text: str
    count: int = 1
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the arrays don't say and a file does; None where nothing is known (a cache in memory)."""

    where: str = ""
    stem: str | None = None
    baseline: str | None = None
    declared_kind: str | None = None
    meta_problem: str | None = None
    fail_codes: str | None = None
    extra_members: tuple[str, ...] = ()
    oddities: tuple[str, ...] = ()


class View:
    """A cache as the rules look at it: what several of them need is computed once."""

    def __init__(self, cache: Any, facts: Facts) -> None:
        self.cache, self.facts = cache, facts
        self.kind: str = cache.KIND

    @cached_property
    def forms(self) -> tuple[dict[str, str], dict[str, str]]:
        """Members of a wrong dtype and members of a wrong shape, each with what it is."""
        return _forms(self.cache, self.kind)

    @cached_property
    def malformed(self) -> set[str]:
        """Members that the other rules can't look at."""
        bad = set(self.forms[0]) | set(self.forms[1])
        if self.facts.meta_problem is not None or not isinstance(self.cache.meta, dict):
            bad.add("meta")
        return bad

    @cached_property
    def t(self) -> NDArray[np.float32]:
        """The rows' time: of a frame, or the end of a window."""
        t: NDArray[np.float32] = self.cache.t if self.kind == FRAMES else self.cache.win_t_end
        return t

    @cached_property
    def x(self) -> NDArray[np.float64]:
        """10 t; what is not finite is NaN."""
        x = self.t.astype(np.float64) * HZ
        return np.where(np.isfinite(x), x, np.nan)

    @cached_property
    def k(self) -> NDArray[np.int64]:
        """The nearest tick of every row, -1 where its time is not finite; absurd times stay within +-2**40."""
        return np.where(np.isnan(self.x), -1, np.clip(np.rint(self.x), -(2.0**40), 2.0**40)).astype(np.int64)

    @cached_property
    def runs(self) -> spans.Ticks:
        """The ticks that the spans claim."""
        return spans.runs_of(self.cache.spans)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """The rows' validity."""
        valid: NDArray[np.bool_] = self.cache.valid if self.kind == FRAMES else self.cache.win_valid
        return valid

    @cached_property
    def magnitude(self) -> NDArray[np.uint16]:
        """The float16 features as bits without sign: from 0x7C00 on not finite, above it NaN. Faster than isfinite."""
        values = self.cache.feat if self.kind == FRAMES else self.cache.emb
        bits: NDArray[np.uint16] = values.view(np.uint16) & np.uint16(0x7FFF)
        return bits

    def rows(self, bad: NDArray[np.bool_], text: str) -> Problem | None:
        """The problem of the rows where `bad` holds."""
        count = int(np.count_nonzero(bad))
        if not count:
            return None
        first = np.flatnonzero(bad)[:MAX_SAMPLES]
        return Problem(text, count, tuple(f"row {i} (t={self.t[i]:.6g})" for i in first))


_ROW_FORMS: dict[str, dict[str, tuple[str, int | None]]] = {
    FRAMES: {
        "t": ("float32", None),
        "frame_idx": ("int64", None),
        "box": ("float32", 4),
        "valid": ("bool", None),
        "fail": ("uint8", None),
        "feat": ("float16", -1),
        "moving": ("bool", None),
    },
    WINDOWS: {"win_t_end": ("float32", None), "emb": ("float16", -1), "win_valid": ("bool", None)},
}


def _forms(cache: Any, kind: str) -> tuple[dict[str, str], dict[str, str]]:
    dtypes: dict[str, str] = {}
    shapes: dict[str, str] = {}
    rows: dict[str, int] = {}

    def look(name: str, dtype: str, width: int | None, axes: int) -> None:
        array = getattr(cache, name)
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            dtypes[name] = f"{name} is {getattr(array, 'dtype', type(array).__name__)}, not {dtype}"
        elif array.ndim != axes or (width is not None and width >= 0 and array.shape[1] != width):
            shapes[name] = f"{name} has the shape {array.shape}"
        elif name != "spans":
            rows[name] = len(array)

    for name, (dtype, width) in _ROW_FORMS[kind].items():
        if name != "moving" or cache.moving is not None:
            look(name, dtype, width, 1 if width is None else 2)
    look("spans", "float32", 2, 2)
    if rows:
        usual = Counter(rows.values()).most_common(1)[0][0]
        shapes.update({name: f"{name} has {n} rows, not {usual}" for name, n in rows.items() if n != usual})
    if not isinstance(cache.uid, str):
        dtypes["uid"] = f"uid is {type(cache.uid).__name__}, not a text"
    if kind == WINDOWS:
        if not isinstance(cache.win_len, (int, np.integer)) or isinstance(cache.win_len, bool):
            dtypes["win_len"] = f"win_len is {cache.win_len!r:.40}, not an integer"
    elif isinstance(cache.channels, np.ndarray) and cache.channels.ndim != 1:
        shapes["channels"] = f"channels has the shape {cache.channels.shape}"
    elif not all(isinstance(name, str) for name in cache.channels):
        dtypes["channels"] = "channels are not all texts"
    elif "feat" in rows and len(cache.channels) != cache.feat.shape[1]:
        shapes["channels"] = f"{len(cache.channels)} channels name the {cache.feat.shape[1]} columns of feat"
    return dtypes, shapes
