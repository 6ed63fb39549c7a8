"""The documentation does what it says: every command is run, every configuration loaded, every change applied.

Commands stand in `console` blocks behind `$ `, and run in the order of the page in a copy of the project. A comment
`<!-- may fail -->` before a block allows an exit code; pages are independent of each other, but for what `make run` of
the README has made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import FloatRect, Locator, Page

from dms_assets.baselines import registry
from resources.config import load_settings
from tests.dagster import servers
from tests.e2e.live import ROOT, free_port, live, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {"configuration.md", "vin-rules.md", "dms-rules.md", "checks.md"}
SERVERS = ("make ui", "dagster-webserver", "dagster-daemon")
ROUTE = "00aa11bb22cc33dd_2026-10-01--17-30-00"
_BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^>]*) -->\n\s*)?^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text without indentation, and the comment before it."""

    page: str
    kind: str
    text: str
    note: str

    @property
    def commands(self) -> list[str]:
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]


def blocks(page: Path, *kinds: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        indent = len(match["indent"])
        text = "".join(line[indent:] for line in match["text"].splitlines(keepends=True))
        found.append(Block(page.name, match["kind"], text, match["note"] or ""))
    return [block for block in found if not kinds or block.kind in kinds]


@dataclass
class Shell:
    """Runs the commands of one page, with the variables that earlier ones exported."""

    folder: Path
    port: int
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, command: str, *, may_fail: bool = False) -> str:
        if command.startswith(SERVERS):
            return self.serve(command)
        script = f"set -euo pipefail\n{command}\n"
        if command.startswith("export "):
            script += "env -0"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert may_fail or done.returncode == 0, f"$ {command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        if command.startswith("export "):
            self.environment = dict(item.split("=", 1) for item in done.stdout.split("\0") if "=" in item)
        return done.stdout

    def serve(self, command: str) -> str:
        """Start a server, see it answer or work, and end it."""
        command = command.removesuffix("&").strip()
        log = self.folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ready = re.compile(r"Open http|Serving dagster-webserver|Instance is configured with the following daemons")

        def answers() -> bool:
            assert process.poll() is None, log.read_text()[-2000:]
            return ready.search(log.read_text()) is not None

        try:
            wait_for(answers, f"{command} is ready")
            if command == "make ui":
                with urllib.request.urlopen(wait_for(self.url, "the webserver answers")) as page:
                    assert page.status == 200
        finally:
            os.killpg(process.pid, 15)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        return log.read_text()

    def url(self) -> str | None:
        url = f"http://127.0.0.1:{self.port}"
        try:
            urllib.request.urlopen(url).close()
        except OSError:
            return None
        return url


