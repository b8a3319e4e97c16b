"""The view of Redis itself."""

from typing import Any

from tests.cli.commands import Fastq
from tests.cli.dash.driving import driven, on_a_loop
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer, redis_cluster


@on_a_loop
async def test_redis_is_described(filled: Fastq) -> None:
    async with driven(filled.url, refresh_s=1.0) as dash:
        await dash.press("f4")
        await dash.sees("Version          Redis ", "Memory limit     none", "Role             master", "db0 ")
        await dash.until(lambda text: "▁" in text or "█" in text, "a sparkline")
        await dash.sees("Commands/s", "Memory, lately")


@on_a_loop
async def test_who_may_not_ask_is_told_so_and_sees_the_rest(filled: Fastq, db: Any) -> None:
    db.execute_command("ACL", "SETUSER", "reader", "on", ">word", "~*", "&*", "+@all", "-info")
    try:
        async with driven(f"{filled.url}?username=reader&password=word") as dash:
            await dash.sees("default")
            await dash.press("f4")
            await dash.sees("The Redis user may not read it.", no="refuses")
    finally:
        db.execute_command("ACL", "DELUSER", "reader")


@on_a_loop
async def test_an_info_that_lacks_most_fields_is_shown(filled: Fastq, shared_server: RedisServer) -> None:
    """As on a hosted Redis."""
    info = b"# Stats\r\ninstantaneous_ops_per_sec:7\r\n"
    answer = b"$%d\r\n%s\r\n" % (len(info), info)
    with faulty_proxy(shared_server.socket_path, Fault("INFO", Act.ANSWER, times=None, answer=answer)) as proxy:
        async with driven(proxy.url) as dash:
            await dash.sees("default")
            await dash.press("f4")
            await dash.sees("Commands/s", "Connections      -", no="Memory, lately")


@on_a_loop
async def test_a_cluster_says_how_it_is(filled: Fastq) -> None:
    del filled
    with redis_cluster(nodes=1) as (server,):
        async with driven(f"redis-cluster://127.0.0.1:{server.port}") as dash:
            await dash.sees("There are no queues yet.")
            await dash.press("f4")
            await dash.sees("State            ok", "Known nodes      1")
