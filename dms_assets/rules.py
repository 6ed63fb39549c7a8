"""The rules of the cache contract, one pure function each: a look at a cache in, a problem or None out.

Belongs here: what makes a cache invalid. Does not belong here: which rules apply when (`validation`), reading files
(`npz`, `cache_file`), coverage and thresholds (`judging`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from dms_assets import routes, spans
from dms_assets.contract import FAIL_CODES, HZ, META_KEYS, TIME_BASE
from dms_assets.rule_view import Problem, View
from resources.findings import MAX_SAMPLES

MAX_WIN_LEN: Final = 10_000


def _listed(bad: Mapping[str, str]) -> Problem | None:
    return Problem("; ".join(bad.values()), len(bad), tuple(sorted(bad)[:MAX_SAMPLES])) if bad else None


def dtype(view: View) -> Problem | None:
    """Every member has its exact dtype."""
    return _listed(view.forms[0])


def shape(view: View) -> Problem | None:
    """Every member has its shape, with one row count for all."""
    return _listed(view.forms[1])


def container(view: View) -> Problem | None:
    """The zip file holds nothing that another reader could trip over."""
    odd = view.facts.oddities
    return Problem("; ".join(odd[:MAX_SAMPLES]), len(odd), odd[:MAX_SAMPLES]) if odd else None


def kind(view: View) -> Problem | None:
    """`kind`, when present, says what the arrays are."""
    declared = view.facts.declared_kind
    return (
        Problem(f"kind says {declared!r:.60}, the arrays are {view.kind}")
        if declared not in (None, view.kind)
        else None
    )


def uid_safe(view: View) -> Problem | None:
    """The uid can name a file and a partition."""
    uid = view.cache.uid
    return None if routes.is_uid(uid) else Problem(f"the uid {uid!r:.80} can't name a route")


def uid(view: View) -> Problem | None:
    """The uid is safe, and the file's stem."""
    stem = view.facts.stem
    if stem is not None and routes.is_uid(view.cache.uid) and view.cache.uid != stem:
        return Problem(f"the uid {view.cache.uid!r:.80} is not the file's stem {stem!r:.80}")
    return uid_safe(view)


def t_order(view: View) -> Problem | None:
    """Row times rise strictly."""
    t = view.t
    bad = np.zeros(len(t), bool)
    bad[1:] = ~(t[1:] > t[:-1])
    bad[:1] = np.isnan(t[:1])
    return view.rows(bad, "the time is not later than that of the row before")


def t_grid_older(view: View) -> Problem | None:
    """Row times are on the grid as the older module compares: |10 t - k| <= 1e-3 + 1e-5 |10 t|."""
    x = view.x
    bad = ~(np.abs(x - np.rint(x)) <= 1e-3 + 1e-5 * np.abs(x))
    return view.rows(bad, "t is not on the 10 Hz grid k/10")


def t_grid(view: View) -> Problem | None:
    """Row times are float32(k/10), 2 units in the last place allowed."""
    exact = (view.k / HZ).astype(np.float32)
    bad = ~(np.abs(view.t.astype(np.float64) - exact) <= 2.0 * np.spacing(np.abs(exact)))
    return view.rows(bad, "the time is not float32(k/10)")


def frame_idx(view: View) -> Problem | None:
    """frame_idx is 2k."""
    bad = view.cache.frame_idx != 2 * view.k
    return view.rows(bad, f"frame_idx is not 2k (time base {TIME_BASE})") if bad.any() else None


def fail_known(view: View) -> Problem | None:
    """fail is a key of the code table."""
    bad = view.cache.fail > max(FAIL_CODES)
    return view.rows(bad, f"fail is above {max(FAIL_CODES)}") if bad.any() else None


def fail_code(view: View) -> Problem | None:
    """fail is a key of the code table, and the file's own table, when present, equals it."""
    text = view.facts.fail_codes
    if text is not None:
        try:
            same = json.loads(text) == {str(code): name for code, name in FAIL_CODES.items()}
        except (ValueError, RecursionError):
            same = False
        if not same:
            return Problem(f"the file's fail_codes {text!r:.120} are not the contract's table")
    return fail_known(view) if "fail" not in view.malformed else None


