"""`vin-store`: VIN offline stores for people without the UI, and for shell pipelines.

Belongs here: arguments, tables, JSON, exit codes. Does not belong here: anything that is computed. Imports no Dagster.

Exit codes: 0 nothing to report; 1 a finding of the severity that `--fail-on` asks for; 2 wrong arguments, a store that
can't be read, or output that can't be written. With --json the answer is one JSON document on standard output and
nothing else; progress and errors go to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from resources.command_line import run_command
from resources.files import FileRoot
from resources.findings import Finding, Severity
from resources.results import plain
from vin_assets.vin_store import diagnostics, integrity
from vin_assets.vin_store.coverage import coverage_findings, damaged_tar_findings
from vin_assets.vin_store.manifest_facts import MIB, block_diagnostics, block_shapes
from vin_assets.vin_store.records import sample_records
from vin_assets.vin_store.store import Store, VinOfflineStoreConfig, VinStoreError, open_store

app = typer.Typer(
    help="VIN offline stores: look into them, compute their statistics and raw coverage, check them.",
    epilog="Exit codes: 0 nothing to report, 1 a finding of the asked severity, 2 it could not be done.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class FailOn(StrEnum):
    """The severity from which a finding makes the exit code 1."""

    error = "error"
    warn = "warn"
    never = "never"


StoreDir = Annotated[Path, typer.Argument(metavar="STORE", help="The store's directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]
Failing = Annotated[FailOn, typer.Option("--fail-on", help="Exit with 1 from this severity on.")]
RawDataRoot = Annotated[
    Path | None, typer.Option("--raw-data-root", help="Replaces the raw data root that the manifest names.")
]
RawRoots = Annotated[
    list[Path] | None, typer.Option("--raw-root", help="Raw tars are opened below these folders; repeat for more.")
]
Trust = Annotated[bool, typer.Option("--trust-manifest-paths", help="Open raw tars wherever the manifest says.")]

_LISTED = 20


def _console(*, error: bool = False) -> Console:
    console = Console(stderr=error, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 80
    return console


def _say_json(document: Any) -> None:
    print(json.dumps(plain(document), indent=1, ensure_ascii=False))


@contextmanager
def _explained() -> Iterator[None]:
    """Errors that say themselves what is wrong, without a traceback."""
    try:
        yield
    except (VinStoreError, OSError) as error:
        _console(error=True).print(str(error), style="red", markup=False)
        raise typer.Exit(2) from error


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = _console(error=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _exit(findings: Sequence[Finding], fail_on: FailOn) -> None:
    bad = {FailOn.never: (), FailOn.error: (Severity.ERROR,), FailOn.warn: (Severity.ERROR, Severity.WARN)}[fail_on]
    if any(finding.severity in bad for finding in findings):
        raise typer.Exit(1)


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    for finding in findings[:_LISTED]:
        colour = "red" if finding.severity is Severity.ERROR else "yellow"
        console.print(f"[{colour}]{finding.severity}[/] [bold]{finding.code}[/] {escape(finding.where)}")
        console.print(f"  {escape(finding.text)}\n  [dim]{escape(finding.how_to_fix)}[/]")
        if finding.samples:
            more = f" and {finding.count - len(finding.samples[:3])} more" if finding.count > 3 else ""
            console.print(f"  e.g. {escape(', '.join(finding.samples[:3]))}{more}")
    if len(findings) > _LISTED:
        console.print(f"... and {len(findings) - _LISTED} more; --json lists all")


def _pairs(rows: dict[str, object]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in rows.items():
        table.add_row(f"[bold]{key}[/]", escape(str(value)))
    return table


def _add(table: Table, *cells: str) -> None:
    """Add a row of values as they are: brackets in them are no markup."""
    table.add_row(*map(escape, cells))


def _columns(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if value != round(value) or abs(value) >= 1e9 else f"{value:.0f}"


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in counts.items()) or "-"


@app.command(epilog="Example: vin-store inspect .run/input/vin_stores/tiny_v11 0")
def inspect(
    store: StoreDir,
    sample: Annotated[str | None, typer.Argument(help="A sample: its index or its key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a store holds by its manifest and index; of a sample, its labels and decoded records."""
    with _explained(), open_store(VinOfflineStoreConfig(store)) as opened:
        shown = _overview(opened) if sample is None else _sample(opened, sample)
    if as_json:
        _say_json(shown)
        return
    console = _console()
    plain_values = {key: value for key, value in shown.items() if not isinstance(value, (dict, list))}
    console.print(_pairs({key.replace("_", " "): value for key, value in plain_values.items()}))
    if sample is not None:
        for name, shape in shown["blocks"].items():
            console.print(f"{escape(name)}  [dim]{escape(shape)}[/]")
        for name, record in shown["records"].items():
            text = json.dumps(plain(record), ensure_ascii=False)
            console.print(f"[bold]{escape(name)}[/] {escape(text if len(text) <= 400 else text[:400] + ' ...')}")
        return
    table = _columns("block", "kind", "dtype", "shape", "MiB")
    for row in shown["blocks"]:
        kind = "records" if row["dtype"] is None else "array"
        _add(table, row["name"], kind, row["dtype"] or "-", row["shape"], _number(row["mib"]))
    console.print(table)


