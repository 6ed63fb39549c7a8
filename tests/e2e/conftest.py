"""A headless browser for the tests that read pages. Without Chromium they skip, or fail where all is required."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, sync_playwright

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def page() -> Iterator[Page]:
    """A page that talks to loopback only: anything else is aborted.

    Playwright keeps an event loop in this thread while it lives, and Dagster starts its own: it lives for one test.
    """
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("VIN_DMS_REQUIRE_ALL"):
            pytest.fail("Chromium is required here and is not installed (Debian: chromium)")
        pytest.skip("Chromium is not installed (Debian: chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.route(
            "**/*",
            lambda route: route.continue_() if route.request.url.startswith("http://127.0.0.1") else route.abort(),
        )
        opened = context.new_page()
        # A new profile gets a community dialog, which may come late and would catch every click.
        opened.add_locator_handler(opened.get_by_role("button", name="Skip").first, Locator.click)
        yield opened
        browser.close()
