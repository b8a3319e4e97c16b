"""Takes pictures of the pages: ``python -m tests.web.pictures [DIRECTORY]``, for docs/web-ui.md and to look at."""

import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from fastq.web import FastqWeb
from tests.ports import free_port
from tests.redis_servers import redis_server
from tests.web.chromium import launch
from tests.web.prometheus import recorded
from tests.web.scene import PAGES, RUNS, SHOP, fill
from tests.web.serving import Served, serving

DIRECTORY: Final = Path(__file__).parents[2] / "docs" / "web"
SHOWN: Final = ("queues", "queue", "task", "servers", "schedulers")
"""The pages of which docs/web-ui.md has a picture."""


def take(browser: Browser, served: Served, directory: Path, *, width: int, scheme: str, names: tuple[str, ...]) -> None:
    """Take a picture of each page, as wide as a screen and as high as it is."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]  # "light" or "dark"
    for name in names:
        reply = page.goto(f"{served.url}{PAGES[name]}")
        assert reply is not None
        assert reply.ok or name == "missing", f"{name}: {reply.status}"
        page.screenshot(path=directory / f"{name}-{scheme}-{width}.png", full_page=True)
    page.close()


def main() -> None:
    """Take all that were asked for."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    names = SHOWN if directory == DIRECTORY else tuple(PAGES)
    with (
        redis_server(port=free_port()) as redis,
        redis.client() as db,
        sync_playwright() as playwright,
        launch(playwright) as browser,
    ):
        fill(db, redis.tcp_url)
        with (
            recorded(*RUNS) as server,
            serving(FastqWeb(redis.tcp_url, app=SHOP, prometheus=server, auth=None)) as served,
        ):
            take(browser, served, directory, width=1280, scheme="light", names=names)
            if directory != DIRECTORY:
                take(browser, served, directory, width=1280, scheme="dark", names=names)
                take(browser, served, directory, width=360, scheme="light", names=names)


if __name__ == "__main__":
    main()