def _overview(opened: Store) -> dict[str, Any]:
    manifest = opened.manifest
    sizes: dict[str, int] = {}
    kinds: dict[str, diagnostics.VinOfflineBlockDiagnostic] = {}
    for row in block_diagnostics(manifest):
        sizes[row.name] = sizes.get(row.name, 0) + (row.estimated_bytes or 0)
        kinds.setdefault(row.name, row)
    shapes = block_shapes(manifest)
    splits: dict[str, int] = {}
    for sample in opened.rows:
        splits[sample.split] = splits.get(sample.split, 0) + 1
    return {
        "store": opened.real_path,
        "version": manifest.version,
        "created_at": manifest.created_at,
        "samples": len(opened.rows),
        "unusable_index_lines": len(opened.bad_lines),
        "splits": _listed(splits),
        "scenes": len({row.scene_id for row in opened.rows}),
        "shards": len(manifest.shards),
        "max_candidates": manifest.oracle.max_candidates,
        "labels": "yes" if any(shard.has_labels for shard in manifest.shards) else "no",
        "numeric_mib": round(sum(sizes.values()) / MIB, 6),
        "blocks": [
            {
                "name": name,
                "dtype": row.dtype,
                "shape": str(tuple(shapes.get(name, row.shape or ()))[1:]),
                "mib": sizes[name] / MIB if row.dtype else None,
            }
            for name, row in sorted(kinds.items())
        ],
    }


def _sample(opened: Store, wanted: str) -> dict[str, Any]:
    found = [row for row in opened.rows if wanted in (str(row.sample_index), row.sample_key, row.key)]
    if not found:
        raise typer.BadParameter(f"no sample with index or key {wanted!r} in {opened.config.sample_index_path}")
    row = found[0]
    shard = opened.shard_of(row)
    blocks = shard.blocks if shard is not None else {}
    return {
        **row.model_dump(),
        "compact_key": row.key,
        "blocks": {
            name: f"{block.dtype} {tuple((block.shape or ())[1:])}"
            for name, block in sorted(blocks.items())
            if block.dtype is not None
        },
        "records": sample_records(opened, row),
    }


