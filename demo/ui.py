"""`make ui`: the webserver and the daemon on 127.0.0.1, over the instance that `make run` filled, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from demo.instance import create_storage, prepare_home
from resources.command_line import heed_interrupts
from resources.config import PROJECT

HOST = os.environ.get("VIN_DMS_UI_HOST", "127.0.0.1")
PORT = int(os.environ.get("VIN_DMS_UI_PORT", "3000"))


def _port_is_free() -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, PORT))
        except OSError:
            return False
    return True


def main() -> int:
    """Run both processes; end both when one ends or on Ctrl-C. The exit code is 1 when one ended by itself."""
    heed_interrupts()
    home = prepare_home()
    if not _port_is_free():
        print(
            f"Port {PORT} of {HOST} is taken: end what listens there, or choose one with VIN_DMS_UI_PORT=3001 make ui"
        )
        return 1
    create_storage()
    workspace = str(PROJECT / "workspace.yaml")
    programs = Path(sys.executable).parent
    commands = [
        [str(programs / "dagster-webserver"), "-h", HOST, "-p", str(PORT), "-w", workspace],
        [str(programs / "dagster-daemon"), "run", "-w", workspace],
    ]
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": os.pathsep.join(paths)}
    if "VIN_DMS_UI_PORT" in os.environ:  # links in alerts lead to where the pages are
        environment.setdefault("VIN_DMS_ALERTS__WEBSERVER_URL", f"http://{HOST}:{PORT}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    running = [subprocess.Popen(command, cwd=PROJECT, env=environment, start_new_session=True) for command in commands]
    print(f"Open http://{HOST}:{PORT} (instance: {home}). Ctrl-C ends it.")
    try:
        while all(process.poll() is None for process in running):
            time.sleep(0.5)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
