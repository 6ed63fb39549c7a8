"""The integrity check of a store: the registry of rules and the functions that run them.

Belongs here: which rules there are and how they are run. Does not belong here: looking (`facts`), the rules themselves.
A new rule is a pure function, one row of `RULES`, and one corruptor in `tests/builders/vin.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from resources.findings import Finding
from vin_assets.vin_store import rules_arrays as arrays
from vin_assets.vin_store import rules_store as store
from vin_assets.vin_store.facts import StoreFacts, observe
from vin_assets.vin_store.generation import VinOfflineStoreGeneration, capture
from vin_assets.vin_store.store import VinOfflineStoreConfig, VinStoreError, open_store

Rule = Callable[[StoreFacts], Iterable[Finding]]

# By the code of their findings, in the order in which they are told.
RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        store.manifest_unreadable,
        store.unsupported_version,
        store.index_unreadable,
        store.path_escape,
        store.index_line_unreadable,
        store.sample_count_differs,
        store.duplicate_shard_id,
        store.duplicate_sample_index,
        store.duplicate_sample_key,
        store.unknown_shard,
        store.row_out_of_range,
        store.splits_unreadable,
        store.splits_disagree,
        arrays.shard_directory_missing,
        arrays.block_missing,
        arrays.array_missing,
        arrays.array_unreadable,
        arrays.shape_mismatch,
        arrays.dtype_mismatch,
        arrays.payload_missing,
        arrays.offsets_missing,
        arrays.offsets_unreadable,
        arrays.offsets_not_ascending,
        arrays.offsets_beyond_payload,
        arrays.chunk_absent,
        arrays.chunk_undecodable,
        arrays.candidate_count_out_of_range,
        arrays.non_finite_labels,
        arrays.negative_lengths,
        store.backbone_incomplete,
        store.backbone_inconsistent,
        store.free_input_provenance_unknown,
        store.generation_changed,
    )
}

# Findings of these codes mean that the store can't be used at all; every other one costs only what it names.
BLOCKING_CODES = frozenset({"manifest_unreadable", "unsupported_version", "index_unreadable", "path_escape"})


def check_store(
    config: VinOfflineStoreConfig,
    *,
    expected: VinOfflineStoreGeneration | None = None,
    progress_cb: Callable[[int, int], None] | None = None,
) -> list[Finding]:
    """Every finding about the store, in the order of `RULES`; an empty list is a healthy store.

    Reads every chunk of the rows that the index names. Damage is a finding, never an exception. `expected` is the
    generation that the store should still be; without it the store must only not change while it is checked.
    `progress_cb(done, total)` counts arrays.
    """
    facts = StoreFacts(config, expected=expected if expected is not None else capture(config))
    _look(facts, chunks=True, progress=progress_cb)
    facts.observed = capture(config)
    return list(judge(facts))


def check_readable(config: VinOfflineStoreConfig) -> list[Finding]:
    """The blocking findings that metadata alone shows; opens no chunk, so it is quick on any store."""
    facts = StoreFacts(config)
    _look(facts, chunks=False, progress=None)
    return readable_findings(judge(facts))


def _look(facts: StoreFacts, *, chunks: bool, progress: Callable[[int, int], None] | None) -> None:
    try:
        with open_store(facts.config) as opened:
            observe(opened, facts, chunks=chunks, progress=progress)
    except VinStoreError as error:
        facts.problem = error


def judge(facts: StoreFacts) -> Iterator[Finding]:
    """What the rules say of facts."""
    for rule in RULES.values():
        yield from rule(facts)


def readable_findings(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that mean that the store can't be used at all; it is readable when there are none."""
    return [finding for finding in findings if finding.code in BLOCKING_CODES]


def store_is_readable(findings: Iterable[Finding]) -> bool:
    """Whether the store can be used, apart from what single findings name."""
    return not readable_findings(findings)
