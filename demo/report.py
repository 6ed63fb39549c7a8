"""`make report`: the night as one HTML page below the output root, and where it lies.

Belongs here: loading the code locations, of which one may be broken, and publishing the page. Does not belong here:
what it says (`resources.night`) and how it looks (`resources.report`).
"""

from __future__ import annotations

import datetime
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg

from demo.instance import prepare_home
from resources.config import Settings, settings_or_defaults
from resources.night import Graph, night_report
from resources.report_asset import publish_page

LOCATIONS = ("vin_assets.definitions", "dms_assets.definitions")


def graphs(locations: Sequence[str]) -> tuple[dict[str, Graph], dict[str, str]]:
    """The asset graph of each code location that loads, and why the others don't."""
    found: dict[str, Graph] = {}
    broken: dict[str, str] = {}
    for name in locations:
        try:
            found[name] = importlib.import_module(name).defs.resolve_asset_graph()
        except Exception as error:  # a location's import may raise anything, and the page has to say so
            logging.exception("%s is left out", name)
            broken[name] = f"{type(error).__name__}: {error}"
    return found, broken


def write(
    instance: dg.DagsterInstance, settings: Settings, loaded: Mapping[str, Graph], broken: Mapping[str, str]
) -> Path:
    """Publish the page of now below the output root.

    Raises:
        OSError: as `publish_page`.
    """
    made = datetime.datetime.now(ZoneInfo(settings.nightly.timezone))
    pages = [dg.AssetKey([location, "report"]) for location in ("vin", "dms")]
    url = settings.alerts.webserver_url
    told = night_report(instance, loaded, made=made, webserver_url=url, broken=broken, leave_out=pages)
    return publish_page(settings, told, "night")


def main() -> int:
    """Write the page and say where it is; 1 when a code location could not be loaded."""
    prepare_home()
    settings, _ = settings_or_defaults()
    loaded, broken = graphs(LOCATIONS)
    with dg.DagsterInstance.get() as instance:
        print(write(instance, settings, loaded, broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
