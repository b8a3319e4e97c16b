import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fastq.pool.main.child import ChildState
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.shared.control import Channel, ChannelBusyError
from fastq.pool.shared.event_kind import EventKind
from tests.pool.harness import bench, gone, run, settings
from tests.processes import children
from tests.waiting import PATIENCE_S, until, wait_until


@pytest.fixture
def patience_with_the_preloader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for its word on how a child died for as long as it takes."""
    monkeypatch.setattr("fastq.pool.main.supervisor._REPORT_WAIT_S", PATIENCE_S)


@pytest.mark.usefixtures("patience_with_the_preloader")
@pytest.mark.parametrize(
    ("do", "fate"),
    [("segfault", "signal SIGSEGV"), ("exit_hard", "exit code 3"), ("kill_self", "signal SIGKILL")],
)
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_crash_is_an_answer_and_the_child_is_replaced(do: str, fate: str, start_method: str) -> None:
    async def test() -> None:
        async with bench(settings(start_method=start_method)) as b:
            (before,) = b.pool.child_states
            event = await b.run(do)
            assert event.kind is EventKind.CRASHED
            assert f"worker process {before} died with {fate}, peak RSS" in event.data.decode()
            after = await b.run("pid")
            assert after.kind is EventKind.RESULT
            assert int(after.data) != before

    run(test())


def test_what_waits_behind_a_crash_is_run_by_the_next_child() -> None:
    async def test() -> None:
        # A long prefetch lets all of them into one ring.
        async with bench(settings(prefetch_time=600)) as b:
            await b.run("noop")
            b.submit(b.task("crash", "kill_self"), *(b.task(number, "noop") for number in range(20)))
            assert (await b.outcome("crash")).kind is EventKind.CRASHED
            assert {event.kind for event in await b.outcomes(range(20))} == {EventKind.DONE}

    run(test())


def test_system_exit_in_a_runner_does_not_end_the_child() -> None:
    async def test() -> None:
        async with bench() as b:
            (before,) = b.pool.child_states
            assert (await b.run("exit_softly")).kind is EventKind.BROKEN
            assert int((await b.run("pid")).data) == before

    run(test())


def test_grandchildren_die_with_a_child_that_crashes() -> None:
    async def test() -> None:
        async with bench() as b:
            b.submit(b.task("crash", "leave_grandchild"))
            pids = await b.beacon.pids()
            assert (await b.outcome("crash")).kind is EventKind.CRASHED
            await gone(*pids)

    run(test())


def test_a_killed_preloader_is_replaced_and_its_children_die_with_their_grandchildren() -> None:
    async def test() -> None:
        async with bench(settings(processes=2)) as b:
            preloader = b.pool.preloader_pid
            b.submit(b.task("hang", "with_grandchildren"))
            pids = [*await b.beacon.pids(), *b.pool.child_states]
            os.kill(preloader, signal.SIGKILL)
            event = await b.outcome("hang")
            assert event.kind is EventKind.RERUN
            await gone(*pids)
            assert int((await b.run("pid")).data) not in pids
            assert b.pool.preloader_pid != preloader
            assert [notice for notice in b.notices if "preloader" in notice]

    run(test())


def test_a_killed_preloader_does_not_lose_what_waited() -> None:
    async def test() -> None:
        async with bench(settings(prefetch_time=600)) as b:
            await b.run("noop")
            b.submit(b.task("hang", "hold_gil"), *(b.task(number, "noop") for number in range(20)))
            await b.beacon.pids()
            os.kill(b.pool.preloader_pid, signal.SIGKILL)
            assert (await b.outcome("hang")).kind is EventKind.RERUN
            assert {event.kind for event in await b.outcomes(range(20))} == {EventKind.DONE}

    run(test())


def test_a_killed_preloader_is_replaced_even_if_a_process_that_its_app_forked_lives_on() -> None:
    async def test() -> None:
        async with bench(settings(runner="tests.pool.runners:load_forking")) as b:
            preloader, forked = b.pool.preloader_pid, int(b.pool.description)
            os.kill(preloader, signal.SIGKILL)
            try:
                await until(lambda: b.pool.preloader_pid != preloader)
            finally:
                with suppress(ProcessLookupError):  # the end of the old preloader's lifeline may have killed its group
                    os.kill(forked, signal.SIGKILL)
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


def test_a_preloader_whose_descriptors_the_kernel_refuses_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses to pass descriptors while this user has too many in transit, in any process."""
    refused: list[str] = []
    send = Channel.send

    def refuse_once(channel: Channel, op: str, *args: Any, **body: Any) -> None:
        if op == "load" and not refused:
            refused.append(op)
            raise ChannelBusyError("too many references")
        send(channel, op, *args, **body)

    async def test() -> None:
        async with bench() as b:
            await b.run("noop")
            monkeypatch.setattr(Channel, "send", refuse_once)
            os.kill(b.pool.preloader_pid, signal.SIGKILL)
            await until(lambda: any("too many references" in notice for notice in b.notices))
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


