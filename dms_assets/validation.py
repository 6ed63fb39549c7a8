"""The registry of the contract's rules, and what it says of a cache.

Belongs here: which rule holds in which tier, its severity and remedy. Does not belong here: the rules (`rules`).

Two tiers. `EXACT` holds the invariants of the contract's tables: `validate()` and `load()` raise for the first that is
broken. `RULES` holds one rule per code with everything that the words of the contract imply; `findings` reports all of
them at once and blocks nothing. Where both tiers know a code, the rule in `RULES` is the stricter one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dms_assets import rules
from dms_assets.contract import FRAMES, WINDOWS, CacheInvalidError
from dms_assets.rule_view import Facts, Problem, View
from resources.findings import Finding, Severity

# The codes of the check `rows_fill_spans`; every other one belongs to `cache_valid`.
ROWS_CODES: Final = frozenset({"rows_complete", "rows_in_spans"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One invariant: its code, the kinds it concerns, the members it looks at, and the remedy."""

    code: str
    check: Callable[[View], Problem | None]
    how_to_fix: str
    kinds: tuple[str, ...] = (FRAMES, WINDOWS)
    needs: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR


_F, _W = (FRAMES,), (WINDOWS,)
_REWRITE = "write the file again with the contract's cache_schema module"
_WRITER = "correct the program that wrote the file and extract the route again"
_DTYPE = Rule("dtype", rules.dtype, "convert the named members and save again")
_SHAPE = Rule("shape", rules.shape, _REWRITE)
_T_ORDER = Rule("t_order", rules.t_order, "sort the rows by time and drop repeated ones", _F, ("t",))
_WIN_ORDER = Rule("win_order", rules.t_order, "sort the windows by end time and drop repeated ones", _W, ("win_t_end",))
_FRAME_IDX = Rule(
    "frame_idx",
    rules.frame_idx,
    "number frames by time (frame 2k at t = k/10), never by the container's rate",
    _F,
    ("t", "frame_idx"),
)
_VALID = Rule("valid_iff_fail0", rules.valid_iff_fail0, "set valid to fail == 0", _F, ("t", "valid", "fail"))
_FEAT = ("t", "feat", "valid")
_EMB = ("win_t_end", "emb", "win_valid")
_FEAT_NAN = Rule(
    "feat_nan_on_invalid", rules.feat_nan_on_invalid, "write NaN in every channel of failed rows", _F, _FEAT
)
_FEAT_FINITE = Rule("feat_finite_on_valid", rules.feat_finite_on_valid, "give such rows fail 4 and NaN", _F, _FEAT)
_EMB_NAN = Rule("emb_nan_on_invalid", rules.emb_nan_on_invalid, "write NaN in every invalid window's row", _W, _EMB)
_EMB_FINITE = Rule(
    "emb_finite_on_valid", rules.emb_finite_on_valid, "mark such windows invalid, with NaN rows", _W, _EMB
)
_META_JSON = Rule("meta_json", rules.meta_json, "make meta with cache_schema.make_meta")
_TIME_BASE = Rule("time_base", rules.time_base, "extract again on the contract's time base", needs=("meta",))
_UID_FIX = "rename the file and its uid to <dongle>_<id>, or to letters, digits, '.', '_' and '-'"

EXACT: Final[tuple[Rule, ...]] = (
    _DTYPE,
    _SHAPE,
    Rule("uid", rules.uid_safe, _UID_FIX, needs=("uid",)),
    _T_ORDER,
    Rule("t_grid", rules.t_grid_older, _WRITER, _F, ("t",)),
    _FRAME_IDX,
    Rule("fail_code", rules.fail_known, _WRITER, _F, ("t", "fail")),
    _VALID,
    _FEAT_NAN,
    _FEAT_FINITE,
    _WIN_ORDER,
    Rule("win_len", rules.win_len_positive, _WRITER, _W, ("win_len",)),
    _EMB_NAN,
    _EMB_FINITE,
    _META_JSON,
    Rule("meta_keys", rules.meta_has_keys, "make meta with cache_schema.make_meta", needs=("meta",)),
    _TIME_BASE,
)

