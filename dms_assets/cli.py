"""`dms-cache`: the caches for people without the UI, and for shell pipelines.

Belongs here: arguments, tables, JSON, exit codes. Does not belong here: anything that is computed. Imports no Dagster.

Exit codes: 0 nothing to report; 1 a finding of the asked severity, or something missing; 2 wrong arguments, an unusable
configuration or wanted table, or a root that can't be read. With --json the answer is one JSON document on standard
output and nothing else; progress and errors go to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dms_assets import cache_selftest, coverage, validation
from dms_assets.baselines import Baseline, BaselineConfigError, registry
from dms_assets.cache_file import opened, read_raw
from dms_assets.cache_meta import npz_path
from dms_assets.cache_schema import cache_kind, from_raw, load_any
from dms_assets.cache_store import CacheStore
from dms_assets.contract import HZ, MAX_SECONDS, CacheInvalidError, CacheUnreadableError, RouteNameError
from dms_assets.files import DmsFiles
from dms_assets.routes import check_baseline
from dms_assets.sweep import sweep
from dms_assets.wanted import Wanted, WantedTableError, read_wanted
from resources.command_line import run_command
from resources.config import ConfigurationError, load_settings
from resources.files import FileRoot, PathRefusedError
from resources.findings import Finding, Severity
from resources.results import plain

# A file that `make run` leaves, so that the examples of the help can be tried.
_EXAMPLE = "results/baselines_dms/cache/flow/00aa11bb22cc33dd_2026-10-01--08-00-00.npz"

app = typer.Typer(
    help="DMS feature caches: look at them, check them, see what is missing, merge them.",
    epilog="Exit codes: 0 nothing to report, 1 a finding or something missing, 2 it could not be done.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _window(seconds: float | None) -> float | None:
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise typer.BadParameter(f"{seconds:g} is not above 0 and at most {MAX_SECONDS:g} s")
    return seconds


AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]
Root = Annotated[Path | None, typer.Option(help="Cache root, instead of the configured one.")]
Names = Annotated[list[str] | None, typer.Option("--baseline", "-b", help="Only these baselines; repeat for more.")]
Table_ = Annotated[Path | None, typer.Option("--wanted", help="Wanted spans (CSV, Parquet), not the configured.")]
Window = Annotated[float | None, typer.Option(help="Seconds before each t_anchor that are wanted.", callback=_window)]

_LISTED = 20


def _console(*, error: bool = False) -> Console:
    # Without markup: what files hold is never a style.
    console = Console(stderr=error, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 80
    return console


def _say_json(document: Any) -> None:
    text = json.dumps(plain(document), indent=1, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, or a terminal that knows few characters
        text = json.dumps(plain(document), indent=1)
    print(text)


def _fail(error: object, code: int = 2) -> typer.Exit:
    _console(error=True).print(str(error), style="red")
    return typer.Exit(code)


@contextmanager
def _explained() -> Iterator[None]:
    """Errors that say themselves what is wrong, without a traceback."""
    known = (ConfigurationError, BaselineConfigError, WantedTableError, RouteNameError, PathRefusedError, OSError)
    try:
        yield
    except known as error:
        raise _fail(error) from error


@contextmanager
def _progress(what: str, *, shown: bool) -> Iterator[coverage.Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_console(error=True), transient=True, disable=not shown) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


class _Chosen:
    """What the options and the configuration say to look at."""

    def __init__(self, root: Path | None, names: list[str] | None) -> None:
        settings = load_settings()
        self.files = DmsFiles(settings)
        self.store = CacheStore(FileRoot(root), settings.dms.max_file_mib << 20) if root else self.files.caches
        self.registry = registry(settings.dms.baselines)
        self.names = [self._known(name) for name in names] if names else self.store.baselines()

    def _known(self, name: str) -> str:
        known = sorted({*self.registry, *self.store.baselines()})
        if check_baseline(name) not in known:
            raise RouteNameError("baseline", f"{name!r}: no folder in {self.store.root.path}, no entry; known: {known}")
        return name

    def baseline(self, name: str) -> Baseline:
        """The registry's entry; of a name it does not know, one whose caches other programs write."""
        return self.registry.get(name) or Baseline(name, "external")

    def lead_in(self, name: str) -> int:
        """Ticks before a wanted one that the plan of this baseline wants too."""
        baseline = self.baseline(name)
        return 0 if baseline.external else baseline.lead_in

    def wanted(self, table: Path | None, window_s: float | None) -> Wanted:
        """The wanted spans of the option, or of the configuration."""
        if table is None:
            return self.files.wanted()
        window_s = self.files.dms.window_s if window_s is None else window_s
        return read_wanted(FileRoot(table.absolute().parent), table.name, window_s)