def test_a_stopped_preloader_does_not_keep_a_dead_child_from_being_noticed() -> None:
    async def test() -> None:
        async with bench() as b:
            os.kill(b.pool.preloader_pid, signal.SIGSTOP)
            try:
                event = await b.run("kill_self")
            finally:
                os.kill(b.pool.preloader_pid, signal.SIGCONT)
            assert event.kind is EventKind.CRASHED
            assert "of unknown cause" in event.data.decode()
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("raise", "RuntimeError: the app cannot be imported"),
        ("exit", "SystemExit: no"),
        ("segfault", "signal SIGSEGV"),
    ],
)
def test_an_app_that_cannot_be_imported_says_why(argument: str, text: str) -> None:
    async def test() -> None:
        with pytest.raises(PoolStartError, match=text):
            async with bench(settings(argument)):
                pass

    run(test())


def test_an_import_that_hangs_is_given_up() -> None:
    async def test() -> None:
        text = r"^the app: the import took more than 0\.5 s \(--start-timeout, start_timeout\)$"
        with pytest.raises(PoolStartError, match=text):
            async with bench(settings("hang", start_timeout=0.5, name="the app")):
                pass

    run(test())


def test_an_import_that_takes_its_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.fork_server._SLOW_IMPORT_S", 0.0)

    async def test() -> None:
        async with bench(settings(name="the app")) as b:
            assert b.infos[0] == "importing the app …"

    run(test())


def test_a_child_that_the_machine_has_nothing_left_for_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (0.05,))

    async def test() -> None:
        async with bench() as b:
            await b.run("noop")
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            try:
                assert (await b.run("kill_self")).kind is EventKind.CRASHED
                await until(lambda: b.notices)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert "no worker process can be started: [Errno 24] Too many open files" in b.notices[0]
            assert (await b.run("noop")).kind is EventKind.DONE

    run(test())


def test_calls_that_a_seccomp_profile_refuses_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "refused")

    for module, name in ((os, "memfd_create"), (os, "eventfd"), (os, "pidfd_open"), (signal, "pidfd_send_signal")):
        monkeypatch.setattr(module, name, refuse, raising=False)

    async def test() -> None:
        async with bench() as b:
            assert (await b.run("size", size="2000000")).kind is EventKind.RESULT
            for do in ("sleep", "ignore"):
                event, (pid,) = await b.hang(do)
                assert event.kind is EventKind.TIMEOUT
            await gone(pid)
            assert b.notices == []

    run(test())


def test_a_process_that_the_system_refuses_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)

    async def test() -> None:
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(PoolStartError, match=r"^the app: the process .* cannot be started: \[Errno 11\] Resource"):
            async with bench(settings(name="the app")):
                pass
        assert set(os.listdir("/proc/self/fd")) <= before

    run(test())


def test_a_bad_import_of_spawned_children_ends_the_pool_instead_of_spinning() -> None:
    async def test() -> None:
        with pytest.raises(PoolStartError, match="the app cannot be imported"):
            async with bench(settings("raise", start_method="spawn")):
                pass

    run(test())


@pytest.mark.usefixtures("patience_with_the_preloader")
def test_children_that_crash_at_their_start_end_the_pool_instead_of_spinning() -> None:
    async def test() -> None:
        config = settings(runner="tests.pool.runners:load_crashing")
        with pytest.raises(PoolStartError, match="ended while starting with signal SIGSEGV"):
            async with bench(config):
                pass

    run(test())


@pytest.mark.usefixtures("patience_with_the_preloader")
@pytest.mark.parametrize(
    ("start_method", "illness", "text"),
    [
        ("forkserver", "die at start", "ended while starting with signal SIGKILL"),
        ("spawn", "die at import", "ended while starting with signal SIGKILL"),
        ("spawn", "raise at import", "RuntimeError: it worked before"),
    ],
)
def test_children_that_cannot_start_any_more_are_tried_less_and_less_often_until_they_can(
    start_method: str, illness: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (0.05, 0.06, 0.07))

    async def test() -> None:
        how = tmp_path / "how"
        config = settings(str(how), runner="tests.pool.runners:load_ill_at_times", start_method=start_method)
        async with bench(config) as b:
            assert (await b.run("kill_self")).kind is EventKind.CRASHED, "that child did start"
            await b.run("echo", text="x")
            how.write_text(illness)
            assert (await b.run("kill_self")).kind is EventKind.CRASHED
            await until(lambda: len(b.notices) >= 7)  # at the start, five are too many
            others = [notice for notice in b.notices if not (text in notice and "retrying in" in notice)]
            assert others == []
            assert b.pool.free == 0, "nothing is fetched meanwhile"
            assert b.failed == []
            how.unlink()
            assert (await b.run("echo", text="again")).data == b"again"

    run(test())