@app.command(epilog="Example: vin-store stats .run/input/vin_stores/tiny_v11 --max-samples 512 --json")
def stats(
    store: StoreDir,
    max_samples: Annotated[int | None, typer.Option(help="Scan the first so many samples only.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a store's statistics; rejects a store that is replaced meanwhile."""
    with _explained():
        config = VinOfflineStoreConfig(store)
        request = diagnostics.capture_vin_offline_dataset_stats_request(config, max_samples=max_samples)
        with _console(error=True).status("reading"):
            found = diagnostics.inspect_vin_offline_dataset_stats(request)
    if as_json:
        _say_json({"request_digest": request.digest(), **plain(found)})
        return
    console = _console()
    told = {"store": found.store_dir, "version": found.version, "samples": found.num_samples}
    told |= {"scanned": f"{found.sampled_samples}, {found.rows_read} of them whole", "scenes": found.num_scenes}
    told |= {"snippets": found.num_snippets, "splits": _listed(found.split_counts)}
    told |= {"labels": "yes" if found.scene_labels_available else "no", "request": request.digest()[:16]}
    console.print(_pairs(told))
    series = {"candidate count": found.candidate_count, "RRI": found.rri, "points": found.vin_points}
    series |= found.rri_component_summaries | found.candidate_pose_summaries
    table = _columns("series", "values", "minimum", "mean", "maximum")
    for name, summary in series.items():
        _add(table, name, str(summary.count), *map(_number, (summary.minimum, summary.mean, summary.maximum)))
    console.print(table)
    if found.backbone_diagnostics:
        table = _columns("backbone", "rows", "mean", "std", "|mean|", "non-zero")
        for row in found.backbone_diagnostics:
            numbers = map(_number, (row.mean, row.std, row.abs_mean, row.nz_frac))
            _add(table, row.field, str(row.sampled_rows), *numbers)
        console.print(table)
    table = _columns("MiB per sample", "mean", "median", "p95")
    for part in found.memory_diagnostics:
        _add(table, part.component, *map(_number, (part.mean_mib, part.median_mib, part.p95_mib)))
    console.print(table)


@app.command(epilog="Example: vin-store coverage .run/input/vin_stores/tiny_v11 --raw-data-root .run/input/raw")
def coverage(
    store: StoreDir,
    raw_data_root: RawDataRoot = None,
    raw_root: RawRoots = None,
    trust_manifest_paths: Trust = False,
    max_tars: Annotated[int | None, typer.Option(help="Open the first so many tars only.")] = None,
    minimum: Annotated[float, typer.Option(min=0, max=1, help="Share of snippets below which it warns.")] = 0.0,
    tar_index: Annotated[
        Path | None, typer.Option(help="Folder that keeps what tars hold, so that unchanged ones stay closed.")
    ] = None,
    as_json: AsJson = False,
    fail_on: Failing = FailOn.error,
) -> None:
    """Compare a store with the raw dataset that it was made from."""
    with _explained(), _progress("tars") as progress:
        found = diagnostics.collect_vin_offline_dataset_coverage(
            VinOfflineStoreConfig(store, raw_data_root=raw_data_root),
            max_tars=max_tars,
            progress_cb=progress,
            raw_roots=raw_root or (),
            trust_manifest_paths=trust_manifest_paths,
            tar_index=FileRoot(tar_index) if tar_index else None,
        )
    findings = [*damaged_tar_findings(found), *coverage_findings(found, minimum)]
    if as_json:
        _say_json({**plain(found), "findings": findings})
    else:
        console = _console()
        share = "-" if found.coverage is None else f"{found.coverage:.1%}"
        told: dict[str, object] = {"store": found.store_dir, "raw tars": found.tar_shards_scanned, "coverage": share}
        told |= {"raw snippets": found.dataset_snippets, "in the store": found.covered_snippets}
        told |= {"missing": found.missing_in_store, "not in the raw data": found.outside_dataset}
        console.print(_pairs(told))
        table = _columns("scene", "raw", "store", "covered", "missing", "outside", "coverage")
        for scene in sorted(found.per_scene, key=lambda scene: -scene.missing_in_store)[:_LISTED]:
            counts = [scene.dataset_snippets, scene.store_snippets, scene.covered_snippets]
            counts += [scene.missing_in_store, scene.outside_dataset]
            rate = "-" if scene.coverage is None else f"{scene.coverage:.1%}"
            _add(table, scene.scene_id, *map(str, counts), rate)
        console.print(table)
        if len(found.per_scene) > _LISTED:
            console.print(f"... and {len(found.per_scene) - _LISTED} more scenes; --json lists all")
        _print_findings(console, findings)
    _exit(findings, fail_on)


@app.command(epilog="Example: vin-store check .run/input/vin_stores/tiny_v11 --fail-on warn")
def check(store: StoreDir, as_json: AsJson = False, fail_on: Failing = FailOn.error) -> None:
    """Check a store's integrity: every chunk of every sample is decoded."""
    with _explained(), _progress("arrays") as progress:
        findings = integrity.check_store(VinOfflineStoreConfig(store), progress_cb=progress)
    readable = integrity.store_is_readable(findings)
    if as_json:
        _say_json({"readable": readable, "findings": findings})
    else:
        console = _console()
        _print_findings(console, findings)
        bad = sum(finding.severity is Severity.ERROR for finding in findings)
        verdict = "the store is healthy" if not findings else f"{bad} errors, {len(findings) - bad} warnings"
        console.print(verdict if readable else f"{verdict}; the store can't be used")
    _exit(findings, fail_on)


def main() -> None:
    """The entry point."""
    run_command(lambda: app(prog_name="vin-store"))


if __name__ == "__main__":
    main()
