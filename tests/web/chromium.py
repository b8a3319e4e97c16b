"""Debian's Chromium, driven by Playwright."""

import os
import shutil

import pytest
from playwright.sync_api import Browser, Playwright, expect

from tests.waiting import PATIENCE_S

PATIENCE_MS = PATIENCE_S * 1_000


def launch(playwright: Playwright, *args: str) -> Browser:
    """Start a browser with further arguments; skips the test where there is none, but fails in CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no chromium on PATH")
    expect.set_options(timeout=PATIENCE_MS)  # 5 s by default
    return playwright.chromium.launch(executable_path=program, timeout=PATIENCE_MS, args=list(args))
