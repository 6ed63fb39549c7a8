"""A live webserver and daemon on loopback, as `make ui` starts them, over an instance and roots of the test's own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]

Answer = TypeVar("Answer")


NEVER = "0 3 29 2 *"


def night(sync_interval_s: int = 5, **crons: str) -> str:
    """`[nightly]` of a configuration in which only the schedules of `crons` have their hour."""
    hours = dict.fromkeys(("vin_cron", "dms_cron", "reconcile_cron", "stores_cron"), NEVER) | crons
    lines = [f'{name} = "{cron}"' for name, cron in hours.items()]
    return "\n".join(["[nightly]", *lines, f"sync_interval_s = {sync_interval_s}"])


def wait_for(ask: Callable[[], Answer | None], what: str, seconds: float = 90.0, every: float = 0.5) -> Answer:
    """The first answer that is not None or False; a failed test, naming `what`, when there is none in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


@dataclass(frozen=True, slots=True)
class Live:
    """A running UI: its address, its DAGSTER_HOME, and where its output goes."""

    url: str
    home: Path
    log: Path
    process: subprocess.Popen[bytes]

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        """The `data` of a GraphQL answer; errors fail the test."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer["errors"]
        data: dict[str, Any] = answer["data"]
        return data

    def locations(self) -> dict[str, str]:
        """Each code location's name, and the name of what it loaded as (RepositoryLocation or PythonError)."""
        data = self.graphql(
            "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError"
            " { __typename } } } } }"
        )
        entries = data["workspaceOrError"]["locationEntries"]
        return {entry["name"]: (entry["locationOrLoadError"] or {}).get("__typename", "LOADING") for entry in entries}


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def live(folder: Path, environment: Mapping[str, str] | None = None, project: Path = ROOT) -> Iterator[Live]:
    """`make ui` of `project` over a DAGSTER_HOME below `folder`, ready to answer; ended by its process group."""
    port = free_port()
    home = folder / "dagster_home"
    home.mkdir(parents=True, exist_ok=True)
    log = folder / "ui.log"
    variables = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": str(project),
        "VIN_DMS_UI_PORT": str(port),
        **(environment or {}),
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.ui"],
            cwd=project,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Live(f"http://127.0.0.1:{port}", home, log, process)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            return "LOADING" not in running.locations().values()
        except (urllib.error.URLError, ConnectionError):
            return False

    try:
        wait_for(ready, f"the webserver answers (its log: {log})")
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
