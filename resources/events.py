"""What happened to a partition, told to Dagster the same way in every kind of run, and outside runs.

Dagster records a check's partition only in a single-partition run, and a range run that returns marks every partition
of the range materialised. So what happens is recorded here, partition by partition, with the check's target set: the
Partitions tabs then show what the disk holds. Reading the history back is `resources.history`'s part.

Does not belong here: what is computed, and what a check means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg
from dagster import AssetCheckEvaluation
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from resources.findings import Finding, Severity
from resources.metadata import findings_metadata, metadata

DATA_VERSION = "dagster/data_version"

# Partitioned checks and range runs are what this module exists for; Dagster warns of them at every definition.
warnings.filterwarnings("ignore", category=dg.PreviewWarning, message=".*partitions_def.*")
warnings.filterwarnings("ignore", category=dg.BetaWarning, message=".*backfill_policy.*")


@dataclass(frozen=True, slots=True)
class Materialised:
    """A partition whose result is on the disk now. `data_version` is a digest of the content, so equal is no news."""

    asset_key: dg.AssetKey
    partition: str
    data_version: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """One evaluation of one check for one partition (None: the whole asset)."""

    asset_key: dg.AssetKey
    check_name: str
    partition: str | None
    passed: bool
    severity: Severity = Severity.ERROR
    metadata: Mapping[str, Any] = field(default_factory=dict)
    description: str | None = None

    @classmethod
    def of_findings(
        cls,
        asset_key: dg.AssetKey,
        check_name: str,
        partition: str | None,
        findings: Sequence[Finding],
        thresholds: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Checked:
        """A check that passes without findings, and whose severity is the worst of them."""
        errors = any(finding.severity is Severity.ERROR for finding in findings)
        return cls(
            asset_key,
            check_name,
            partition,
            passed=not findings,
            severity=Severity.ERROR if errors or not findings else Severity.WARN,
            metadata=metadata(extra or {}) | findings_metadata(findings, thresholds),
            description="; ".join(f"{finding.where}: {finding.text}" for finding in findings[:3]) or None,
        )

    def result(self) -> dg.AssetCheckResult:
        """The same as a check function's return value."""
        return dg.AssetCheckResult(
            passed=self.passed,
            asset_key=self.asset_key,
            check_name=self.check_name,
            severity=_SEVERITIES[self.severity],
            metadata=metadata(self.metadata),
            description=self.description,
        )


Happened: TypeAlias = Materialised | Checked

_SEVERITIES = {Severity.ERROR: dg.AssetCheckSeverity.ERROR, Severity.WARN: dg.AssetCheckSeverity.WARN}


class PartitionFailedError(Exception):
    """A partition whose work failed for a reason that is known and told; the others go on."""


def materialisation(happened: Materialised) -> dg.AssetMaterialization:
    """The Dagster event of a `Materialised`."""
    return dg.AssetMaterialization(
        happened.asset_key,
        partition=happened.partition,
        metadata=metadata(happened.metadata),
        tags={DATA_VERSION: happened.data_version},
    )


Targets: TypeAlias = dict[tuple[dg.AssetKey, str | None], AssetCheckEvaluationTargetMaterializationData | None]


def evaluation(instance: dg.DagsterInstance, happened: Checked, targets: Targets | None = None) -> AssetCheckEvaluation:
    """The Dagster event of a `Checked`, aimed at the latest materialisation of its partition if there is one.

    `targets` remembers these materialisations, so that five checks of a partition look once; the caller forgets one
    that it renews.
    """
    place = (happened.asset_key, happened.partition)
    targets = {} if targets is None else targets
    if place not in targets:
        targets[place] = _target(instance, *place)
    return AssetCheckEvaluation(
        asset_key=happened.asset_key,
        check_name=happened.check_name,
        passed=happened.passed,
        metadata=metadata(happened.metadata),
        severity=_SEVERITIES[happened.severity],
        description=happened.description,
        partition=happened.partition,
        target_materialization_data=targets[place],
    )


