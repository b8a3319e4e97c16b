"""Debian's Chromium, driven by Playwright."""

import os
import shutil

import pytest
from playwright.sync_api import Browser, Playwright

__all__ = ["launch"]


def launch(playwright: Playwright) -> Browser:
    """Start a browser; skips the test where there is none, but fails in CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no chromium on PATH")
    return playwright.chromium.launch(executable_path=program)
