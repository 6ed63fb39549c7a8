"""The lineage explains itself: nothing without a group, an owner, a kind and a description, in either location."""

import dagster as dg
import pytest

from dms_assets.definitions import build_defs as dms_definitions
from resources.config import Settings
from vin_assets.definitions import build_defs as vin_definitions


def _specs() -> list[dg.AssetSpec]:
    settings = Settings()
    found = []
    for definitions in (vin_definitions(settings), dms_definitions(settings)):
        found += list(definitions.resolve_all_asset_specs())
    return found


SPECS = {spec.key.to_user_string(): spec for spec in sorted(_specs(), key=lambda spec: spec.key.to_user_string())}
MADE = {name: spec for name, spec in SPECS.items() if name.split("/")[-1] not in {"raw_dataset", "offline_store"}}


@pytest.mark.parametrize("name", SPECS)
def test_every_asset_says_what_it_is_whose_and_of_what_kind(name: str) -> None:
    spec = SPECS[name]
    assert len(spec.description or "") > 40
    assert spec.group_name not in (None, "default")
    assert spec.group_name is not None
    assert spec.group_name.split("_")[0] == name.split("/")[0]
    assert spec.owners
    assert spec.kinds


def test_inputs_that_others_write_are_drawn_as_external_and_everything_else_depends_on_something() -> None:
    external = {
        node.key.to_user_string()
        for definitions in (vin_definitions(Settings()), dms_definitions(Settings()))
        for node in definitions.resolve_asset_graph().asset_nodes
        if node.is_external or not node.is_materializable
    }
    assert external == {
        *("vin/raw_dataset", "vin/offline_store"),
        *("dms/driver_video", "dms/driver_boxes", "dms/anchor_spans"),
    }
    alone = [name for name, spec in SPECS.items() if not list(spec.deps) and name not in external]
    assert alone == ["dms/report", "vin/report"]  # they read the history of all, not the results


@pytest.mark.parametrize("definitions", [vin_definitions(Settings()), dms_definitions(Settings())])
def test_every_check_job_sensor_and_schedule_is_described(definitions: dg.Definitions) -> None:
    repository = definitions.get_repository_def()
    for one in definitions.asset_checks or ():
        for spec in one.check_specs:
            assert len(spec.description or "") > 20, spec.name
    told = {one.name: one.description for one in repository.schedule_defs}
    told |= {one.name: one.description for one in repository.sensor_defs}
    for name, description in told.items():
        assert len(description or "") > 20, name
    for job in repository.get_all_jobs():
        if not job.name.startswith("__"):
            assert len(job.description or "") > 20, job.name