def _target(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None
) -> AssetCheckEvaluationTargetMaterializationData | None:
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=None if partition is None else [partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records:
        return None
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=records[0].storage_id, run_id=records[0].run_id, timestamp=records[0].timestamp
    )


def report(instance: dg.DagsterInstance, happened: Iterable[Materialised]) -> int:
    """Record materialisations outside any run, as of stores that other programs wrote; the number of events written.

    Only materialisations: Dagster's database takes one evaluation of a check and partition outside runs, and refuses
    the second. What other programs' files mean for the checks is recorded by a job, with `record`.
    """
    count = 0
    for item in happened:
        instance.report_runless_asset_event(materialisation(item))
        count += 1
    return count


def record(context: dg.OpExecutionContext, happened: Iterable[Happened]) -> Iterator[dg.AssetMaterialization]:
    """Record what was found, of any asset, as part of an op's run; the op (declared with `out={}`) yields from it."""
    yield from _recorded(context, happened, {})


def _recorded(
    context: dg.OpExecutionContext | dg.AssetExecutionContext, happened: Iterable[Happened], targets: Targets
) -> Iterator[dg.AssetMaterialization]:
    for item in happened:
        if isinstance(item, Materialised):
            yield materialisation(item)
            targets.pop((item.asset_key, item.partition), None)
        else:
            context.log_event(evaluation(context.instance, item, targets))  # type: ignore[arg-type] # it lags behind


def run_partitions(
    context: dg.AssetExecutionContext, work: Callable[[str], Iterable[Happened]]
) -> Iterator[dg.AssetMaterialization]:
    """The body of a partitioned asset: do each partition of the run, record what happened, go on after a failure.

    `work` yields what happened to one partition, in order. Whatever it raises costs that partition only.

    Raises:
        dagster.Failure: at the end, naming the partitions that failed and why (20 at most).
    """
    failed: dict[str, str] = {}
    keys = context.partition_keys
    for number, partition in enumerate(keys, start=1):
        try:
            yield from _recorded(context, work(partition), {})
        except PartitionFailedError as error:
            failed[partition] = str(error)
        except Exception as error:  # an extractor or a codec may raise anything; it costs its partition only
            context.log.error(f"{partition}: {type(error).__name__}", exc_info=True)
            failed[partition] = f"{type(error).__name__}: {error}"
        if partition in failed:
            context.log.error(f"{partition} failed ({number} of {len(keys)}): {failed[partition]}")
    if failed:
        raise dg.Failure(
            f"{len(failed)} of {len(keys)} partitions failed: {', '.join(list(failed)[:20])}",
            metadata=metadata({"failed": dict(list(failed.items())[:20]), "truncated": len(failed) > 20}),
            allow_retries=False,
        )


def run_checks(
    context: dg.AssetCheckExecutionContext, work: Callable[[str], Checked], asset_key: dg.AssetKey, check_name: str
) -> dg.AssetCheckResult:
    """The body of a partitioned check: evaluate each partition of the run and record it on that partition.

    In a single-partition run the returned result is the record. Otherwise each partition gets its own, and the result
    sums them up for the check as a whole. An error while checking is no failed check: it raises.
    """
    op = context.op_execution_context
    keys = list(op.partition_keys) if op.has_partition_key or op.has_partition_key_range else []
    if len(keys) == 1 and op.run.tags.get("dagster/partition") == keys[0]:
        return work(keys[0]).result()
    results = []
    for partition in keys:
        results.append(work(partition))
        op.log_event(evaluation(op.instance, results[-1]))  # type: ignore[arg-type] # its signature lags behind
    bad = [result for result in results if not result.passed]
    worst = Severity.ERROR if any(item.severity is Severity.ERROR for item in bad) or not bad else Severity.WARN
    summary = {"partitions": len(keys), "failed": len(bad), "first_failed": [item.partition for item in bad[:20]]}
    return Checked(
        asset_key, check_name, None, not bad, worst, summary, f"{len(bad)} of {len(keys)} partitions failed"
    ).result()
