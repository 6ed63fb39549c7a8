"""Dagster's default run launcher, made able to tell that a run's process is gone.

The default one can't, so after a power cut its runs stay "started" for ever and hold their places in the queue. With
this one, run monitoring finds them, marks them as failed, and run retries launch them once more. Named in the
instance's `dagster.yaml`; nothing imports it.
"""

import contextlib
import json
import socket
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._core.launcher.default_run_launcher import DefaultRunLauncher
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
from dagster._serdes import deserialize_value


def _gone(server: dict[str, Any]) -> bool:
    """Whether nothing listens where the run's code server was. Silence is no proof: only a refusal is."""
    address: Any = server.get("socket") or (server.get("host"), server.get("port"))
    family = socket.AF_UNIX if server.get("socket") else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return True
        except OSError:
            return False
    return False


class MonitoredRunLauncher(DefaultRunLauncher):
    """Launches runs in the location's code server, and knows whether they are still there."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: run monitoring may ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """RUNNING unless the run's code server is gone, or has no such run."""
        tag = run.tags.get(GRPC_INFO_TAG)
        if tag is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "launched outside a code server")
        if _gone(json.loads(tag)):
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server is gone, as after a power cut")
        client = self._get_grpc_client_for_termination(run.run_id)  # type: ignore[no-untyped-call]
        if client is not None:
            with contextlib.suppress(DagsterUserCodeUnreachableError):
                answer = deserialize_value(
                    client.can_cancel_execution(CanCancelExecutionRequest(run_id=run.run_id)), CanCancelExecutionResult
                )
                if not answer.can_cancel:
                    return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server has no such run")
        return CheckRunHealthResult(WorkerStatus.RUNNING)
