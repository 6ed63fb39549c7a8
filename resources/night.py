"""What a nightly report says, read from Dagster's history: what is there, which checks fail and why, what to do.

Belongs here: turning the latest materialisations and check evaluations of some assets into a `Report`. Does not belong
here: its looks (`report`), reading the event log (`history`), and whatever a store or a route means; the report names
the assets' own numbers, findings and figures, so it says the same as their pages.
"""

from __future__ import annotations

import datetime
import re
import urllib.parse
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph, BaseAssetNode

from resources import figures, history, liveness
from resources.figures import counted
from resources.findings import Finding, Severity
from resources.history import CheckState, Outcome
from resources.report import MAX_ROWS, MAX_TROUBLES, Number, Picture, Report, Section, State, Table, Trouble

MAX_PICTURES = 12  # per asset
_LOOK_AHEAD = 4  # partitions whose figures are looked for, failing ones first
_IMAGE = re.compile(r"!\[([^\]]*)\]\((data:image/svg\+xml;base64,[A-Za-z0-9+/=]+)\)")
_NUMBERS = (dg.IntMetadataValue, dg.FloatMetadataValue)

_UNITS = {"s": "s", "ms": "ms", "mib": "MiB", "deg": "°", "m": "m"}

Graph = BaseAssetGraph[Any]


@dataclass(frozen=True, slots=True)
class _Asset:
    """An asset with what history knows of it. `partitions` are its keys, sorted; empty without partitions."""

    key: dg.AssetKey
    description: str
    partitioned: bool
    made_here: bool
    partitions: tuple[str, ...]
    materialised: Mapping[str | None, int]
    states: tuple[CheckState, ...]

    @property
    def name(self) -> str:
        return self.key.to_user_string()

    @property
    def failing(self) -> list[CheckState]:
        return [state for state in self.states if state.outcome is Outcome.FAILED]

    def absent(self) -> list[str]:
        """Partitions that should have been materialised and never were, in a sentence; empty without any."""
        found = [key for key in self.partitions if key not in self.materialised] if self.made_here else []
        more = f" and {figures.count(len(found) - 3)} more" if len(found) > 3 else ""
        return [f"never materialised for {', '.join(found[:3])}{more}"] if found else []

    def order(self) -> list[str | None]:
        """Its partitions (None: the asset as a whole) with the ones that have most failing checks first."""
        bad = Counter(state.partition for state in self.failing)
        keys: list[str | None] = list(self.partitions) if self.partitioned else [None]
        return sorted((key for key in keys if key in self.materialised), key=lambda key: (-bad[key], key or ""))


def night_report(
    instance: dg.DagsterInstance,
    locations: Mapping[str, Graph],
    *,
    made: datetime.datetime,
    webserver_url: str = "",
    broken: Mapping[str, str] | None = None,
    leave_out: Collection[dg.AssetKey] = (),
) -> Report:
    """The report on every asset of `locations` that has partitions, checks or a materialisation.

    Args:
        instance: whose history is read; nothing is written.
        locations: code location -> its asset graph.
        made: now, with its time zone.
        webserver_url: where links lead; none without it.
        broken: code locations that could not be loaded, and why; the report says so first.
        leave_out: assets that are not told, such as the report itself.
    """
    nodes = [graph.get(key) for graph in locations.values() for key in graph.toposorted_asset_keys]
    assets = [_asset(instance, node) for node in nodes if node.key not in leave_out]
    told = [one for one in assets if one.states or one.materialised or one.partitions]
    missing = [f"code location {name}: {why}" for name, why in (broken or {}).items()]
    missing += [f"{one.name}: {text}" for one in told for text in (*one.absent(), *_unanswered(instance, one))]
    # What sums up comes before what it sums up, and what fails before what does not.
    ordered = sorted(told, key=lambda one: (one.partitioned, not one.failing))
    sections = [_section(instance, one, webserver_url) for one in ordered]
    failed = _failed_runs(instance, made)
    sections += [failed] if failed.tables else []
    return Report(
        title=f"Night of {made:%Y-%m-%d}", made=made, sections=(_overview(told), *sections), missing=tuple(missing)
    )


