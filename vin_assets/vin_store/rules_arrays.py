"""Integrity rules about shards, arrays, chunks, labels and records: pure functions from facts to findings.

Belongs here: judging. Does not belong here: looking (`facts`), rules about manifest and index (`rules_store`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from resources.findings import Finding, Severity
from vin_assets.vin_store.facts import BlockFacts, StoreFacts
from vin_assets.vin_store.format import CANDIDATE_COUNT, COMPONENTS, LENGTHS, RRI
from vin_assets.vin_store.rules_store import REWRITE, finding, listed
from vin_assets.vin_store.store import remedy_for

_RESTORE = "Restore the shard from a copy, or write the store again."
_REQUIRED_SINCE = {"vin.t_world_snippet": 8}
_LABELS = (RRI, *(f"oracle.{name}" for name in COMPONENTS))


def _at(block: BlockFacts, rows: Iterable[int] = ()) -> str:
    rows = sorted(rows)
    return f"{block.shard.shard_id} {block.block.name}" + (f" rows {listed(rows)}" if rows else "")


def shard_directory_missing(facts: StoreFacts) -> Iterator[Finding]:
    """A shard's directory is not there."""
    for shard_id, fault in facts.shard_faults.items():
        if fault.code == "shard_directory_missing":
            where = f"{shard_id}: {fault.path}"
            how_to_fix = remedy_for(fault.reason, _RESTORE)
            yield finding("shard_directory_missing", where, fault.reason, how_to_fix, facts.keys(shard_id))


def _faults(facts: StoreFacts, code: str) -> Iterator[Finding]:
    for block in facts.blocks:
        if block.fault is not None and block.fault.code == code:
            where = f"{_at(block)}: {block.fault.path}"
            how_to_fix = remedy_for(block.fault.reason, _RESTORE)
            yield finding(code, where, block.fault.reason, how_to_fix, facts.keys(block.shard.shard_id), count=1)


def array_missing(facts: StoreFacts) -> Iterator[Finding]:
    """An array that the manifest declares is not there."""
    return _faults(facts, "array_missing")


def array_unreadable(facts: StoreFacts) -> Iterator[Finding]:
    """An array's `zarr.json` is broken, or of a kind that is not read."""
    return _faults(facts, "array_unreadable")


def payload_missing(facts: StoreFacts) -> Iterator[Finding]:
    """The payload file of a record block is not there."""
    return _faults(facts, "payload_missing")


def offsets_missing(facts: StoreFacts) -> Iterator[Finding]:
    """The offsets file of a record block is not there."""
    return _faults(facts, "offsets_missing")


def offsets_unreadable(facts: StoreFacts) -> Iterator[Finding]:
    """The offsets file of a record block is no vector of rows + 1 integers."""
    yield from _faults(facts, "offsets_unreadable")
    for block in facts.blocks:
        if block.offsets is not None and block.offsets.size != block.shard.num_rows + 1:
            text = f"{block.offsets.size} offsets, {block.shard.num_rows + 1} are expected for the shard's rows"
            keys = facts.keys(block.shard.shard_id)
            yield finding("offsets_unreadable", _at(block), text, _RESTORE, keys, count=1)


def _row_of_offset(block: BlockFacts, numbers: Iterable[int]) -> list[int]:
    return [row for row in dict.fromkeys(int(number) for number in numbers) if row < block.shard.num_rows]


def offsets_not_ascending(facts: StoreFacts) -> Iterator[Finding]:
    """The offsets of a record block don't begin at 0 or go back."""
    for block in facts.blocks:
        if block.offsets is None or not block.offsets.size:
            continue
        bad = _row_of_offset(block, np.flatnonzero(np.diff(block.offsets) < 0))
        if block.offsets[0] != 0:
            bad = sorted({0, *bad})
        if bad:
            text = f"offsets begin at {block.offsets[0]} and go back at {len(bad)} rows"
            if block.offsets[0] == 0:
                text = f"offsets go back at rows {listed(bad)}"
            keys = facts.keys(block.shard.shard_id, bad)
            yield finding("offsets_not_ascending", _at(block, bad), text, _RESTORE, keys, count=len(bad))


def offsets_beyond_payload(facts: StoreFacts) -> Iterator[Finding]:
    """Records of a block end beyond its payload file."""
    for block in facts.blocks:
        if block.offsets is None:
            continue
        bad = _row_of_offset(block, np.flatnonzero(block.offsets[1:] > block.payload_bytes))
        if bad:
            text = f"records end at byte {block.offsets[1:].max()}, the payload has {block.payload_bytes}"
            keys = facts.keys(block.shard.shard_id, bad)
            yield finding("offsets_beyond_payload", _at(block, bad), text, _RESTORE, keys, count=len(bad))


def block_missing(facts: StoreFacts) -> Iterator[Finding]:
    """A shard lacks a block that the store's version requires."""
    for shard in facts.manifest.shards if facts.manifest else ():
        for name, version in _REQUIRED_SINCE.items():
            if facts.manifest and facts.manifest.version >= version and name not in shard.blocks:
                text = f"version {facts.manifest.version} requires the block {name}"
                where = f"manifest.json: {shard.shard_id}"
                yield finding("block_missing", where, text, REWRITE, facts.keys(shard.shard_id), count=1)


