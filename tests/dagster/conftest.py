"""Real instances: SQLite in a folder of the test's own, and a PostgreSQL server that the session starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.defs_state.base import DefsStateStorage

from tests.dagster import servers


@pytest.fixture(scope="session")
def postgres_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.postgres(tmp_path_factory.mktemp("postgres")) as port:
        yield port


@pytest.fixture(params=["sqlite", "postgres"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    if request.param == "sqlite":
        with dg.instance_for_test(temp_dir=str(tmp_path)) as made:
            yield made
        return
    port = request.getfixturevalue("postgres_port")
    name = servers.create_database(port)
    database = {"username": "dagster", "password": "", "hostname": "127.0.0.1", "db_name": name, "port": port}
    overrides = {"storage": {"postgres": {"postgres_db": database}}}
    with dg.instance_for_test(overrides, temp_dir=str(tmp_path)) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_earlier_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions ask a context variable for the last instance's component state (there is none in this project).

    Instances that end in another order than they began leave one in it that is gone.
    """
    monkeypatch.setattr(DefsStateStorage, "get", staticmethod(lambda: None))
