"""`make run`: the main job end to end, through Dagster on a persistent instance, and what it did.

Belongs here: the order of steps and what is printed. Does not belong here: any work of the pipeline; every result comes
from the assets and checks of the two code locations, as a night's runs would give it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import dagster as dg
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo import dms, vin
from demo.instance import prepare_home
from demo.prepare import prepare
from demo.steps import Step, execute
from dms_assets.definitions import build_defs as dms_defs
from dms_assets.partitions import UIDS
from resources import history
from resources.command_line import heed_interrupts
from resources.config import PROJECT, Settings, load_settings
from vin_assets.definitions import build_defs as vin_defs
from vin_assets.partitions import STORES


def _location(
    console: Console,
    instance: dg.DagsterInstance,
    settings: Settings,
    defs: dg.Definitions,
    partitions: str,
    update: Callable[[dg.DagsterInstance, Settings], int],
    steps: Callable[[dg.DagsterInstance, Settings], list[Step]],
) -> int:
    """Bring one location up to date; the number of runs launched."""
    events = update(instance, settings)
    keys = instance.get_dynamic_partitions(partitions)
    console.print(f"[bold]{partitions}[/bold]: {len(keys)} partitions, {events} changes of inputs reported to Dagster")
    runs = 0
    for step in steps(instance, settings):
        began = time.monotonic()
        with console.status(f"{step.job}: {len(step.partitions) or 'all'} partitions ..."):
            failed = execute(instance, defs, step, keys)
        runs += 1
        outcome = "[green]done[/green]" if not failed else "[red]some partitions failed[/red]"
        console.print(
            f"  {step.job}: {len(step.partitions)} partitions in {time.monotonic() - began:.1f} s, {outcome}"
            f" [dim](because: {step.why})[/dim]"
        )
    if not runs:
        console.print("  nothing changed, nothing to do")
    return runs


def _assets(console: Console, instance: dg.DagsterInstance, location: str, defs: dg.Definitions) -> None:
    table = Table("asset", "partitions materialised", title=f"Assets of {location}", title_justify="left")
    for key in sorted(defs.resolve_all_asset_keys(), key=lambda key: key.to_user_string()):
        known = instance.get_latest_materialization_event(key)
        if known is not None:
            done = instance.get_materialized_partitions(key)
            table.add_row(key.to_user_string(), str(len(done)) if done else "yes")
    console.print(table)


def _checks(console: Console, instance: dg.DagsterInstance, location: str, defs: dg.Definitions) -> int:
    """Print how each check stands and why some fail; the number that fail."""
    keys = [key for check in defs.asset_checks or [] for key in check.check_keys]
    table = Table("check", "passed", "failed", title=f"Checks of {location}", title_justify="left")
    failures: list[tuple[Text, str]] = []
    for key in keys:
        states = [
            state for state in history.check_states(instance, [key]) if state.outcome is not history.Outcome.PLANNED
        ]
        if any(state.partition is not None for state in states):
            states = [state for state in states if state.partition is not None]
        bad = [state for state in states if state.outcome is history.Outcome.FAILED]
        name = f"{key.asset_key.to_user_string()}: {key.name}"
        if states:
            table.add_row(name, str(len(states) - len(bad)), f"[red]{len(bad)}[/red]" if bad else "0")
        for state in bad:
            answer = history.evaluations(instance, key, state.partition)[0]
            failures.append((Text.assemble((answer.severity, "red"), f" {name}"), answer.description))
    console.print(table)
    for title, description in failures:
        console.print(Padding.indent(title, 2))
        console.print(Padding.indent(Text(description), 6))
    return len(failures)


def main() -> int:
    """Prepare input, bring both locations up to date, say what came of it."""
    heed_interrupts()
    began = time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 1000)  # a file gets whole lines
    home = prepare_home()
    console.print("[bold]Input[/bold]: fixture stores, a small raw dataset, routes from a real in-car clip")
    for line in prepare(PROJECT / ".run" / "input") or ["everything is there already"]:
        console.print(f"  {line}")
    settings = load_settings()
    settings.dms.cache_root.mkdir(parents=True, exist_ok=True)  # a root that is missing is an error, not an empty one
    with dg.DagsterInstance.get() as instance:
        runs = _location(console, instance, settings, vin_defs(settings), STORES.name or "", vin.sync, vin.steps)
        runs += _location(console, instance, settings, dms_defs(settings), UIDS.name or "", dms.update, dms.steps)
        failed = 0
        for location, defs in (("VIN stores", vin_defs(settings)), ("DMS routes", dms_defs(settings))):
            _assets(console, instance, location, defs)
            failed += _checks(console, instance, location, defs)
    console.print(
        f"{runs} runs in {time.monotonic() - began:.0f} s. Results: {settings.output_root} and"
        f" {settings.dms.cache_root}. Instance: {home}."
    )
    console.print(
        f"{failed} failed checks. On the untouched demo they are meant to be there: a video is shorter than wanted, one"
        " is missing, one shows hardly any face. README.md walks from a failed check to its fix."
    )
    console.print("Open the UI with [bold]make ui[/bold]; it says the address.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
