"""Coverage of many routes at once, and the header sweep that needs no more than headers for it.

Belongs here: wanted against stored ticks of a whole baseline. Does not belong here: one route's plan (`plan`), files
read wholly (`sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

from dms_assets import spans, validation
from dms_assets.cache_file import Header
from dms_assets.cache_store import CacheStore
from dms_assets.contract import HZ, CacheInvalidError, CacheUnreadableError
from dms_assets.unmet import KEY, beyond_now
from resources.findings import Finding, Severity

Progress = Callable[[int, int], None]


def headers(
    store: CacheStore, baseline: str, progress: Progress | None = None
) -> tuple[dict[str, Header], list[Finding]]:
    """The header of every cache of a baseline by uid, and why the others have none; one bad file costs only itself.

    Raises:
        OSError: the root is missing or the folder can't be read.
    """
    found: dict[str, Header] = {}
    listing = store.listing(baseline)
    findings = list(listing.strange)
    with store.root.pinned() as root:
        held = CacheStore(root, store.max_bytes)
        for number, uid in enumerate(listing.files, 1):
            try:
                found[uid] = held.header(baseline, uid)
            except FileNotFoundError:
                pass  # vanished since it was listed
            except CacheUnreadableError as error:
                findings.append(validation.unreadable(store.path(baseline, uid), error))
            except CacheInvalidError as error:
                fix = "see `dms-cache check` for everything that is wrong with it"
                findings.append(Finding(error.code, Severity.ERROR, store.path(baseline, uid), str(error), fix))
            except OSError as error:
                findings.append(validation.inaccessible(store.path(baseline, uid), error))
            if progress is not None and (number % 64 == 0 or number == len(listing.files)):
                progress(number, len(listing.files))
    return found, findings


def header_runs(found: Mapping[str, Header]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stored runs, and runs beyond the video, of every header, as `cover` takes them."""
    stored = {uid: spans.runs_of(header.spans) for uid, header in found.items()}
    beyond = {uid: beyond_now(header.meta, None) for uid, header in found.items() if KEY in header.meta}
    return _table(stored), _table(beyond)


def _table(runs: Mapping[str, spans.Ticks]) -> pd.DataFrame:
    rows = [(uid, first, last) for uid, each in runs.items() for first, last in each.tolist()]
    return pd.DataFrame(rows, columns=["uid", "first", "last"])


def cover(
    wanted: Mapping[str, spans.Spans],
    files: Iterable[str],
    stored: pd.DataFrame,
    beyond: pd.DataFrame,
    lead_in: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ticks wanted, covered, missing and beyond the video of each route, and the missing spans.

    Args:
        wanted: spans (seconds, (S, 2)) by uid.
        files: the routes that have a file, whether or not it could be read.
        stored: runs of stored ticks, columns uid, first, last.
        beyond: likewise, runs that are stored as lying past the video's end.
        lead_in: ticks before a wanted one that are wanted too (windows).

    Returns:
        A table `uid, stored, wanted_ticks, covered_ticks, missing_ticks, beyond_ticks` over every route that is wanted
        or has a file, and a table `uid, t_start, t_end` of the gaps; both by uid.

    Raises:
        ValueError: a wanted span is not finite.
    """
    present = set(files)
    uids = sorted({*present, *wanted})
    number = {uid: i for i, uid in enumerate(uids)}
    owners = np.repeat([number[uid] for uid in wanted], [len(table) for table in wanted.values()]).astype(np.int64)
    asked = np.concatenate([np.zeros((0, 2), np.float32), *wanted.values()])
    want = spans.lay_out(spans.runs_each(asked, lead_in), owners)
    have, past = _line(stored, number), _line(beyond, number)
    lacking = spans.minus(want, have)
    met = spans.minus(spans.minus(want, lacking), past)
    counts = {}
    for name, line in (("wanted_ticks", want), ("covered_ticks", met), ("missing_ticks", lacking)):
        part, owner = spans.take_up(line)
        counts[name] = np.bincount(owner, part[:, 1] - part[:, 0] + 1, len(uids)).astype(np.int64)
    counts["beyond_ticks"] = counts["wanted_ticks"] - counts["covered_ticks"] - counts["missing_ticks"]
    gaps, owner = spans.take_up(lacking)
    names = np.array(uids, object)
    has_file = np.array([uid in present for uid in uids], bool)
    coverage = pd.DataFrame({"uid": names, "stored": has_file, **counts})
    seconds = (gaps / HZ).astype(np.float32)
    return coverage, pd.DataFrame({"uid": names[owner], "t_start": seconds[:, 0], "t_end": seconds[:, 1]})


def _line(table: pd.DataFrame, number: Mapping[str, int]) -> spans.Ticks:
    owner = np.array([number[uid] for uid in table["uid"]], np.int64)
    return spans.lay_out(table[["first", "last"]].to_numpy(np.int64).reshape(-1, 2), owner)
