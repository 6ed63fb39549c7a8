"""The instance configurations below `deploy/` load, are safe, and find runs whose process is gone."""

import json
import logging
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.test_utils import create_run_for_test
from dagster._daemon.monitoring.run_monitoring import monitor_started_run

from resources.config import PROJECT
from resources.run_launcher import MonitoredRunLauncher
from tests.dagster import servers


@pytest.fixture(params=["embedded", "postgres"])
def deployed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    shutil.copyfile(PROJECT / "deploy" / request.param / "dagster.yaml", tmp_path / "dagster.yaml")
    if request.param == "postgres":
        port = request.getfixturevalue("postgres_port")
        database = servers.create_database(port)
        values = {"HOST": "127.0.0.1", "PORT": str(port), "USER": "dagster", "PASSWORD": "", "DB": database}
        for name, value in values.items():
            monkeypatch.setenv(f"DAGSTER_PG_{name}", value)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.get() as instance:
        yield instance


def test_an_instance_is_quiet_bounded_watched_and_keeps_its_history(deployed: dg.DagsterInstance) -> None:
    assert not deployed.telemetry_enabled
    assert deployed.run_monitoring_enabled
    assert deployed.run_retries_enabled
    assert not deployed.run_retries_retry_on_asset_or_op_failure
    assert isinstance(deployed.run_launcher, MonitoredRunLauncher)
    assert 0 < deployed.get_concurrency_config().run_queue_config.max_concurrent_runs <= 4  # type: ignore[union-attr]
    deployed.add_dynamic_partitions("uid", ["a"])
    assert deployed.get_dynamic_partitions("uid") == ["a"]
    if "postgres" in type(deployed.event_log_storage).__name__.lower():
        assert not (Path(deployed.root_directory) / "history").exists(), "nothing of it lies in SQLite"


def test_a_run_whose_code_server_is_gone_is_marked_as_failed(deployed: dg.DagsterInstance, tmp_path: Path) -> None:
    run = create_run_for_test(
        deployed,
        "night",
        status=dg.DagsterRunStatus.STARTED,
        tags={GRPC_INFO_TAG: json.dumps({"host": "localhost", "socket": str(tmp_path / "gone")})},
    )
    (record,) = deployed.get_run_records()
    monitor_started_run(deployed, None, record, logging.getLogger("test"))  # type: ignore[arg-type]
    found = deployed.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status is dg.DagsterRunStatus.FAILURE


def test_a_code_server_that_only_does_not_answer_is_no_proof_that_its_run_is_gone(
    deployed: dg.DagsterInstance, tmp_path: Path
) -> None:
    assert isinstance(deployed.run_launcher, MonitoredRunLauncher)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "busy"))
        listening.listen(1)
        run = create_run_for_test(deployed, "night", tags={GRPC_INFO_TAG: '{"socket": "%s/busy"}' % tmp_path})  # noqa: UP031
        deployed.run_launcher._get_grpc_client_for_termination = lambda run_id: None  # type: ignore[method-assign]
        assert deployed.run_launcher.check_run_worker_health(run).status.value == "RUNNING"
