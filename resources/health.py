"""`python -m resources.health`: is everything alive that works while nobody watches? One table, one exit code.

Exit codes: 0 all is well, 1 something is not (each line says what), 2 the instance can't be opened at all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import dagster as dg
import sqlalchemy.exc
import typer
from rich.console import Console
from rich.table import Table

from resources import liveness
from resources.config import settings_or_defaults
from resources.watching import sensor_name

LOCATIONS = ("vin_assets", "dms_assets")
_FIX_DAEMON = "start the daemon (make ui, or dagster-daemon run)"


@dataclass(frozen=True, slots=True)
class Sign:
    """Whether one thing is alive, how old its last sign of life is (seconds; None: never), and what is wrong."""

    kind: str
    name: str
    ok: bool
    age_s: float | None
    text: str = ""


def signs(
    instance: dg.DagsterInstance, now: float, webserver: str, max_age_s: float, locations: Sequence[str] = LOCATIONS
) -> list[Sign]:
    """Every daemon loop, code location, sensor and schedule of the instance.

    Daemon loops and alert sensors have to be younger than `max_age_s`; other sensors and schedules keep hours of their
    own and are judged by whether their last tick ended in an error. The webserver is asked for load errors; that it
    does not answer is told and is no failure, for it is not needed at night.
    """
    found = []
    for daemon in liveness.daemons(instance, now):
        ok = daemon.age_s is not None and daemon.age_s <= max_age_s and not daemon.errors
        text = "; ".join(daemon.errors) or ("" if ok else _FIX_DAEMON)
        found.append(Sign("daemon", daemon.name, ok, daemon.age_s, text))
    seen = liveness.instigators(instance)
    errors = liveness.location_errors(webserver)
    text = (
        ""
        if errors is not None
        else f"{webserver} does not answer (elsewhere? set [alerts] webserver_url); load errors can't be seen"
    )
    found.append(Sign("webserver", webserver, True, 0.0 if errors is not None else None, text))
    for location in locations:
        alerts = next((item for item in seen if (item.location, item.name) == (location, sensor_name(location))), None)
        age = None if alerts is None or alerts.tick_at is None else now - alerts.tick_at
        problem = (errors or {}).get(location, "")
        if not problem and errors is not None and location not in errors:
            problem = "the webserver's workspace does not have it"
        if not problem and (age is None or age > max_age_s):
            problem = f"its alert sensor does not tick: the location does not load, or {_FIX_DAEMON}"
        found.append(Sign("location", location, not problem, age, problem))
    for item in seen:
        age = None if item.tick_at is None else now - item.tick_at
        problem = item.error or "its last tick failed" if item.failed else ""
        if not item.running and item.name == sensor_name(item.location):
            problem = "switched off: nobody is told of failures"
        off = "" if item.running else "switched off"
        found.append(Sign(item.kind, f"{item.location}: {item.name}", not problem, age, problem or off))
    return found


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _show(found: Sequence[Sign]) -> None:
    table = Table("", "what", "name", "last sign", "", box=None, pad_edge=False)
    for sign in found:
        mark = "[green]ok[/]" if sign.ok else "[red]DOWN[/]"
        table.add_row(mark, sign.kind, sign.name, _age(sign.age_s), sign.text)
    console = Console()
    console.print(table)
    bad = sum(not sign.ok for sign in found)
    console.print("Everything is alive." if not bad else f"{bad} of {len(found)} are not.")


app = typer.Typer(add_completion=False)


@app.command()
def health(
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
    max_age: Annotated[float, typer.Option(help="seconds without a sign of life that are too many")] = 300.0,
) -> None:
    """Say whether daemon, code locations, sensors and schedules are alive; exit code 1 when something is not.

    Example: make health || echo 'look at the pipeline'
    """
    settings, _ = settings_or_defaults()
    if not os.environ.get("DAGSTER_HOME"):
        print("DAGSTER_HOME is not set: it names the folder with the instance's dagster.yaml.", file=sys.stderr)
        raise typer.Exit(2)
    try:
        with dg.DagsterInstance.get() as instance:
            found = signs(instance, time.time(), settings.alerts.webserver_url, max_age)
    except (dg.DagsterInvariantViolationError, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        print(f"The instance in {os.environ['DAGSTER_HOME']} can't be opened: {type(error).__name__}", file=sys.stderr)
        raise typer.Exit(2) from None
    if as_json:
        print(json.dumps([asdict(sign) for sign in found], indent=1))
    else:
        _show(found)
    if not all(sign.ok for sign in found):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