def _asset(instance: dg.DagsterInstance, node: BaseAssetNode) -> _Asset:
    definition = node.partitions_def
    keys: Sequence[str] = ()
    if isinstance(definition, dg.DynamicPartitionsDefinition) and definition.name:
        keys = sorted(instance.get_dynamic_partitions(definition.name))
    elif definition is not None:
        keys = definition.get_partition_keys()
    materialised: dict[str | None, int] = {}
    if definition is not None:
        materialised.update(history.latest_materialisations(instance, node.key))
    elif event := instance.get_latest_materialization_event(node.key):
        materialised[None] = int(event.timestamp)
    states = history.check_states(instance, node.check_keys) if node.check_keys else []
    known = set(keys)
    # The row without a partition that a range run leaves behind only sums up those of its partitions.
    of_partitions = {state.check for state in states if state.partition is not None}
    return _Asset(
        node.key,
        node.description or "",
        definition is not None,
        node.is_materializable,
        tuple(keys),
        materialised,
        tuple(
            state
            for state in states
            if (state.partition in known if state.partition is not None else state.check not in of_partitions)
        ),
    )


def _unanswered(instance: dg.DagsterInstance, asset: _Asset) -> list[str]:
    """Checks that were due and never answered: their run ended before."""
    planned = [state for state in asset.states if state.outcome is Outcome.PLANNED]
    statuses = liveness.run_statuses(instance, sorted({state.run_id for state in planned if state.run_id}))
    ended = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)
    silent = Counter(state.check for state in planned if statuses.get(state.run_id) in ended)
    return [f"{check} never answered for {counted(number, 'partition')}" for check, number in sorted(silent.items())]


def _overview(assets: Sequence[_Asset]) -> Section:
    rows = []
    for one in assets:
        failing = len(one.failing)
        due = len(one.partitions) if one.partitioned else 1
        done = len(set(one.materialised) & set(one.partitions)) if one.partitioned else len(one.materialised)
        rows.append((one.name, f"{done} of {due}", f"{failing} of {len(one.states)}" if one.states else "none"))
    failing = sum(len(one.failing) for one in assets)
    checked = sum(len(one.states) for one in assets)
    bad = [one.name for one in assets if one.failing]
    lead = (
        f"{counted(failing, 'check result')} of {figures.count(checked)} fail, in {', '.join(bad)}."
        if bad
        else (f"All {figures.count(checked)} check results pass.")
    )
    numbers = (
        Number("assets", str(len(assets))),
        Number("failing check results", figures.count(failing), state=State.ERROR if failing else State.OK),
    )
    table = Table("Assets", ("asset", "materialised", "failing check results"), tuple(rows))
    return Section("Overview", lead, numbers, tables=(table,))


def _section(instance: dg.DagsterInstance, asset: _Asset, base: str) -> Section:
    order = asset.order()
    events = {key: _metadata(instance, asset.key, key) for key in order[:MAX_ROWS]}
    failing = len(asset.failing)
    numbers: list[Number] = []
    if asset.partitioned:
        done = len(set(asset.partitions) & set(asset.materialised))
        state = State.WARN if asset.absent() else State.OK if done == len(asset.partitions) else State.PLAIN
        text = f"{figures.count(done)} of {figures.count(len(asset.partitions))}"
        numbers.append(Number("partitions materialised", text, "; ".join(asset.absent()), state))
    if asset.states:
        passing = f"{figures.count(len(asset.states) - failing)} of {figures.count(len(asset.states))}"
        numbers.append(Number("check results that pass", passing, state=State.ERROR if failing else State.OK))
    if not asset.partitioned and order:
        numbers += [Number(_words(name), _text(item)) for name, item in _shown(events[None]).items()]
    troubles = [one for state in asset.failing[:MAX_TROUBLES] for one in _troubles(instance, asset, state, base)]
    lead = asset.description.strip().split("\n\n")[0]
    if failing > MAX_TROUBLES:
        lead += f" The first {MAX_TROUBLES} of {figures.count(failing)} failing check results are told here."
    tables = (_partitions(asset, order, events),) if asset.partitioned and order else ()
    return Section(asset.name, lead, tuple(numbers), tuple(troubles), tables, _pictures(asset, order, events))


