"""A process is told from all others of its host, and its end is proved, never guessed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fastq.server.base.this_process import ProcessFacts, ThisProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux names the boot and the namespaces of a pid")


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def facts_of(pid: int) -> ProcessFacts:
    started = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[19]  # noqa: SIM115
    return replace(ThisProcess().facts, pid=pid, started=started)


def test_a_process_that_lives_is_not_gone_even_if_it_stands_still(other: subprocess.Popen[str]) -> None:
    ours, facts = ThisProcess(), facts_of(other.pid)
    assert ours.is_gone(ours.facts) is False
    assert ours.is_gone(facts) is False
    os.kill(other.pid, signal.SIGSTOP)
    assert ours.is_gone(facts) is False


def test_a_process_that_has_ended_is_gone_before_and_after_its_parent_has_heard(other: subprocess.Popen[str]) -> None:
    ours, facts = ThisProcess(), facts_of(other.pid)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert ours.is_gone(facts) is True, "a zombie"
    other.wait()
    assert ours.is_gone(facts) is True


def test_a_pid_that_another_process_has_by_now_is_not_taken_for_the_first(other: subprocess.Popen[str]) -> None:
    assert ThisProcess().is_gone(replace(facts_of(other.pid), started="1")) is True


@pytest.mark.parametrize("what", ["host", "boot", "namespace"])
def test_of_a_process_elsewhere_nothing_is_told(what: str) -> None:
    ours = ThisProcess()
    elsewhere = {"host": "other"} if what == "host" else {"boot": "other"} if what == "boot" else {"namespace": "other"}
    assert ours.is_gone(replace(ours.facts, pid=2**22 + 1, **elsewhere)) is None


def test_where_the_system_names_no_boot_nothing_is_told() -> None:
    ours = ThisProcess()
    ours.facts = ProcessFacts("", "", "", 1, "")
    assert ours.is_gone(ProcessFacts("", "", "", 2**22 + 1, "")) is None


def test_a_time_namespace_shifts_the_start_of_a_process_so_it_is_named() -> None:
    assert os.readlink("/proc/self/ns/time") in ThisProcess().facts.namespace
