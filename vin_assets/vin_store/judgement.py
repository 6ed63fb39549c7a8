"""Rules on computed statistics: labels against thresholds, and the generation they are of. Each returns findings.

Does not belong here: the integrity of files (`integrity`), raw coverage (`coverage`), change against earlier
statistics (`drift`).
"""

from __future__ import annotations

from collections.abc import Sequence

from resources.findings import MAX_SAMPLES, Finding, Severity


def labels_usable(
    available: bool, candidates: int, finite: int, unmatched: Sequence[str], finite_min: float
) -> list[Finding]:
    """Findings on a store's labels.

    Args:
        available: whether the store has measured supervision at all.
        candidates: counted candidates of the scanned rows.
        finite: those of them whose `oracle.rri` is finite.
        unmatched: compact keys of labelled samples without candidate IDs.
        finite_min: the share of finite labels that is enough, 0..1.
    """
    if not available:
        return [
            Finding(
                "labels_missing",
                Severity.ERROR,
                "oracle.candidate_count, oracle.rri",
                "the store has no scene supervision",
                "write the store with the oracle labeller, or don't train on it",
            )
        ]
    found = []
    share = finite / candidates if candidates else 0.0
    if share < finite_min:
        found.append(
            Finding(
                "labels_not_finite",
                Severity.ERROR,
                "oracle.rri",
                f"{finite} of {candidates} counted candidates have a finite label ({share:.1%} < {finite_min:.1%})",
                "see store_integrity for the samples, label them again and write the store anew",
                count=candidates - finite,
            )
        )
    if unmatched:
        found.append(
            Finding(
                "candidate_ids_missing",
                Severity.WARN,
                "oracle.candidate_indices",
                f"{len(unmatched)} labelled samples have no candidate IDs: components can't be paired with RRI",
                "write the store with a labeller that persists candidate_indices",
                len(unmatched),
                tuple(unmatched[:MAX_SAMPLES]),
            )
        )
    return found


def generation_current(computed: str, now: str | None) -> list[Finding]:
    """A finding when the statistics were taken of another generation than the store has now.

    Both are request digests; `now` is None for a store that can't be read, whose reason is `store_readable`'s to tell.
    """
    if computed == now:
        return []
    state = "can't be read" if now is None else f"is {now[:12]}"
    remedy = "materialise vin/store_stats for this store"
    return [
        Finding(
            "generation_changed",
            Severity.WARN,
            "the store directory",
            f"the statistics are of generation {computed[:12]}, the store {state} now",
            remedy if now else f"see store_readable, then {remedy}",
        )
    ]