def _metadata(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None) -> Mapping[str, Any]:
    """The metadata of the latest materialisation, Dagster's own values."""
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=None if partition is None else [partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    event = records[0].asset_materialization if records else None
    return event.metadata if event else {}


def _shown(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item.value for name, item in metadata.items() if isinstance(item, _NUMBERS) and "/" not in name}


def _words(name: str) -> str:
    """A metadata key as a heading: `missing_s` is "missing (s)"."""
    stem, _, last = name.rpartition("_")
    if stem and last in _UNITS:
        return f"{stem.replace('_', ' ')} ({_UNITS[last]})"
    return name.replace("_", " ")


def _text(item: Any) -> str:
    if isinstance(item, float):
        return f"{item:,.4g}"
    return figures.count(item) if isinstance(item, int) else str(item)


def _partitions(asset: _Asset, order: Sequence[str | None], events: Mapping[str | None, Mapping[str, Any]]) -> Table:
    """A row per partition: which checks fail, and its key numbers; the failing ones first."""
    bad: dict[str | None, list[str]] = {}
    for state in asset.failing:
        bad.setdefault(state.partition, []).append(state.check)
    names = list(dict.fromkeys(name for metadata in events.values() for name in _shown(metadata)))[:8]
    rows = []
    for key in order[:MAX_ROWS]:
        shown = _shown(events[key])
        rows.append((str(key), ", ".join(bad.get(key, [])) or "none", *(_text(shown.get(name, "")) for name in names)))
    columns = ("partition", "failing checks", *(_words(name) for name in names))
    return Table("Partitions", columns, tuple(rows), total=len(order))


def _pictures(
    asset: _Asset, order: Sequence[str | None], events: Mapping[str | None, Mapping[str, Any]]
) -> tuple[Picture, ...]:
    """The figures in the latest metadata, of the partitions with most failing checks."""
    found: list[Picture] = []
    for key in order[:_LOOK_AHEAD]:
        for item in events[key].values():
            if isinstance(item, dg.MarkdownMetadataValue) and item.md_str:
                images = [Picture(title, uri, key or "") for title, uri in _IMAGE.findall(item.md_str)]
                if found and len(found) + len(images) > MAX_PICTURES:
                    return tuple(found)
                found += images
    return tuple(found[:MAX_PICTURES])


def _troubles(instance: dg.DagsterInstance, asset: _Asset, state: CheckState, base: str) -> list[Trouble]:
    """The findings of a failing check; one made of its own words where it lists none."""
    answers = history.evaluations(instance, dg.AssetCheckKey(asset.key, state.check), state.partition)
    if not answers:
        return []
    answer = answers[0]
    severity = Severity.WARN if answer.severity == "WARN" else Severity.ERROR
    subject = f"{asset.name} {state.partition}" if state.partition else asset.name
    query = urllib.parse.urlencode({"view": "checks", "checkDetail": state.check})
    link = f"{base.rstrip('/')}/assets/{urllib.parse.quote(asset.name)}?{query}" if base else ""
    whole = Finding(
        state.check,
        severity,
        asset.name,
        answer.description or "the check failed",
        str(answer.metadata.get("how_to_fix") or f"look at the check {state.check} of {asset.name}").removeprefix("- "),
    )
    table = answer.metadata.get("table")
    records = table.records if isinstance(table, dg.TableMetadataValue) else []
    found = [finding for record in records if (finding := _finding(record.data, whole)) is not None]
    return [Trouble(subject, finding, link) for finding in found or [whole]]


def _finding(row: Mapping[str, Any], whole: Finding) -> Finding | None:
    """A row of a check's table of findings; None for the last row that only counts the rest."""
    if not row.get("code") or not row.get("how_to_fix"):
        return None
    return replace(
        whole,
        code=str(row["code"]),
        severity=Severity.WARN if row.get("severity") == "WARN" else Severity.ERROR,
        where=str(row.get("where", "")),
        text=str(row.get("what", "")),
        how_to_fix=str(row["how_to_fix"]),
    )


def _failed_runs(instance: dg.DagsterInstance, made: datetime.datetime) -> Section:
    """Runs of the last day that failed, with their reason; a failing check does not fail its run."""
    since = made - datetime.timedelta(days=1)
    filters = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=since)
    records = instance.get_run_records(filters, limit=MAX_ROWS)
    rows = []
    for record in records:
        run = record.dagster_run
        where = run.tags.get("dagster/partition") or run.tags.get("dagster/asset_partition_range_start", "")
        rows.append((run.run_id[:8], run.job_name, where, history.run_failure(instance, run.run_id)))
    table = Table("Failed runs", ("run", "job", "partition, or first of them", "why"), tuple(rows))
    lead = f"{counted(len(rows), 'run')} of the last day failed; what they were to make is missing or old."
    return Section("Runs that failed", lead, tables=(table,) if rows else ())
