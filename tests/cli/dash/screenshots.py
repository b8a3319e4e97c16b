"""Takes the pictures of ``docs/dash.md``: ``python -m tests.cli.dash.screenshots [DIRECTORY]``.

Runs the dashboard on a private Redis in which time goes on, presses its keys, and writes an SVG of each view.
"""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any, Final

from tests.cli.dash.driving import SMALL, Driver, driven
from tests.cli.dash.scene import fill_scene, pass_time
from tests.redis_servers import redis_server

DIRECTORY: Final = Path(__file__).parents[3] / "docs" / "dash"
WIDE: Final = (150, 30)
DONE: Final = (1_900, 2_400, 2_200, 2_900, 3_100, 2_600, 1_500, 1_700, 2_300, 2_800, 3_000, 2_700)
VIEWS: Final = (
    (("enter", "l"), "im-000003", "pending"),
    (("enter",), "Payload", "task"),
    (("d",), "for good?", "confirm"),
    (("n", "escape", "l", "l", "l"), "im-retry-2", "retry"),
    (("f2",), "5f0c2a71", "servers"),
    (("f3",), "@every 30s", "schedulers"),
    (("f4",), "Commands/s", "redis"),
    (("question_mark",), "Keys", "help"),
)
"""What is pressed, what is seen then, and the picture's name."""
FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def save(dash: Driver, directory: Path, name: str) -> None:
    """Write the screen as it is; the font is the reader's own, nothing is fetched."""
    picture = FONT.sub("", dash.app.export_screenshot(title="fastq dash"))
    picture = re.sub(r"unix:\S+|/tmp/\S+?/redis\.sock", "redis.sock", picture)
    picture = picture.replace("<svg ", '<svg xml:space="preserve" ', 1)
    (directory / f"{name}.svg").write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n")


async def watch(dash: Driver, db: Any) -> None:
    """Look some times while tasks end."""
    for done in DONE:
        seen = dash.app.desk.looked_at
        pass_time(db, done)
        await dash.until(lambda text, seen=seen: dash.app.desk.looked_at != seen, "a look")  # type: ignore[misc]  # bound now


async def take_all(url: str, db: Any, directory: Path) -> None:
    """Go through the views."""
    async with driven(url, size=SMALL, refresh_s=1.0) as dash:
        await dash.sees("images")
        await dash.press("j", "j")
        await watch(dash, db)
        save(dash, directory, "queues")
        for keys, sign, name in VIEWS:
            await dash.press(*keys)
            await dash.sees(sign)
            save(dash, directory, name)
    async with driven(url, size=WIDE, refresh_s=1.0) as dash:
        await dash.sees("images")
        await watch(dash, db)
        save(dash, directory, "wide")


def main(directory: Path = DIRECTORY) -> None:
    """Take all pictures."""
    directory.mkdir(exist_ok=True)
    with redis_server() as server, server.client() as db:
        fill_scene(db, server.url)
        asyncio.run(take_all(server.url, db, directory))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