RULES: Final[tuple[Rule, ...]] = (
    Rule("container", rules.container, _REWRITE),
    _DTYPE,
    _SHAPE,
    Rule("kind", rules.kind, _REWRITE),
    Rule("uid", rules.uid, _UID_FIX, needs=("uid",)),
    _T_ORDER,
    Rule("t_grid", rules.t_grid, "compute t as float32(k / 10)", _F, ("t",)),
    _FRAME_IDX,
    Rule("fail_code", rules.fail_code, _WRITER, _F, ("t",)),
    _VALID,
    _FEAT_NAN,
    _FEAT_FINITE,
    Rule("channels_unique", rules.channels_unique, "give every channel its own name", _F, ("channels",)),
    Rule("spans_form", rules.spans_form, "write spans with cache_schema.merge_spans", needs=("spans",)),
    Rule("rows_in_spans", rules.rows_in_spans, "add the rows' spans, or drop the rows", _F, ("t", "spans")),
    Rule(
        "rows_complete",
        rules.rows_complete,
        "extract the missing ticks again, or shorten the spans",
        _F,
        ("t", "spans"),
    ),
    Rule("box_vs_fail", rules.box_vs_fail, "a row without a box has NaN and fail 1 or 2", _F, ("t", "box", "fail")),
    Rule("box_geometry", rules.box_geometry, "write x0 < x1 and y0 < y1, or four NaN", _F, ("t", "box")),
    _META_JSON,
    Rule("meta_keys", rules.meta_keys, "make meta with cache_schema.make_meta", needs=("meta",)),
    _TIME_BASE,
    _WIN_ORDER,
    Rule("win_grid", rules.t_grid, "compute win_t_end as float32(k / 10)", _W, ("win_t_end",)),
    Rule("win_len", rules.win_len, _WRITER, _W, ("win_len",)),
    Rule(
        "win_in_spans",
        rules.win_in_spans,
        "decode the lead-in of every window",
        _W,
        ("win_t_end", "win_valid", "win_len", "spans"),
    ),
    _EMB_NAN,
    _EMB_FINITE,
    Rule(
        "extra_members", rules.extra_members, "drop them, or keep them in a file of their own", severity=Severity.WARN
    ),
)


def findings(cache: Any, facts: Facts | None = None) -> list[Finding]:
    """Everything that is wrong with a cache, in the order of `RULES`; a rule whose members are malformed is left out.

    Args:
        cache: a RouteCache or WindowCache, in whatever state.
        facts: what its file says beyond the arrays; without it a cache in memory is judged.
    """
    view = View(cache, facts or Facts())
    found = []
    for rule in RULES:
        if view.kind not in rule.kinds or view.malformed.intersection(rule.needs):
            continue
        if problem := rule.check(view):
            place = view.facts.where or str(cache.uid)[:200]
            found.append(
                Finding(rule.code, rule.severity, place, problem.text, rule.how_to_fix, problem.count, problem.samples)
            )
    return found


def validate(cache: Any, facts: Facts | None = None) -> None:
    """Hold a cache to the invariants of the contract's tables.

    Raises:
        CacheInvalidError: for the first broken one, with its code, the first rows and how many.
    """
    view = View(cache, facts or Facts())
    for rule in EXACT:
        if view.kind in rule.kinds and (problem := rule.check(view)):
            rows = f" ({problem.count} in all: {', '.join(problem.samples[:5])})" if problem.samples else ""
            place = f"{view.facts.where}: " if view.facts.where else ""
            raise CacheInvalidError(rule.code, f"{place}{problem.text}{rows}")


def unreadable(where: str, error: Exception) -> Finding:
    """The finding of a file that can't be read as a cache at all."""
    return Finding(
        "container", Severity.ERROR, where, str(error), "copy the file again from where it was made, or remove it"
    )


def inaccessible(where: str, error: OSError) -> Finding:
    """The finding of a file that can't be opened or read: that says nothing of its content."""
    text = f"can't be read: {error.strerror or error}"
    fix = "give the pipeline's user access; nothing is known of its content"
    return Finding("inaccessible", Severity.ERROR, where, text, fix)