def _print_findings(console: Console, findings: list[Finding]) -> None:
    table = Table("code", "where", "what", box=None, pad_edge=False, header_style="bold")
    for finding in findings[:_LISTED]:
        colour = "red" if finding.severity is Severity.ERROR else "yellow"
        table.add_row(Text(finding.code, colour), finding.where, f"{finding.text}\n→ {finding.how_to_fix}")
    console.print(table)
    if len(findings) > _LISTED:
        console.print(f"... and {len(findings) - _LISTED} more; --json lists all")


@app.command(
    epilog="Example: dms-cache inspect results/baselines_dms/cache/facemesh/00aa11bb22cc33dd_2026-10-01--08-00-00.npz"
)
def inspect(file: Annotated[Path, typer.Argument(help="A cache file.")], as_json: AsJson = False) -> None:
    """Show what one file holds: kind, rows, channels, spans, metadata."""
    with _explained():
        try:
            shown = cache_selftest.inspect(file)
        except (CacheInvalidError, CacheUnreadableError) as error:
            raise _fail(error, 1) from error
    if as_json:
        _say_json(shown)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for key in ("kind", "uid", "n", "channels", "D"):
        if shown[key] is not None:
            table.add_row(Text(key, "bold"), str(shown[key]))
    spans = shown["spans"]
    more = f" and {len(spans) - _LISTED} more" if len(spans) > _LISTED else ""
    table.add_row(Text.assemble(("spans", "bold"), " s"), ", ".join(f"{a:g}-{b:g}" for a, b in spans[:_LISTED]) + more)
    for name in ("meta", "runtime"):
        for key, value in shown[name].items():
            text = str(value)
            table.add_row(f"{name}.{key}", text if len(text) <= 200 else f"{text[:200]} ...")
    _console().print(table)


def _check_file(path: Path) -> list[Finding]:
    try:
        with opened(path) as box:
            raw = read_raw(box, where=str(path), stem=path.stem, complete=True)
    except CacheUnreadableError as error:
        return [validation.unreadable(str(path), error)]
    except OSError as error:
        return [validation.inaccessible(str(path), error)]
    return validation.findings(from_raw(raw, writable=False), raw.facts)


@app.command(epilog="Example: dms-cache check --baseline facemesh --severity WARN")
def check(
    files: Annotated[list[Path] | None, typer.Argument(help="Cache files; without any, the whole store.")] = None,
    root: Root = None,
    baseline: Names = None,
    severity: Annotated[Severity, typer.Option(help="Exit with 1 from this severity on.")] = Severity.ERROR,
    as_json: AsJson = False,
) -> None:
    """Ask every rule of the contract, of single files or of a whole store."""
    found: list[Finding] = []
    documents: dict[str, Any] = {}
    with _explained():
        if files:
            found = [finding for path in files for finding in _check_file(path)]
            checked = len(files)
        else:
            chosen = _Chosen(root, baseline)
            checked = 0
            for name in chosen.names:
                with _progress(f"checking {name}", shown=not as_json) as progress:
                    result = sweep(chosen.store, name, {}, progress=progress)
                found.extend(result.findings())
                documents[name] = result.totals
                checked += result.read
    grave = [f for f in found if f.severity is Severity.ERROR or severity is Severity.WARN]
    if as_json:
        _say_json({"checked": checked, "findings": [asdict(finding) for finding in found], "baselines": documents})
    else:
        console = _console()
        console.print(f"{checked} files checked, {len(found)} findings")
        if found:
            _print_findings(console, found)
    raise typer.Exit(1 if grave else 0)


