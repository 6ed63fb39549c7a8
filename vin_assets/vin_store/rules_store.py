"""Integrity rules about manifest, index, splits and the store as a whole: pure functions from facts to findings.

Belongs here: judging. Does not belong here: looking (`facts`), rules about arrays and records (`rules_arrays`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from resources.findings import MAX_SAMPLES, Finding, Severity
from vin_assets.vin_store.facts import Fault, StoreFacts
from vin_assets.vin_store.format import BACKBONE_BLOCKS, FREE_INPUT_PROVENANCES, IndexRow
from vin_assets.vin_store.store import (
    IndexUnreadableError,
    ManifestUnreadableError,
    UnsupportedStoreVersionError,
    remedy_for,
)

REWRITE = "Write the store again, or restore it from a copy."


def finding(
    code: str,
    where: str,
    text: str,
    how_to_fix: str = REWRITE,
    keys: Sequence[str] = (),
    *,
    count: int | None = None,
    severity: Severity = Severity.ERROR,
) -> Finding:
    """A finding that touches the samples `keys`; `count` when the offending things are not the samples."""
    number = max(1, len(keys)) if count is None else count
    return Finding(code, severity, where, text, how_to_fix, number, tuple(keys[:MAX_SAMPLES]))


def listed(numbers: Iterable[object], limit: int = 5) -> str:
    """The first few of `numbers` as text."""
    found = [str(number) for number in numbers]
    return ", ".join(found[:limit]) + (f" and {len(found) - limit} more" if len(found) > limit else "")


def manifest_unreadable(facts: StoreFacts) -> Iterator[Finding]:
    """The manifest, or the store's directory, is missing or broken."""
    if isinstance(facts.problem, ManifestUnreadableError):
        yield finding("manifest_unreadable", facts.problem.path, facts.problem.reason, facts.problem.remedy)


def index_unreadable(facts: StoreFacts) -> Iterator[Finding]:
    """The index is missing, or none of its lines can be used."""
    if isinstance(facts.problem, IndexUnreadableError):
        yield finding("index_unreadable", facts.problem.path, facts.problem.reason, facts.problem.remedy)


def unsupported_version(facts: StoreFacts) -> Iterator[Finding]:
    """The store is of a version that is not read."""
    if isinstance(facts.problem, UnsupportedStoreVersionError):
        names = listed(facts.problem.supported)
        yield finding(
            "unsupported_version",
            facts.problem.path,
            f"version {facts.problem.found} is not supported; supported are {names}",
            "Write the store again in a supported version, or update this program.",
        )


def index_line_unreadable(facts: StoreFacts) -> Iterator[Finding]:
    """Single lines of the index can't be used; the others are."""
    for line in facts.bad_lines:
        where = f"{facts.config.sample_index_filename}:{line.number}"
        yield finding("index_line_unreadable", where, line.reason, "Repair or remove the line.")


def sample_count_differs(facts: StoreFacts) -> Iterator[Finding]:
    """The manifest counts other samples than the index has lines (WARN)."""
    counted = facts.manifest.stats.get("num_samples") if facts.manifest else None
    found = len(facts.rows) + len(facts.bad_lines)
    if isinstance(counted, int) and counted != found:
        yield finding(
            "sample_count_differs",
            facts.config.sample_index_filename,
            f"the index has {found} lines, manifest.json counts {counted} samples",
            "The index or the manifest is of another write: restore both from one copy.",
            severity=Severity.WARN,
            count=abs(counted - found),
        )


def duplicate_shard_id(facts: StoreFacts) -> Iterator[Finding]:
    """Two shards of the manifest have one id; the first is read."""
    counts = Counter(shard.shard_id for shard in facts.manifest.shards) if facts.manifest else {}
    for shard_id, number in counts.items():
        if number > 1:
            text = f"shard id {shard_id!r} stands {number} times; only the first shard is read"
            keys = facts.keys(shard_id)
            yield finding("duplicate_shard_id", "manifest.json: shards", text, keys=keys, count=number - 1)