def valid_iff_fail0(view: View) -> Problem | None:
    """valid is true exactly where fail is 0."""
    bad = view.cache.valid != (view.cache.fail == 0)
    return view.rows(bad, "valid is not the same as fail == 0") if bad.any() else None


def _nan_on_invalid(view: View, name: str) -> Problem | None:
    invalid = ~view.valid
    rows = view.magnitude[invalid]
    nan = rows > 0x7C00
    if np.count_nonzero(nan) == rows.size:
        return None
    bad = invalid.copy()
    bad[invalid] = ~nan.all(axis=1)
    return view.rows(bad, f"{name} holds a number on an invalid row")


def _finite_on_valid(view: View, name: str) -> Problem | None:
    broken = view.magnitude >= 0x7C00
    if np.count_nonzero(broken) == np.count_nonzero(broken[~view.valid]):
        return None
    return view.rows(broken.any(axis=1) & view.valid, f"{name} is not finite on a valid row")


def feat_nan_on_invalid(view: View) -> Problem | None:
    """feat is NaN in every channel of an invalid row."""
    return _nan_on_invalid(view, "feat")


def feat_finite_on_valid(view: View) -> Problem | None:
    """feat is finite in every channel of a valid row."""
    return _finite_on_valid(view, "feat")


def emb_nan_on_invalid(view: View) -> Problem | None:
    """emb is NaN throughout an invalid window's row."""
    return _nan_on_invalid(view, "emb")


def emb_finite_on_valid(view: View) -> Problem | None:
    """emb is finite throughout a valid window's row."""
    return _finite_on_valid(view, "emb")


def channels_unique(view: View) -> Problem | None:
    """Channel names are not empty and each occurs once."""
    names = [str(name) for name in view.cache.channels]
    bad = sorted({name for name, count in Counter(names).items() if count > 1 or not name.strip()})
    return Problem(f"channel names that are empty or repeated: {bad[:5]}", len(bad), tuple(bad[:20])) if bad else None


def spans_form(view: View) -> Problem | None:
    """Spans are finite, not negative, start <= end, sorted and disjoint."""
    table = view.cache.spans.astype(np.float64)
    bad = ~np.isfinite(table).all(axis=1) | ~(table[:, 0] <= table[:, 1]) | (table[:, 0] < 0)
    bad[1:] |= ~(table[1:, 0] > table[:-1, 1])
    count = int(np.count_nonzero(bad))
    if not count:
        return None
    samples = tuple(f"span {i} [{table[i, 0]:g}, {table[i, 1]:g}]" for i in np.flatnonzero(bad)[:MAX_SAMPLES])
    return Problem("a span is not finite, negative, reversed, unsorted or overlaps the one before", count, samples)


def rows_in_spans(view: View) -> Problem | None:
    """Every row lies in a span."""
    return view.rows(~spans.within(view.k, view.runs), "a row lies in no span")


def rows_complete(view: View) -> Problem | None:
    """Every tick inside a span has its row, one whose decoding failed too."""
    inside = view.k[spans.within(view.k, view.runs)]
    if len(inside) and (np.diff(inside) > 0).all() and len(inside) == spans.count_ticks(view.runs):
        return None
    missing = spans.minus(view.runs, spans.runs_of_ticks(inside))
    if not len(missing):
        return None
    samples = tuple(f"k={a}..{b} (t={a / HZ:g}..{b / HZ:g})" for a, b in missing[:MAX_SAMPLES].tolist())
    return Problem("ticks inside the spans have no row", spans.count_ticks(missing), samples)


def box_vs_fail(view: View) -> Problem | None:
    """A NaN box implies a failure, and fail 1 implies a NaN box."""
    nan = np.isnan(view.cache.box).all(axis=1)
    bad = (nan & (view.cache.fail == 0)) | (~nan & (view.cache.fail == 1))
    return view.rows(bad, "a NaN box on a row that did not fail, or a box on a row without one")