@app.command("coverage", epilog="Example: dms-cache coverage --baseline facemesh")
def coverage_command(
    root: Root = None,
    baseline: Names = None,
    wanted: Table_ = None,
    window_s: Window = None,
    as_json: AsJson = False,
) -> None:
    """Show what is wanted, stored and missing, from the files' headers alone."""
    documents: dict[str, Any] = {}
    with _explained():
        chosen = _Chosen(root, baseline)
        table = chosen.wanted(wanted, window_s)
        for name in chosen.names:
            with _progress(f"reading {name}", shown=not as_json) as progress:
                found, findings = coverage.headers(chosen.store, name, progress)
            files = chosen.store.uids(name)
            routes, gaps = coverage.cover(table.spans, files, *coverage.header_runs(found), chosen.lead_in(name))
            asked = routes[routes["wanted_ticks"] > 0]
            documents[name] = {
                "routes_wanted": len(asked),
                "routes_covered": int((asked["covered_ticks"] == asked["wanted_ticks"]).sum()),
                "seconds": {
                    key: int(asked[f"{key}_ticks"].sum()) / HZ for key in ("wanted", "covered", "missing", "beyond")
                },
                "missing": [[uid, round(a, 1), round(b, 1)] for uid, a, b in gaps.itertuples(index=False)],
                "findings": [asdict(finding) for finding in findings],
            }
    if as_json:
        _say_json({"baselines": documents, "wanted_findings": [asdict(finding) for finding in table.findings]})
    else:
        _print_coverage(documents, list(table.findings))
    whole = all(each["routes_covered"] == each["routes_wanted"] for each in documents.values())
    if table.spans and not documents:
        whole = False
        _console(error=True).print(f"no baseline below {chosen.store.root.path}", style="yellow")
    raise typer.Exit(0 if whole and not table.findings else 1)


def _print_coverage(documents: dict[str, Any], refused: list[Finding]) -> None:
    console = _console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("baseline")
    for heading in ("routes", "covered", "wanted s", "missing s", "past video s", "bad files"):
        table.add_column(heading, justify="right")
    for name, each in documents.items():
        seconds = each["seconds"]
        numbers = [each["routes_wanted"], each["routes_covered"], seconds["wanted"], seconds["missing"]]
        table.add_row(name, *(f"{n:g}" for n in (*numbers, seconds["beyond"], len(each["findings"]))))
    console.print(table)
    for name, each in documents.items():
        for uid, start, end in each["missing"][:_LISTED]:
            console.print(f"{name} {uid}: {start:g}-{end:g} s missing", style="yellow")
        if len(each["missing"]) > _LISTED:
            console.print(f"... and {len(each['missing']) - _LISTED} more gaps in {name}; --json lists all")
    if refused:
        _print_findings(console, refused)