def copy_of_the_project(target: Path) -> Path:
    """The tracked files, with this interpreter's environment as `.venv`, so that make has nothing to install."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, names.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    for entry in Path(sys.prefix).iterdir():
        if entry.name in ("bin", "lib", "lib64", "include", "pyvenv.cfg"):
            (target / ".venv").mkdir(exist_ok=True)
            (target / ".venv" / entry.name).symlink_to(entry)
    (target / ".venv" / "installed").touch()
    return target


def shell(folder: Path) -> Shell:
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR", "USER") if name in os.environ}
    port = free_port()
    path = f"{folder / 'bin'}:{folder / '.venv' / 'bin'}:{os.environ['PATH']}"
    return Shell(folder, port, {**kept, "PATH": path, "PYTHONPATH": str(folder), "VIN_DMS_UI_PORT": str(port)})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_of_the_project(tmp_path_factory.mktemp("project"))
    # The installed commands belong to the project that is installed; these run the copy.
    for name, module in (("vin-store", "vin_assets.cli"), ("dms-cache", "dms_assets.cli")):
        script = folder / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec python -c "import sys; from {module} import main; sys.exit(main())" "$@"\n')
        script.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def ran(project: Path) -> Path:
    """The project after `make run`, which every page builds on."""
    shell(project).run("make run")
    return project


def test_every_page_is_reached_from_the_readme_and_every_link_leads_somewhere() -> None:
    linked = {"README.md"}
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
                linked.add(Path(target).name)
    assert {page.name for page in PAGES} <= linked


def test_every_fenced_block_is_of_a_kind_that_is_tested() -> None:
    kinds = {block.kind for page in PAGES for block in blocks(page)}
    assert kinds <= {"console", "toml", "diff"}
    for page in PAGES:
        for block in blocks(page, "console"):
            assert block.commands, f"{page.name}: a console block without a command"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.name)
def test_every_configuration_can_be_loaded(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        file = tmp_path / "pipeline.toml"
        file.write_text(block.text)
        settings = load_settings(file)
        assert registry(settings.dms.baselines)


@pytest.mark.soak
def test_the_readme_leads_from_nothing_to_a_failing_check_and_its_fix(ran: Path, page: Page) -> None:
    walk_the_pages(ran, page)
    here = shell(ran)
    first, *rest = [command for block in blocks(ROOT / "README.md", "console") for command in block.commands]
    assert first == "make run"  # the fixture has done it
    said = {command: here.run(command) for command in rest}
    assert "dms_reconcile" in said["make run"]
    assert "lie past the end of the video" not in said["make run"]
    assert "6.1 s of the wanted spans" not in Path(said["make report"].strip()).read_text()


def seen(page: Page, text: str) -> Locator:
    """The first place that shows `text`; Dagster keeps a hidden copy of a name that it shortens."""
    return page.get_by_text(text).locator("visible=true").first


def walk_the_pages(ran: Path, page: Page) -> None:
    """Lineage, the failing route's check with its gap and remedy, its timeline, and the figures of a store.

    With VIN_DMS_SCREENSHOTS, a folder, the pictures of the documentation are taken there.
    """
    pictures = os.environ.get("VIN_DMS_SCREENSHOTS")

    def picture(name: str, settle_ms: int = 1500, around: Locator | None = None) -> None:
        """The page, or the dialog around an image: what lies behind shows paths of the machine."""
        if pictures:
            page.mouse.move(1, 1)
            page.wait_for_timeout(settle_ms)
            clip: FloatRect | None = None
            if around is not None and (box := around.bounding_box()):
                top = max(box["y"] - 66, 0)
                height = min(box["y"] + box["height"] + 20, 900) - top
                clip = {"x": box["x"] - 20, "y": top, "width": box["width"] + 40, "height": height}
            page.screenshot(path=Path(pictures) / f"{name}.png", clip=clip)

    with live(ran / ".run", project=ran) as ui:
        page.goto(f"{ui.url}/asset-groups")
        page.get_by_text("dms_facemesh").first.wait_for(timeout=60_000)
        page.get_by_text("dms_facemesh").last.click()
        page.get_by_text("route_summary").first.wait_for(timeout=30_000)
        groups = ",".join(
            f"global@global:{name}" for name in ("vin_raw", "vin_stores", "dms_inputs", "dms_facemesh", "dms")
        )
        page.goto(f"{ui.url}/asset-groups?expanded={urllib.parse.quote(groups)}")
        for name in ("raw_dataset", "store_stats", "driver_video", "anchor_spans", "route_cache"):
            page.get_by_text(name).first.wait_for(timeout=30_000)
        page.set_viewport_size({"width": 1700, "height": 1250})
        page.reload()
        zoom_out = page.locator("[aria-label='zoom_out']")
        for _ in range(4 if pictures else 0):
            zoom_out.click()
            page.wait_for_timeout(500)
        picture("lineage", settle_ms=10_000)
        page.set_viewport_size({"width": 1400, "height": 900})

        def open_partition(asset: str, partition: str) -> None:
            """As one gets there: the asset in the lineage, its page, the partition in its list."""
            seen(page, asset).click()
            page.get_by_text("View in Asset Catalog").click()
            page.get_by_role("tab", name="Partitions").click()
            seen(page, partition).click()

        open_partition("route_cache", "-03--08-05-00")
        page.get_by_text("failed, and did not materialize this asset").wait_for()
        page.get_by_role("tab", name="Checks").click()
        page.get_by_text("span_coverage").first.click()
        page.get_by_text("Latest execution").wait_for(timeout=60_000)
        page.get_by_text("Partitions", exact=True).last.click()
        seen(page, "08-05-00").click()
        page.get_by_text("5.1 s of the wanted spans are not stored: 0.0-5.0 s").first.wait_for()
        page.get_by_text("there is no driver video").first.wait_for()
        seen(page, "17-30-00").click()
        page.get_by_text("6.1 s of the wanted spans lie past the end of the video: 20.0-26.0 s").first.wait_for()
        page.get_by_text("fetch the rest of the video").first.wait_for()
        picture("check")

        page.goto(f"{ui.url}/assets/dms/facemesh/route_cache?view=partitions&partition={ROUTE}")
        page.get_by_text("Show Markdown").first.click(timeout=60_000)
        image = page.get_by_alt_text("Timeline, facemesh")
        image.wait_for()
        assert image.evaluate("image => image.complete && image.naturalWidth") == 720
        picture("timeline", around=image)

        page.goto(f"{ui.url}/asset-groups?expanded={urllib.parse.quote(groups)}")
        open_partition("store_stats", "tiny_v11")
        page.get_by_text("Show Markdown").first.click(timeout=60_000)
        for title in ("RRI of the candidates", "Candidates per snippet", "Candidate poses in the reference-rig frame"):
            page.get_by_alt_text(title).wait_for()
        picture("store_figures", around=page.get_by_alt_text("RRI of the candidates"))

        page.goto(f"{ui.url}/assets/dms/overview?view=overview")
        page.get_by_text("Show Markdown").first.click(timeout=60_000)
        page.get_by_alt_text("Coverage").wait_for()
        picture("overview", around=page.get_by_alt_text("Coverage"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[dict[str, str]]:
    """How the PostgreSQL clients reach a server of this test."""
    with servers.postgres(tmp_path) as port:
        yield {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "dagster"}


@pytest.mark.soak
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES[1:] if blocks(page, "console") and not blocks(page, "diff") and page.name not in GENERATED],
    ids=lambda page: page.name,
)
def test_every_command_of_a_page_works(ran: Path, page: Path, request: pytest.FixtureRequest) -> None:
    here = shell(ran)
    if page.name == "postgres.md":
        here.environment |= request.getfixturevalue("database")
        here.environment["PATH"] += f":{servers.postgres_binaries()}"
    for block in blocks(page, "console"):
        for command in block.commands:
            here.run(command, may_fail=block.note == "may fail")


@pytest.mark.soak
@pytest.mark.parametrize("name", ["add-a-rule.md", "add-a-baseline.md"])
def test_a_rule_and_a_baseline_are_added_by_the_page_alone(tmp_path: Path, name: str) -> None:
    page = ROOT / "docs" / name
    folder = copy_of_the_project(tmp_path)
    here = shell(folder)
    prose = re.sub(r"^```diff$.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for change in blocks(page, "diff"):
        touched = re.findall(r"^\+\+\+ b/(\S+)$", change.text, re.MULTILINE)
        assert all(path in prose or "/extractors/" in path for path in touched), "the page names the files it touches"
        (folder / "change.diff").write_text(change.text)
        here.run("git apply -C1 change.diff")
    for block in blocks(page, "console"):
        for command in block.commands:
            here.run(command)
    if name == "add-a-rule.md":
        assert "`written_utc`" in (folder / "docs" / "dms-rules.md").read_text()
        assert "`created_at_unclear`" in (folder / "docs" / "vin-rules.md").read_text()


@pytest.mark.parametrize("target", ["run", "ui", "test", "soak", "lint", "bench", "health", "report", "docs"])
def test_every_make_target_that_is_named_exists(project: Path, target: str) -> None:
    assert shell(project).run(f"make -n {target}")
