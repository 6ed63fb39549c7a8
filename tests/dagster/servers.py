"""Servers that tests start on loopback and end again: PostgreSQL from Debian's package, and a webhook receiver."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def postgres_binaries() -> Path | None:
    """The newest installed server's programs (Debian keeps them off the PATH)."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(os.path.realpath(on_path)).parent if on_path else None


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[int]:
    """A PostgreSQL server on loopback with the database and user `dagster`; its port. Skips where none is installed."""
    binaries = postgres_binaries()
    if binaries is None:
        if os.environ.get("VIN_DMS_REQUIRE_ALL"):
            pytest.fail("PostgreSQL is required here and is not installed (Debian: postgresql)")
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    pytest.importorskip("dagster_postgres")
    data = folder / "data"
    data.mkdir(parents=True)
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        owner = next((n for n in ("postgres", "nobody") if _exists(n)), None)
        if owner is None:
            pytest.skip("PostgreSQL refuses to run as root, and there is no other user")
        account = pwd.getpwnam(owner)
        os.chown(data, account.pw_uid, account.pw_gid)
        for parent in [folder, *folder.parents]:
            if parent.stat().st_uid == 0 and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    port = free_port()
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "cwd": data, **as_user}
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    init: list[str | Path] = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        "dagster",
        "-A",
        "trust",
        "--no-sync",
        "-E",
        "UTF8",
    ]
    subprocess.run(init, check=True, env=environment, **quiet)
    options = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={data}"]
    server = subprocess.Popen(
        [binaries / "postgres", "-D", data, "-p", str(port), *options],
        env=environment,
        stderr=subprocess.DEVNULL,
        **quiet,
    )
    try:
        ready: list[str | Path] = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        for _ in range(200):
            if subprocess.run(ready, check=False).returncode == 0:
                break
            assert server.poll() is None, "PostgreSQL ended at once"
            threading.Event().wait(0.05)
        create: list[str | Path] = [
            binaries / "createdb",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-U",
            "dagster",
            "dagster",
        ]
        subprocess.run(create, check=True)
        yield port
    finally:
        server.send_signal(signal.SIGINT)  # ends at once, whoever is connected
        server.wait(20)


def create_database(port: int) -> str:
    """The name of a new empty database on the server at `port`."""
    import psycopg2

    name = f"test_{uuid.uuid4().hex}"
    connection = psycopg2.connect(host="127.0.0.1", port=port, user="dagster", dbname="dagster")
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    connection.close()
    return name


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@dataclass
class Webhook:
    """What a local web server was sent; while `down`, it answers 503 and keeps the titles alone."""

    port: int
    down: bool = False
    received: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The Apprise URL of this server, with a secret in its path."""
        return f"json://robot:pass-s3cret@127.0.0.1:{self.port}/hook-s3cret-token"

    def messages(self) -> list[str]:
        return [f"{item['title']}\n{item['message']}" for item in self.received]


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if state.down:
                state.refused.append(json.loads(body)["title"])
                self.send_response(503)
            else:
                state.received.append(json.loads(body))
                self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the library's)
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Webhook(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