@app.command("plan", epilog="Example: dms-cache plan --json")
def plan_command(
    root: Root = None,
    baseline: Names = None,
    wanted: Table_ = None,
    window_s: Window = None,
    rebuild_stale: Annotated[bool, typer.Option(help="As if stale caches were to be rebuilt.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how every route stands and what the nightly job would do. Changes nothing."""
    from dms_assets.plan import Policy, Work, plan  # the video library takes its time to load

    documents = []
    with _explained():
        chosen = _Chosen(root, baseline)
        table = chosen.wanted(wanted, window_s)
        dms = chosen.files.dms
        policy = Policy(rebuild_stale=rebuild_stale or dms.rebuild_stale, settle_s=dms.settle_s)
        names = chosen.names if baseline else sorted({*chosen.names, *chosen.registry})
        for name in names:
            entry = chosen.baseline(name)
            videos = None if entry.external else chosen.files.videos
            documents.extend(plan(entry, table.spans, caches=chosen.store, videos=videos, policy=policy))
    rows = [
        {
            "baseline": each.baseline,
            "uid": each.uid,
            "state": str(each.state),
            "external": each.external,
            "work": str(each.work),
            "move_aside": each.move_aside,
            "missing": each.missing_spans.round(1).astype(float).tolist(),
            "beyond": each.beyond_spans.round(1).astype(float).tolist(),
            "why": each.why,
        }
        for each in documents
    ]
    due = [row for row in rows if row["work"] != str(Work.NONE)]
    if as_json:
        _say_json({"routes": rows, "wanted_findings": [asdict(finding) for finding in table.findings]})
    else:
        _print_plan(rows, due)
    raise typer.Exit(1 if due or table.findings else 0)


def _print_plan(rows: list[dict[str, Any]], due: list[dict[str, Any]]) -> None:
    console = _console()
    states: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["baseline"], row["state"]
        states[key] = states.get(key, 0) + 1
    counts = Table("baseline", "state", box=None, pad_edge=False, header_style="bold")
    counts.add_column("routes", justify="right")
    for (name, state), count in sorted(states.items()):
        counts.add_row(name, state, str(count))
    console.print(counts)
    listed = [*due, *(row for row in rows if row not in due and row["state"] != "covered")]
    for row in listed[:_LISTED]:
        console.print(f"{row['baseline']} {row['uid']}: {row['state']}, {row['why']}", style="yellow")
        if row["work"] != "none":
            console.print(f"  to do: {row['work']}")
    if len(listed) > _LISTED:
        console.print(f"... and {len(listed) - _LISTED} more; --json lists all")
    if not due:
        console.print("nothing to do")


@app.command(epilog=f"Example: dms-cache merge {_EXAMPLE} {_EXAMPLE} --out merged.npz")
def merge(
    first: Annotated[Path, typer.Argument(help="A cache file.")],
    second: Annotated[Path, typer.Argument(help="Another of the same route; its rows win.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the result is written; may be one of the two.")],
    allow_provenance_change: Annotated[bool, typer.Option(help="Merge other code versions or weights.")] = False,
    as_json: AsJson = False,
) -> None:
    """Merge two caches of one route into one file, in one step."""
    with _explained():
        try:
            out = npz_path(out.absolute())
            for path in (first, second):  # before a folder is made for the result
                cache_kind(path)
            with FileRoot(out.parent).lock(out.name):
                merged = load_any(first).merged_with(
                    load_any(second),  # type: ignore[arg-type] # another kind is refused with a clear error
                    allow_provenance_change=allow_provenance_change,
                )
                path = merged.save(out)
        except (CacheInvalidError, CacheUnreadableError) as error:
            raise _fail(error, 1) from error
        shown = cache_selftest.inspect(path)
    if as_json:
        _say_json({"path": str(path), **shown})
    else:
        spans = ", ".join(f"{a:g}-{b:g}" for a, b in shown["spans"][:_LISTED])
        _console().print(f"{path}: {shown['n']} rows, spans {spans} s")


@app.command("self-test", epilog="Example: dms-cache self-test")
def self_test_command(as_json: AsJson = False) -> None:
    """Write, read, merge and refuse caches in a temporary folder."""
    wrong = cache_selftest.self_test()
    if as_json:
        _say_json({"problems": wrong})
    else:
        _console().print("\n".join(wrong) or "self-test passed")
    raise typer.Exit(1 if wrong else 0)


def main() -> None:
    """The entry point."""
    run_command(lambda: app(prog_name="dms-cache"))


if __name__ == "__main__":
    main()
