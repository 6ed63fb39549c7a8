"""A whole baseline's caches: every file's header, findings, statistics, and coverage of what is wanted.

Belongs here: reading what changed and keeping what did not, and coverage of all routes at once. Does not belong here:
one file (`examine`), results on the disk (`sweep_result`), what to do about it (`plan`).

A file whose identity is the one kept is not opened again while the rules are the same. Coverage is computed from kept
spans for all routes in one go, and kept as well while files and wanted spans are the same. One thread reads: more were
measured to be slower, for small files and for large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dms_assets import spans
from dms_assets.cache_store import CacheStore, Listing
from dms_assets.coverage import cover
from dms_assets.examine import FileRecord, examine, rules_digest
from dms_assets.sweep_result import IDENTITY, SweepResult, empty_tables
from resources.files import Identity

Progress = Callable[[int, int], None]

_CHUNK: Final = 64


def sweep(
    store: CacheStore,
    baseline: str,
    wanted: Mapping[str, spans.Spans],
    *,
    wanted_digest: str = "",
    lead_in: int = 0,
    known: SweepResult | None = None,
    progress: Progress | None = None,
) -> SweepResult:
    """Sweep the caches of `baseline`.

    Args:
        store: where they lie.
        baseline: whose.
        wanted: spans (seconds, (S, 2)) by uid; see `wanted.read_wanted`.
        wanted_digest: names the content of `wanted`, so that kept coverage is known to be of it; "": never kept.
        lead_in: ticks before a wanted one that count as wanted too (windows).
        known: the result before, of which everything unchanged is kept.
        progress: called with files done and files to read, now and then.

    Raises:
        OSError: the root is missing or the folder can't be read; of single files, never.
        ValueError: a wanted span is not finite.
    """
    listing = store.listing(baseline)
    rules, asked = rules_digest(), f"{wanted_digest}+{lead_in}" if wanted_digest else ""
    uids = list(listing.files)
    now = _identities(listing)
    if known is not None and (known.baseline, known.rules) == (baseline, rules):
        fresh = _changed(known.files, uids, now)
    else:
        known, fresh = None, uids
    if known is not None and not fresh and len(known.files) == len(uids) and asked and known.wanted == asked:
        return known.unchanged(listing.strange)
    tables = _merged_tables(known, set(fresh), set(uids), _examined(store, baseline, listing, fresh, progress))
    held = tables["spans"]
    beyond = held["what"] == "beyond"
    coverage, missing = cover(wanted, tables["files"]["uid"], held[~beyond], held[beyond], lead_in)
    tables.update(coverage=coverage, missing=missing)
    return SweepResult(baseline, rules, asked, tables, listing.strange, len(fresh))


def _identities(listing: Listing) -> NDArray[np.uint64]:
    rows = [(f.device, f.inode, f.size, f.mtime_ns, f.ctime_ns) for f in listing.files.values()]
    return np.array(rows, np.uint64).reshape(-1, len(IDENTITY))


def _changed(kept: pd.DataFrame, uids: list[str], now: NDArray[np.uint64]) -> list[str]:
    """The uids whose file is not the one that was kept, or that could not be read then."""
    names = kept["uid"].to_numpy(object)
    if len(names) == len(uids) and all(a == b for a, b in zip(names, uids, strict=True)):
        place = np.arange(len(uids))
    else:
        place = pd.Index(names).get_indexer(pd.Index(uids, dtype=object))
    table = kept[list(IDENTITY)].to_numpy(np.uint64)
    if not len(table):
        return uids
    same = (place >= 0) & (table[place] == now).all(axis=1)
    same &= (kept["state"] != "inaccessible").to_numpy()[place]
    return [uid for uid, kept_one in zip(uids, same, strict=True) if not kept_one]


def _examined(
    store: CacheStore, baseline: str, listing: Listing, fresh: list[str], progress: Progress | None
) -> Iterator[FileRecord]:
    for number, uid in enumerate(fresh, 1):
        record = examine(store, baseline, uid, listing.files[uid])
        if progress is not None and (number % _CHUNK == 0 or number == len(fresh)):
            progress(number, len(fresh))
        if record is not None:
            yield record


def _merged_tables(
    known: SweepResult | None, fresh: set[str], present: set[str], records: Iterator[FileRecord]
) -> dict[str, pd.DataFrame]:
    new: dict[str, list[dict[str, Any]]] = {name: [] for name in ("files", "spans", "findings", "channels")}
    for record in records:
        identity: Identity = record.identity
        columns = {name: getattr(identity, name) for name in IDENTITY}
        new["files"].append({"uid": record.uid, **columns, **record.row})
        for what, runs in (("stored", record.stored), ("beyond", record.beyond)):
            new["spans"].extend({"uid": record.uid, "what": what, "first": a, "last": b} for a, b in runs.tolist())
        new["findings"].extend(
            {
                "uid": record.uid,
                "code": finding.code,
                "severity": str(finding.severity),
                "place": finding.where,
                "text": finding.text,
                "how_to_fix": finding.how_to_fix,
                "count": finding.count,
                "samples": list(finding.samples),
            }
            for finding in record.findings
        )
        if (numbers := record.statistics) is not None:
            new["channels"].extend(
                {
                    "uid": record.uid,
                    "channel": name,
                    "count": int(numbers.count[i]),
                    "mean": numbers.mean[i],
                    "std": numbers.std[i],
                    "quantiles": numbers.quantiles[i].astype(np.float32),
                }
                for i, name in enumerate(record.channels)
            )
    tables = {}
    for name, empty in empty_tables().items():
        if name not in new:
            continue
        parts = [empty] if known is None else [_kept(known.table(name), fresh, present)]
        if new[name]:
            parts.append(pd.DataFrame(new[name], columns=empty.columns).astype(dict(empty.dtypes)))
        filled = [part for part in parts if len(part)] or parts[:1]
        table = filled[0] if len(filled) == 1 else pd.concat(filled, ignore_index=True)
        tables[name] = table.sort_values("uid", kind="stable", ignore_index=True)
    return tables


def _kept(table: pd.DataFrame, fresh: set[str], present: set[str]) -> pd.DataFrame:
    uids = table["uid"]
    return table[uids.isin(present - fresh)]