def box_geometry(view: View) -> Problem | None:
    """A box is four finite numbers with x0 < x1 and y0 < y1, or four NaN."""
    box = view.cache.box
    good = (box[:, 0] < box[:, 2]) & (box[:, 1] < box[:, 3]) & np.isfinite(box).all(axis=1)
    bad = ~(good | np.isnan(box).all(axis=1))
    return view.rows(bad, "a box is neither four finite numbers with x0 < x1 and y0 < y1 nor four NaN")


def meta_json(view: View) -> Problem | None:
    """meta is a JSON object."""
    if view.facts.meta_problem is not None:
        return Problem(view.facts.meta_problem)
    return None if isinstance(view.cache.meta, dict) else Problem(f"meta is a {type(view.cache.meta).__name__}")


def meta_has_keys(view: View) -> Problem | None:
    """meta has every key of META_KEYS."""
    lacking = [key for key in META_KEYS if key not in view.cache.meta]
    return Problem(f"meta lacks {', '.join(lacking)}", len(lacking), tuple(lacking)) if lacking else None


def _is_wh(value: object) -> bool:
    return value is None or (
        isinstance(value, (list, tuple)) and len(value) == 2 and all(type(side) is int for side in value)
    )


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)


_META_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "baseline": ("a text", lambda value: isinstance(value, str)),
    "model_ids": (
        "a list of texts",
        lambda value: isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value),
    ),
    "weight_sha256": ("an object of texts", _is_texts),
    "lib_versions": ("an object of texts", _is_texts),
    "decode_wh": ("[int, int] or null", _is_wh),
    "native_wh": ("[int, int] or null", _is_wh),
    "code_sha256": ("a text", lambda value: isinstance(value, str)),
    "video_source": ("a text", lambda value: isinstance(value, str)),
}


def meta_keys(view: View) -> Problem | None:
    """meta has every key, each of its type, and its baseline is the folder's."""
    if lacking := meta_has_keys(view):
        return lacking
    meta = view.cache.meta
    wrong = {key: f"{key} is not {what}" for key, (what, right) in _META_TYPES.items() if not right(meta[key])}
    if not wrong and view.facts.baseline is not None and meta["baseline"] != view.facts.baseline:
        wrong["baseline"] = f"its baseline {meta['baseline']!r:.60} is not the folder's, {view.facts.baseline!r}"
    return _listed(wrong)


def time_base(view: View) -> Problem | None:
    """meta.time_base is the contract's."""
    found = view.cache.meta.get("time_base")
    return None if found == TIME_BASE else Problem(f"time_base is {found!r:.60}, not {TIME_BASE!r}")


def win_in_spans(view: View) -> Problem | None:
    """Every frame of a valid window lies within one span."""
    length = max(min(int(view.cache.win_len), 1 << 31), 0)  # an absurd length is another rule's finding
    first, last = view.k - (length - 1), view.k
    runs = view.runs
    if not len(runs):
        return view.rows(view.valid.copy(), "a valid window reaches outside the spans")
    at = np.minimum(np.searchsorted(runs[:, 1], last, "left"), len(runs) - 1)
    bad = view.valid & ~((runs[at, 0] <= first) & (last <= runs[at, 1]))
    return view.rows(bad, f"a valid window of {length} frames reaches outside the spans")


def win_len_positive(view: View) -> Problem | None:
    """win_len is at least 1."""
    return None if view.cache.win_len >= 1 else Problem(f"win_len is {view.cache.win_len}")


def win_len(view: View) -> Problem | None:
    """win_len is from 1 to 10,000."""
    return None if 1 <= view.cache.win_len <= MAX_WIN_LEN else Problem(f"win_len is {view.cache.win_len}")


def extra_members(view: View) -> Problem | None:
    """The file has no member that the contract does not know."""
    extra = view.facts.extra_members
    return (
        Problem(f"members the contract does not know: {', '.join(extra[:5])}", len(extra), extra[:20])
        if extra
        else None
    )