def shape_mismatch(facts: StoreFacts) -> Iterator[Finding]:
    """The manifest declares another shape than the array has, or the array has not one row per row of the shard."""
    for block in facts.blocks:
        if block.meta is None:
            continue
        declared, own, rows = block.block.shape, block.meta.shape, block.shard.num_rows
        if declared is not None and declared != own:
            text = f"the manifest declares shape {declared}, the array has {own}"
        elif own[0] != rows:
            text = f"the shard has {rows} rows, the array's shape is {own}"
        else:
            continue
        keys = facts.keys(block.shard.shard_id)
        yield finding("shape_mismatch", f"{_at(block)}: {block.meta.path}/zarr.json", text, REWRITE, keys, count=1)


def dtype_mismatch(facts: StoreFacts) -> Iterator[Finding]:
    """The manifest declares another data type than the array has."""
    for block in facts.blocks:
        if block.meta is not None and block.block.dtype not in (None, block.meta.dtype.name):
            text = f"the manifest declares {block.block.dtype}, the array holds {block.meta.dtype.name}"
            where = f"{_at(block)}: {block.meta.path}/zarr.json"
            yield finding("dtype_mismatch", where, text, REWRITE, facts.keys(block.shard.shard_id), count=1)


def candidate_count_out_of_range(facts: StoreFacts) -> Iterator[Finding]:
    """A stored candidate count is negative or beyond the capacity C."""
    for block in facts.blocks:
        if block.block.name == CANDIDATE_COUNT and facts.manifest:
            limit = facts.manifest.oracle.max_candidates
            counts = facts.candidate_counts(block.shard.shard_id)
            bad = {row: count for row, count in counts.items() if not 0 <= count <= limit}
            if bad:
                text = f"candidate counts {listed(bad.values())}; 0 to {limit} are possible"
                keys = facts.keys(block.shard.shard_id, bad)
                yield finding("candidate_count_out_of_range", _at(block, bad), text, REWRITE, keys, count=len(bad))


def non_finite_labels(facts: StoreFacts) -> Iterator[Finding]:
    """Labels of valid candidates are NaN or infinite (WARN)."""
    for block in facts.blocks:
        if block.block.name not in _LABELS:
            continue
        counts = facts.candidate_counts(block.shard.shard_id)
        bad: dict[int, int] = {}
        for row, values in block.values.items():
            if row not in block.absent and row in counts and values.ndim == 1:
                number = int((~np.isfinite(values[: max(0, counts[row])].astype(np.float64))).sum())
                if number:
                    bad[row] = number
        if bad:
            text = f"{sum(bad.values())} labels of valid candidates are NaN or infinite; they count for nothing"
            yield finding(
                "non_finite_labels",
                _at(block, bad),
                text,
                "Label these samples again, or leave them out of training.",
                facts.keys(block.shard.shard_id, bad),
                severity=Severity.WARN,
                count=len(bad),
            )


def negative_lengths(facts: StoreFacts) -> Iterator[Finding]:
    """A number of valid points is negative."""
    for block in facts.blocks:
        if block.block.name == LENGTHS:
            bad = [row for row, values in block.values.items() if (values < 0).any()]
            if bad:
                text = f"numbers of valid points are negative in {len(bad)} rows"
                keys = facts.keys(block.shard.shard_id, bad)
                yield finding("negative_lengths", _at(block, bad), text, REWRITE, keys, count=len(bad))


# Blocks whose absent chunks are doubtful. Any block that isn't named in `_absent_severity` may be zero everywhere.
_DOUBTFUL = ("vin.points_world", *(f"oracle.{name}" for name in COMPONENTS))


def _absent_severity(facts: StoreFacts, block: BlockFacts) -> dict[int, Severity]:
    """How bad each absent row of a block is; legal ones are left out."""
    name = block.block.name
    if name == CANDIDATE_COUNT:
        return dict.fromkeys(block.absent, Severity.ERROR)
    if name in _DOUBTFUL:
        return dict.fromkeys(block.absent, Severity.WARN)
    if name != RRI or block.meta is None or not block.meta.row_shape:
        return {}
    counts, width = facts.candidate_counts(block.shard.shard_id), block.meta.row_shape[0]
    return {row: Severity.ERROR for row in block.absent if row in counts and counts[row] < width}


def chunk_absent(facts: StoreFacts) -> Iterator[Finding]:
    """A chunk is absent where it can't legally be: what reads as zeros there is lost data."""
    for block in facts.blocks:
        by_severity: dict[Severity, list[int]] = {}
        for row, severity in _absent_severity(facts, block).items():
            by_severity.setdefault(severity, []).append(row)
        for severity, rows in by_severity.items():
            what = "lost" if severity is Severity.ERROR else "lost, or the samples never had this block"
            yield finding(
                "chunk_absent",
                f"{_at(block, rows)}: {block.absent[rows[0]]}",
                f"{len(rows)} rows have no chunk file; they read as zeros, which is {what}",
                _RESTORE,
                facts.keys(block.shard.shard_id, rows),
                severity=severity,
                count=len(rows),
            )


def chunk_undecodable(facts: StoreFacts) -> Iterator[Finding]:
    """A chunk file is there and can't be decoded."""
    for block in facts.blocks:
        if block.broken:
            path, reason = next(iter(block.broken.values()))
            where = f"{_at(block, block.broken)}: {path}"
            keys = facts.keys(block.shard.shard_id, block.broken)
            how_to_fix = remedy_for(reason, _RESTORE)
            yield finding("chunk_undecodable", where, reason, how_to_fix, keys, count=len(block.broken))
