import asyncio

from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven


def test_x(filled: Fastq) -> None:
    async def go() -> None:
        async with driven(filled.url) as dash:
            print(await dash.sees("default", "low (paused)"))
            await dash.press("j", "enter")
            print(await dash.sees("default", "p1") if 0 else await dash.sees("default", "a1"))
            await dash.press("l")
            print(await dash.sees("p1"))
            await dash.press("enter")
            print(await dash.sees('"to": "ann"'))
            await dash.press("escape")
            await dash.press("?")
            print(await dash.sees("Keys"))
            await dash.press("escape", "slash")
            await dash.type("p3")
            await dash.press("enter")
            print(await dash.sees("match"))
            await dash.press("D")
            print(await dash.sees("good?"))
            await dash.press("y")
            print(await dash.sees("deleted."))

    asyncio.run(go())