def test_children_that_fail_together_count_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fastq.pool.main.failures._BACKOFF_S", (2.0,)
    )  # all of them die within it, on a busy machine, too

    async def test() -> None:
        how = tmp_path / "how"
        config = settings(str(how), runner="tests.pool.runners:load_ill_at_times", processes=6)
        async with bench(config) as b:
            how.write_text("die at start")
            for pid in b.pool.child_states:
                os.kill(pid, signal.SIGKILL)
            await until(lambda: len(b.notices) >= 2)
            assert len(b.notices) <= 3, "six children, not six notices at a time"
            how.unlink()
            await until(lambda: list(b.pool.child_states.values()) == [ChildState.READY] * 6)
            assert b.failed == []

    run(test())


def test_a_preloader_that_dies_as_soon_as_it_is_there_is_not_replaced_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastq.pool.main.fork_server._YOUNG_S", 60.0)

    async def test() -> None:
        async with bench(settings()) as b:
            for count in (1, 2, 3):
                preloader = b.pool.preloader_pid
                os.kill(preloader, signal.SIGKILL)
                await until(lambda count=count: len(b.notices) >= count)  # type: ignore[misc]  # mypy cannot infer it
                assert f"process {preloader}) died" in b.notices[-1]
                assert "retrying in" in b.notices[-1]
                await until(lambda: b.pool.child_states and set(b.pool.child_states.values()) == {ChildState.READY})
            assert b.failed == []

    run(test())


def test_children_that_die_with_a_young_preloader_are_no_failed_starts_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastq.pool.main.fork_server._YOUNG_S", 60.0)
    monkeypatch.setattr("fastq.pool.main.failures._BACKOFF_S", (0.0,))  # over by the time that their ends are known

    async def test() -> None:
        async with bench(settings(processes=3)) as b:
            old = set(b.pool.child_states)
            os.kill(b.pool.preloader_pid, signal.SIGKILL)
            await until(lambda: not old & set(b.pool.child_states))
            await until(lambda: list(b.pool.child_states.values()) == [ChildState.READY] * 3)
            (notice,) = b.notices
            assert "the preloader" in notice

    run(test())


@pytest.mark.usefixtures("patience_with_the_preloader")
def test_why_a_child_could_not_start_is_heard_though_its_end_was_heard_of_first(tmp_path: Path) -> None:
    async def test() -> None:
        how = tmp_path / "how"
        config = settings(str(how), runner="tests.pool.runners:load_ill_at_times", start_method="spawn")
        async with bench(config) as b:
            how.write_text("raise at import")
            assert (await b.run("kill_self")).kind is EventKind.CRASHED
            # The next one is ordered by now; from here to its end this process stands still.
            wait_until(lambda: children(b.pool.preloader_pid))
            wait_until(lambda: not children(b.pool.preloader_pid))
            await until(lambda: b.notices)
            assert "RuntimeError: it worked before" in b.notices[0]

    run(test())


def test_a_reload_replaces_children_as_they_get_free_and_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with bench(settings(processes=2)) as b:
            descriptors, preloaders = [], [b.pool.preloader_pid]
            for count in range(3):
                file = b.beacon.file(f"go-{count}")
                b.submit(b.task(count, "wait_for", file=str(file)))
                (running,) = await b.beacon.pids()
                (idle,) = set(b.pool.child_states) - {running}
                replaced = await b.forks.reload()
                preloaders.append(b.pool.preloader_pid)
                await gone(idle)
                assert (await b.run("pid")).data != str(idle).encode()
                assert not replaced.done()
                file.touch()
                assert (await b.outcome(count)).kind is EventKind.DONE
                await replaced
                await gone(running, preloaders[-2])
                await until(lambda: list(b.pool.child_states.values()) == [ChildState.READY] * 2)
                gc.collect()  # with what earlier tests have left, the first time
                descriptors.append(len(os.listdir("/dev/fd")))
            assert len({*preloaders}) == 4
            assert len({*descriptors}) == 1
            assert (b.notices, b.failed) == ([], [])

    run(test())


