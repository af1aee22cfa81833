"""A real browser for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """Run Chromium, if there is one; without it the test is skipped, but not in continuous integration."""
    from playwright import sync_api

    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    assert found or "CI" not in os.environ, "Continuous integration must install Chromium."
    if not found:
        pytest.skip("No browser found: install Chromium to run this test.")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found[0], args=["--no-sandbox"])
        yield running
        running.close()