def _repeated(facts: StoreFacts, code: str, values: list[object], what: str) -> Iterator[Finding]:
    counts = Counter(values)
    repeated = [
        (line, row) for line, row, value in zip(facts.lines, facts.rows, values, strict=True) if counts[value] > 1
    ]
    if repeated:
        distinct = dict.fromkeys(value for value in values if counts[value] > 1)
        yield finding(
            code,
            f"{facts.config.sample_index_filename}: lines {listed(line for line, _ in repeated)}",
            f"{what} {listed(distinct)} stands more than once",
            "Remove the repeated lines from the index.",
            [row.key for _, row in repeated],
        )


def duplicate_sample_index(facts: StoreFacts) -> Iterator[Finding]:
    """Two lines of the index have one `sample_index`."""
    yield from _repeated(facts, "duplicate_sample_index", [row.sample_index for row in facts.rows], "sample_index")


def duplicate_sample_key(facts: StoreFacts) -> Iterator[Finding]:
    """Two lines of the index have one `sample_key` (in compact form)."""
    yield from _repeated(facts, "duplicate_sample_key", [row.key for row in facts.rows], "sample_key")


def _at_lines(facts: StoreFacts, rows: list[tuple[int, IndexRow]]) -> str:
    return f"{facts.config.sample_index_filename}: lines {listed(line for line, _ in rows)}"


def unknown_shard(facts: StoreFacts) -> Iterator[Finding]:
    """Lines of the index name a shard that the manifest doesn't have."""
    by_shard: dict[str, list[tuple[int, IndexRow]]] = {}
    for line, row in zip(facts.lines, facts.rows, strict=True):
        if row.shard_id not in facts.shards:
            by_shard.setdefault(row.shard_id, []).append((line, row))
    for shard_id, rows in by_shard.items():
        keys = [row.key for _, row in rows]
        yield finding("unknown_shard", _at_lines(facts, rows), f"manifest.json has no shard {shard_id!r}", keys=keys)


def row_out_of_range(facts: StoreFacts) -> Iterator[Finding]:
    """Lines of the index name a negative row, or one beyond their shard."""
    by_shard: dict[str, list[tuple[int, IndexRow]]] = {}
    for line, row in zip(facts.lines, facts.rows, strict=True):
        shard = facts.shards.get(row.shard_id)
        if shard is not None and not 0 <= row.row < shard.num_rows:
            by_shard.setdefault(row.shard_id, []).append((line, row))
    for shard_id, rows in by_shard.items():
        yield finding(
            "row_out_of_range",
            _at_lines(facts, rows),
            f"rows {listed(row.row for _, row in rows)} of {shard_id}, which has {facts.shards[shard_id].num_rows}",
            keys=[row.key for _, row in rows],
        )


def splits_unreadable(facts: StoreFacts) -> Iterator[Finding]:
    """A split file is missing or no vector of integers."""
    for name, found in facts.splits.items():
        if isinstance(found, Fault) and found.code == "splits_unreadable":
            keys = [row.key for row in facts.rows if name in ("", "all", row.split)]
            how_to_fix = remedy_for(found.reason, REWRITE)
            yield finding("splits_unreadable", found.path, found.reason, how_to_fix, keys, count=1)


def splits_disagree(facts: StoreFacts) -> Iterator[Finding]:
    """A split file holds other sample indices than the index says, or not in ascending order."""
    for name, found in facts.splits.items():
        if isinstance(found, Fault):
            continue
        wanted = {row.sample_index: row.key for row in facts.rows if name in ("all", row.split)}
        held = set(found.tolist())
        missing, extra = sorted(wanted.keys() - held), sorted(held - wanted.keys())
        parts = []
        if missing:
            parts.append(f"{len(missing)} sample indices of the index are missing ({listed(missing)})")
        if extra:
            parts.append(f"{len(extra)} are not of this split in the index ({listed(extra)})")
        if not parts and (np.diff(found) <= 0).any():
            parts.append("the sample indices are not ascending or stand twice")
        if parts:
            by_index = {row.sample_index: row.key for row in facts.rows}
            keys = [by_index[number] for number in [*missing, *extra] if number in by_index]
            where = f"{facts.config.splits_dirname}/{name}.npy"
            yield finding("splits_disagree", where, "; ".join(parts), keys=keys, count=len(missing) + len(extra) or 1)


