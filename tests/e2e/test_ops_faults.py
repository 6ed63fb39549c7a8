"""Ten faults under a live webserver and daemon: each is told once where it is, and so is its end. Nothing else is."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dms_assets.baselines import registry
from resources.config import PROJECT
from resources.watching import sensor_name
from tests.builders import third_party, vin, vin_damage
from tests.builders.dms import frames, windows
from tests.builders.video import encode, numbered
from tests.dagster import servers
from tests.dagster.servers import Webhook, webhook
from tests.e2e.live import NEVER, Live, live, night, wait_for
from tests.e2e.test_ui import copy_of_the_project

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(600)]

ROUTES = [f"00aa11bb22cc33dd_{number:05}" for number in range(1, 8)]
TRUNCATED, WRONG_ROWS, WANTED, DELETED, REPLACED, RAISING, HEALTHY = ROUTES
BASELINES = {
    "ext": {"extractor": "external", "channels": ["c0", "c1", "c2", "c3"], "code_version": "1"},
    "raises": {"extractor": "raises", "channels": ["number", "left"], "code_version": "1"},
}


@dataclass
class World:
    """Roots of the test's own, and how faults get in and out."""

    folder: Path
    spans: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROUTES, 5.0))

    def cache(self, uid: str, baseline: str = "ext") -> Path:
        return self.folder / "caches" / "cache" / baseline / f"{uid}.npz"

    def want(self) -> None:
        lines = ["uid,t_start,t_end", *(f"{uid},0,{end}" for uid, end in self.spans.items()), ""]
        temporary = self.folder / "wanted.new"
        temporary.write_text("\n".join(lines))
        os.replace(temporary, self.folder / "wanted.csv")

    def put(self, uid: str, baseline: str = "ext", **more: object) -> None:
        entry = registry(BASELINES)[baseline]
        meta: dict[str, Any] = {"code_version": entry.code_version, "weight_sha256": entry.weight_sha256, **more}
        if entry.win_len:
            windows(uid, 0, 65, baseline=baseline, stride=1, length=entry.win_len, **meta).save(
                self.cache(uid, baseline)
            )
            return
        cache = frames(uid, 0, 50, baseline=baseline, channels=len(entry.channels), fail={}, **meta)
        cache.channels = list(entry.channels)
        cache.save(self.cache(uid, baseline))

    def build(self) -> None:
        for name in ("caches", "videos", "stores"):
            (self.folder / name).mkdir(parents=True)
        for uid in ROUTES:
            for baseline in registry(BASELINES):
                self.put(uid, baseline)
        self.want()
        encode(numbered(240), self.folder / "videos" / f"{RAISING}.hevc")
        for version in (7, 8, 11):
            vin.tiny_store(self.folder / "stores", version).rename(self.folder / "stores" / f"v{version}")
        vin.raw_dataset(self.folder)

    def configure(self) -> Path:
        raw = self.folder / "raw"
        baselines = "\n".join(
            f"[dms.baselines.{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in entry.items())
            for name, entry in BASELINES.items()
        )
        file = self.folder / "pipeline.toml"
        file.write_text(
            f"""
output_root = "out"
[vin]
store_roots = ["stores"]
raw_roots = ["{raw}"]
raw_data_root = "{raw}"
finite_labels_min = 0.9999
[dms]
cache_root = "caches"
video_root = "videos"
wanted_spans = "wanted.csv"
settle_s = 1
{night(reconcile_cron="* * * * *")}
[alerts]
interval_s = 5
settle_s = 10
watch_s = 120
digest_cron = "{NEVER}"
{baselines}
"""
        )
        return file


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of an instance on either storage; its DAGSTER_HOME is prepared below `tmp_path`."""
    home = tmp_path / "dagster_home"
    home.mkdir()
    kind = "embedded" if request.param == "sqlite" else "postgres"
    shutil.copy(PROJECT / "deploy" / kind / "dagster.yaml", home / "dagster.yaml")
    if kind == "embedded":
        yield {}
        return
    with servers.postgres(tmp_path / "server") as port:
        values = {"HOST": "127.0.0.1", "PORT": str(port), "USER": "dagster", "PASSWORD": "", "DB": "dagster"}
        yield {f"DAGSTER_PG_{name}": value for name, value in values.items()}


_ITEM = re.compile(r"^(ERROR|WARN|OK)(?: [a-z][a-z ]+)?  (.+?)(?: \(.* since .*\))?$")


def items(messages: list[str], good: bool) -> Counter[str]:
    """The roots that were told: as failing, or (`good`) as over.

    More is wanted of RAISING in every baseline; which one leads the alert is a matter of timing.
    """
    found: Counter[str] = Counter()
    for message in messages:
        for line in message.splitlines():
            match = _ITEM.match(line)
            if match and (match[1] == "OK") == good:
                found[re.sub(rf"dms/\w+/(route_cache \[{RAISING}\])", r"dms/raises/\1", match[2])] += 1
    return found


def launch(ui: Live, location: str, job: str, partition: str) -> str:
    """Start a run of one partition, as the launchpad does; its id."""
    query = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename
        ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
    selector = {"repositoryLocationName": location, "repositoryName": "__repository__", "jobName": job}
    tags = [{"key": "dagster/partition", "value": partition}]
    params = {"selector": selector, "mode": "default", "runConfigData": {}, "executionMetadata": {"tags": tags}}
    answer = ui.graphql(query, p=params)["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def ended(ui: Live, run: str) -> str | None:
    status = ui.graphql("query($r: ID!) { runOrError(runId: $r) { ... on Run { status } } }", r=run)["runOrError"]
    return str(status["status"]) if status["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None


def reload(ui: Live, location: str) -> None:
    ui.graphql(
        "mutation($l: String!) { reloadRepositoryLocation(repositoryLocationName: $l) { __typename } }", l=location
    )


def partitions(ui: Live, *asset: str) -> tuple[int, int]:
    """Materialised and failed partitions of an asset, as its page counts them."""
    query = """query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { partitionStats {
        numMaterialized numFailed } } } }"""
    stats = ui.graphql(query, k={"path": list(asset)})["assetNodeOrError"]["partitionStats"]
    return stats["numMaterialized"], stats["numFailed"]


def test_ten_faults_are_each_told_once_and_so_is_their_repair(
    tmp_path: Path, storage: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "world")
    world.folder.mkdir()
    monkeypatch.syspath_prepend(str(third_party.install(world.folder)))
    world.build()
    config = world.configure()
    project = copy_of_the_project(tmp_path / "project")
    shutil.copytree(PROJECT / "tests", project / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    with webhook() as hook:
        environment = {
            **storage,
            "VIN_DMS_CONFIG": str(config),
            "VIN_DMS_ALERTS__URLS": json.dumps([hook.url]),
            "PYTHONPATH": f"{project}{os.pathsep}{world.folder}",
        }
        with live(tmp_path, environment, project) as ui:
            walk(ui, world, hook, project)
        secrets = [path for path in tmp_path.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
        assert [path for path in secrets if path.suffix not in (".py", ".pyc")] == [], "a secret lies in a log or event"


def walk(ui: Live, world: World, hook: Webhook, project: Path) -> None:
    stores = world.folder / "stores"

    def told(good: bool, wanted: Counter[str], what: str, seconds: float = 150) -> None:
        def all_there() -> bool:
            return all(items(hook.messages(), good)[name] >= count for name, count in wanted.items())

        try:
            wait_for(all_there, what, seconds)
        except AssertionError:
            lines = "\n".join(ui.log.read_text().splitlines()[-40:])
            raise AssertionError(f"{what}; told: {items(hook.messages(), good)}\n{hook.messages()}\n{lines}") from None

    # A healthy beginning: every cache is adopted, every store computed, and nobody is told of anything.
    wait_for(lambda: partitions(ui, "dms", "ext", "route_cache") == (len(ROUTES), 0), "caches are adopted", 150)
    wait_for(lambda: partitions(ui, "vin", "offline_store")[0] == 3, "stores are recorded")
    for run in [launch(ui, "vin_assets", "vin_store_results", name) for name in ("v7", "v8", "v11")]:
        assert wait_for(lambda run=run: ended(ui, run), "statistics", 120) == "SUCCESS"  # type: ignore[misc]
    assert hook.messages() == []

    # Eight faults while the webhook is down.
    hook.down = True
    good = {uid: world.cache(uid).read_bytes() for uid in ROUTES}
    world.cache(TRUNCATED).write_bytes(good[TRUNCATED][: len(good[TRUNCATED]) // 2])
    wrong = frames(WRONG_ROWS, 0, 50, baseline="ext", fail={}, code_version="1")
    np.savez_compressed(world.cache(WRONG_ROWS), **{**wrong.arrays(), "valid": ~wrong.valid})
    world.spans[WANTED] = 7.0
    world.cache(DELETED).unlink()
    world.put(REPLACED, code_version="2")
    world.spans[RAISING] = 8.0
    world.want()
    run = launch(ui, "dms_assets", "dms_raises_routes", RAISING)
    shutil.copytree(stores / "v8", world.folder / "other")
    (stores / "v7").rename(world.folder / "v7")
    (world.folder / "other").rename(stores / "v7")
    labels_file = vin_damage.chunk(stores / "v8", "oracle.rri")
    good_labels = labels_file.read_bytes()
    vin_damage.change_chunk("oracle.rri", "<f4", 0, np.nan)(stores / "v8")
    labels = launch(ui, "vin_assets", "vin_store_results", "v8")
    assert wait_for(lambda: ended(ui, run), "the extractor raises", 120) == "FAILURE"
    assert wait_for(lambda: ended(ui, labels), "labels", 120) == "SUCCESS"
    both = {"vin_assets", "dms_assets"}
    wait_for(lambda: {title.split(":")[0] for title in hook.refused} == both, "alerts of both meet the outage", 120)
    hook.down = False
    faults = Counter(
        [
            f"dms/ext/route_cache [{TRUNCATED}] cache_valid",
            f"dms/ext/route_cache [{WRONG_ROWS}] cache_valid",
            f"dms/ext/route_cache [{WANTED}] span_coverage",
            f"dms/ext/route_cache [{DELETED}] span_coverage",
            f"dms/ext/route_cache [{REPLACED}] provenance_current",
            f"dms/raises/route_cache [{RAISING}] span_coverage",
            "vin/store_stats [v7] generation_current",
            "vin/store_stats [v8] labels_usable",
        ]
    )
    told(False, faults, "eight faults are told")
    assert "out of luck" in "".join(hook.messages()), "why the extractor failed is said in its route's alert"

    # Their repair.
    for uid in (TRUNCATED, WRONG_ROWS, DELETED, REPLACED):
        temporary = world.folder / "repaired"
        temporary.write_bytes(good[uid])
        os.replace(temporary, world.cache(uid))
    world.spans |= {WANTED: 5.0, RAISING: 5.0}
    world.want()
    (stores / "v7").rename(world.folder / "bad")
    (world.folder / "v7").rename(stores / "v7")
    labels_file.write_bytes(good_labels)
    for name in ("v7", "v8"):
        launch(ui, "vin_assets", "vin_store_results", name)
    told(True, faults, "eight repairs are told")

    # A tar that was cut short, found by the next look at each store; and a code location with a syntax error.
    tar = next((world.folder / "raw").rglob("*.tar"))
    whole = tar.read_bytes()
    tar.write_bytes(whole[: len(whole) // 2 + 100])
    module = project / "dms_assets" / "assets.py"
    source = module.read_text()
    module.write_text(source + "\ndef broken(:\n")
    reload(ui, "dms_assets")
    launch(ui, "vin_assets", "vin_store_results", "v11")
    more = Counter(["vin/store_coverage [v11] tars_readable", "dms_assets"])
    told(False, more, "a damaged tar and a broken location are told")
    tar.write_bytes(whole)
    module.write_text(source)
    reload(ui, "dms_assets")
    launch(ui, "vin_assets", "vin_store_results", "v11")
    told(True, more, "their repairs are told")

    for location in ("vin_assets", "dms_assets"):
        ticks = json.dumps(ticks_of(ui, location))
        assert "503" in ticks, f"{location}: the outage is on the sensor's page"
        assert "s3cret" not in ticks, "and its address is not"

    # Once each, and nothing else.
    assert items(hook.messages(), good=False) == faults + more
    assert items(hook.messages(), good=True) == faults + more
    assert len(hook.received) == len({json.dumps(item, sort_keys=True) for item in hook.received})
    assert partitions(ui, "dms", "ext", "route_cache") == (len(ROUTES), 0)
    assert {sensor_name("vin_assets"), sensor_name("dms_assets")} <= set(sensors(ui))


def ticks_of(ui: Live, location: str) -> dict[str, Any]:
    """What the page of a location's alert sensor shows: its ticks with their errors and skip reasons."""
    query = """query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState {
        ticks(limit: 500) { status skipReason error { message stack errorChain { error { message } } } } } } } }"""
    selector = {"repositoryLocationName": location, "repositoryName": "__repository__"}
    return ui.graphql(query, s={**selector, "sensorName": sensor_name(location)})


def sensors(ui: Live) -> list[str]:
    data = ui.graphql(
        "{ repositoriesOrError { ... on RepositoryConnection { nodes { sensors { name sensorState { status } } } } } }"
    )
    nodes = data["repositoriesOrError"]["nodes"]
    return [s["name"] for node in nodes for s in node["sensors"] if s["sensorState"]["status"] == "RUNNING"]