def test_a_task_in_a_child_that_a_reload_replaces_is_told_to_come_to_an_end() -> None:
    async def test() -> None:
        async with bench(settings(processes=1)) as b:
            b.submit(b.task("long", "wait_for_stop"))
            await b.beacon.pids()
            await (await b.forks.reload())
            assert (await b.outcome("long")).kind is EventKind.DONE
            b.submit(b.task("next", "wait_for_stop"))
            await b.beacon.pids()
            assert b.pool.pending == 1, "its successor is not stopping"
            b.pool.announce_stop()
            assert (await b.outcome("next")).kind is EventKind.DONE

    run(test())


def test_a_preloader_that_dies_after_it_was_replaced_takes_only_its_own_children_along() -> None:
    async def test() -> None:
        async with bench(settings(processes=2)) as b:
            b.submit(b.task("long", "sleep"))
            running = await b.beacon.pids()
            preloader = b.pool.preloader_pid
            replaced = await b.forks.reload()
            assert (await b.run()).kind is EventKind.DONE
            os.kill(preloader, signal.SIGKILL)
            await replaced
            assert (await b.outcome("long")).kind is EventKind.RERUN
            await gone(preloader, *running)
            assert f"the preloader (process {preloader}) died" in b.notices[0]
            assert b.pool.preloader_pid != preloader
            assert (await b.run()).kind is EventKind.DONE

    run(test())


def test_an_import_that_fails_leaves_the_old_children_at_work(tmp_path: Path) -> None:
    async def test() -> None:
        how = tmp_path / "how"
        config = settings(str(how), runner="tests.pool.runners:load_ill_at_times", processes=2)
        async with bench(config) as b:
            old, before = set(b.pool.child_states), {b.pool.preloader_pid, *b.pool.child_states}
            how.write_text("raise at import")
            with pytest.raises(PoolStartError, match="RuntimeError: it worked before"):
                await b.forks.reload()
            assert {b.pool.preloader_pid, *b.pool.child_states} == before
            how.write_text("raise at start")  # it can be imported, and its children do not start
            replaced = await b.forks.reload()
            await until(lambda: len(b.notices) >= 2)
            assert old <= set(b.pool.child_states)
            assert (await b.run()).kind is EventKind.DONE
            how.unlink()
            await replaced
            assert not old & set(b.pool.child_states)
            assert (await b.run()).kind is EventKind.DONE

    run(test())


def test_threads_started_at_import_are_noticed() -> None:
    async def test() -> None:
        async with bench(settings("threads")) as b:
            (notice,) = b.notices
            assert notice.startswith(
                'tests.pool.runners:load: its import started the thread "poller", which forked children'
            )
            assert "--start-method spawn" in notice

    run(test())


def test_a_handler_may_start_and_terminate_processes() -> None:
    async def test() -> None:
        async with bench() as b:
            assert (await b.run("use_terminate")).data == b"-15 -15"

    run(test())


def test_a_fork_that_comes_out_of_its_handler_does_no_harm() -> None:
    async def test() -> None:
        async with bench() as b:
            assert (await b.run("fork_and_return")).data == b"one of two"
            await b.run("noop")
            await asyncio.sleep(0)
            assert len(b.order) == 2

    run(test())


def test_sigterm_to_every_process_leaves_children_at_their_work() -> None:
    async def test() -> None:
        async with bench() as b:
            go = b.beacon.file("go")
            b.submit(b.task("work", "wait_for", file=str(go)))
            await b.beacon.pids()
            for pid in (*b.pool.child_states, b.pool.preloader_pid):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGINT)
            go.touch()
            assert (await b.outcome("work")).kind is EventKind.DONE

    run(test())


WITHOUT = """
import os
for name in ("eventfd", "memfd_create", "pidfd_open"):
    delattr(os, name)
"""


@pytest.mark.slow
def test_all_of_this_works_without_what_only_linux_has(tmp_path: Path) -> None:
    """Run tests of how processes end, and timeouts, with pipes, unlinked files and no pidfd, in every process."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    files = [__file__, str(Path(__file__).with_name("test_timekeeper.py"))]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    # Without a pidfd, a child's end is the preloader's to tell, and one that is stopped does not.
    others = ["all_of_this", "stopped_preloader", "spawn"]
    others += ["import", "less_and_less", "fail_together", "as_soon_as_it_is_there", "their_start", "seccomp"]
    command += ["-k", " and ".join(f"not {name}" for name in others)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-3000:]