def path_escape(facts: StoreFacts) -> Iterator[Finding]:
    """A path of the manifest, or a link, leads out of the store; it was not opened."""
    fix = "Write paths relative to the store into the manifest, and replace links by what they lead to."
    for shard_id, fault in facts.shard_faults.items():
        if fault.code == "path_escape":
            yield finding("path_escape", f"{shard_id}: {fault.path}", fault.reason, fix, facts.keys(shard_id))
    for block in facts.blocks:
        shard_id = block.shard.shard_id
        place = f"{shard_id} {block.block.name}"
        if block.fault is not None and block.fault.code == "path_escape":
            yield finding("path_escape", f"{place}: {block.fault.path}", block.fault.reason, fix, facts.keys(shard_id))
        if block.refused:
            path, reason = next(iter(block.refused.values()))
            where = f"{place} rows {listed(block.refused)}: {path}"
            yield finding("path_escape", where, reason, fix, facts.keys(shard_id, block.refused))
    for found in facts.splits.values():
        if isinstance(found, Fault) and found.code == "path_escape":
            yield finding("path_escape", found.path, found.reason, fix)


def backbone_incomplete(facts: StoreFacts) -> Iterator[Finding]:
    """A version-11 store with a backbone lacks one of the eight backbone blocks in some rows."""
    if facts.manifest is None or facts.manifest.version < 11 or not facts.manifest.materialized_blocks.backbone:
        return
    for shard in facts.manifest.shards:
        lacking = [name for name in BACKBONE_BLOCKS if name not in shard.blocks]
        if lacking:
            yield finding(
                "backbone_incomplete",
                f"manifest.json: {shard.shard_id}",
                f"version 11 needs all eight backbone blocks; {listed(lacking, 8)} not declared",
                keys=facts.keys(shard.shard_id),
                count=len(lacking),
            )
            continue
        absent = [set(b.absent) for b in facts.blocks if b.shard is shard and b.block.name in BACKBONE_BLOCKS]
        if rows := sorted(set.intersection(*absent)) if absent else []:
            yield finding(
                "backbone_incomplete",
                f"{shard.shard_id} backbone rows {listed(rows)}",
                "version 11 needs a backbone in every row; these rows hold none",
                keys=facts.keys(shard.shard_id, rows),
                count=len(rows),
            )


def backbone_inconsistent(facts: StoreFacts) -> Iterator[Finding]:
    """A backbone block of a version-11 store has another dtype, or not one row shape in all shards."""
    if facts.manifest is None or facts.manifest.version < 11 or not facts.manifest.materialized_blocks.backbone:
        return
    for name, dtype in BACKBONE_BLOCKS.items():
        found = [(b.shard.shard_id, b.meta) for b in facts.blocks if b.block.name == name and b.meta is not None]
        shapes = {meta.row_shape for _, meta in found}
        for shard_id, meta in found:
            if meta.dtype != np.dtype(dtype) or (len(shapes) > 1 and meta.row_shape != found[0][1].row_shape):
                yield finding(
                    "backbone_inconsistent",
                    f"{shard_id} {name}",
                    f"{meta.dtype.name} rows of shape {meta.row_shape}; {dtype} rows of shape "
                    f"{found[0][1].row_shape} are expected",
                    keys=facts.keys(shard_id),
                    count=1,
                )


def free_input_provenance_unknown(facts: StoreFacts) -> Iterator[Finding]:
    """A version-11 store with a backbone doesn't say how its free input was made."""
    if facts.manifest is None or facts.manifest.version < 11 or not facts.manifest.materialized_blocks.backbone:
        return
    found = facts.manifest.vin.get("free_input_provenance")
    if found not in FREE_INPUT_PROVENANCES:
        yield finding(
            "free_input_provenance_unknown",
            "manifest.json: vin.free_input_provenance",
            f"{found!r} is none of {listed(FREE_INPUT_PROVENANCES)}",
        )


def generation_changed(facts: StoreFacts) -> Iterator[Finding]:
    """The store is not the generation that was expected, or changed while it was checked."""
    if facts.expected is not None and facts.observed is not None:
        changed = facts.expected.differences(facts.observed)
        if changed:
            yield finding(
                "generation_changed",
                listed(changed),
                f"expected generation {facts.expected.digest()[:12]}, observed {facts.observed.digest()[:12]}",
                "Capture the store again and recompute what was made of it.",
                count=len(changed),
            )
