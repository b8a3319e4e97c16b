"""The checker can fail: each guarantee, broken by a doctored ledger, journal or keyspace, is reported as broken."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastq.server.base.timing import Timing
from tests.chaos.checker import check
from tests.chaos.evidence import Evidence, Keyspace, Life, Stored
from tests.chaos.journal import Strike
from tests.chaos.ledger import LedgerWriter, Record, What, read_ledger
from tests.chaos.plan import Kind
from tests.chaos.producer import Enqueued, Entry
from tests.chaos.workload import JOBS, Order, orders

S = 1_000_000_000
TIMING = Timing(4, 2, 1.0, 0.6, 0.6, settle_s=0.0)
LIVES = {0: Life(0, 0, 0), 1: Life(1, 0, 0)}
TASK, NEXT = "00000000", "00000001"


def order(task_id: str, job: str) -> Order:
    (made,) = orders(1, 0)
    return made._replace(id=task_id, job=JOBS[job])


def entry(task_id: str = TASK, job: str = "quick", said: Enqueued = Enqueued.YES) -> Entry:
    return Entry(order(task_id, job), said, 0, S)


def run(
    began_s: float,
    ended_s: float | None,
    *,
    task_id: str = TASK,
    retried: int = 0,
    who: tuple[int, int] = (0, 100),
    what: What = What.RETURNED,
) -> Iterator[Record]:
    yield Record(task_id, What.BEGAN, retried, *who, int(began_s * S), 0)
    if ended_s is not None:
        yield Record(task_id, what, retried, *who, int(ended_s * S), 0)


def strike(kind: Kind, began_s: float, ended_s: float = 0.0, *, pids: tuple[int, ...] = (), server: int = 0) -> Strike:
    generation = -1 if kind.name.startswith("NET") else server
    return Strike(0, kind, server, generation, pids, int(began_s * S), int((ended_s or began_s) * S))


def evidence(*runs: Iterator[Record], entries: tuple[Entry, ...] = (entry(),), **more: object) -> Evidence:
    records = sorted((record for one in runs for record in one), key=lambda record: record.at_ns)
    plain = Evidence(TIMING, 0.0, entries, records, [], LIVES, Keyspace({}, []))
    return replace(plain, **more)  # type: ignore[arg-type]  # fields of Evidence, by their names


def broken(of: Evidence) -> list[str]:
    return [violation.guarantee for violation in check(of).violations]


def test_what_is_right_breaks_nothing() -> None:
    assert broken(evidence(run(2, 3))) == []


def test_a_ledger_without_a_task_s_run_is_a_lost_task() -> None:
    verdict = check(evidence())
    assert [violation.guarantee for violation in verdict.violations] == ["kept"]
    assert f"task {TASK} (quick, queue" in verdict.violations[0].text


def test_a_ledger_that_lost_the_records_of_a_task_is_a_lost_task(tmp_path: Path) -> None:
    writer = LedgerWriter(str(tmp_path / "ledger"), generation=0)
    for task_id in (TASK, NEXT):
        writer.write(task_id, What.BEGAN, 0)
        writer.write(task_id, What.RETURNED, 0)
    whole = list(read_ledger(tmp_path / "ledger"))
    entries = (entry(TASK), entry(NEXT))
    assert {record.pid for record in whole} == {os.getpid()}
    assert broken(evidence(iter(whole), entries=entries)) == []
    doctored = [record for record in whole if record.task_id != TASK]
    assert broken(evidence(iter(doctored), entries=entries)) == ["kept"]


def test_a_task_whose_enqueue_was_in_doubt_may_not_be_there() -> None:
    assert broken(evidence(entries=(entry(said=Enqueued.MAYBE),))) == []


def test_a_run_that_did_not_return_is_not_the_end_of_a_task() -> None:
    assert broken(evidence(run(2, 3, what=What.RAISED))) == ["kept"]
    assert broken(evidence(run(2, None))) == ["kept"]


def test_a_second_run_without_a_fault_is_reported() -> None:
    assert broken(evidence(run(2, 3), run(5, 6))) == ["twice"]
    assert broken(evidence(run(2, None), run(5, 6, retried=1))) == ["twice"]


@pytest.mark.parametrize(
    ("struck", "is_explained"),
    [
        (strike(Kind.KILL_SERVER, 2.5), True),
        (strike(Kind.KILL_SERVER, 3.5), True),  # before its ack
        (strike(Kind.KILL_SERVER, 1.9), True),  # its children are told a moment later
        (strike(Kind.KILL_SERVER, 0.9), False),  # long before it began
        (strike(Kind.KILL_SERVER, 4.5), False),  # long after its end
        (strike(Kind.KILL_SERVER, 2.5, server=1), False),  # another server
        (strike(Kind.KILL_CHILD, 2.5, pids=(100,)), True),
        (strike(Kind.KILL_CHILD, 2.5, pids=(101,)), False),  # another child
        (strike(Kind.KILL_PRELOADER, 2.5), True),
        (strike(Kind.KILL_PRELOADER, 1.9), True),  # its server kills the children when it notices
        (strike(Kind.KILL_CHILD, 1.9, pids=(100,)), False),
        (strike(Kind.KILL_CHILDREN, 1.9, 2.1, pids=(100, 101)), True),  # it took the bench a while to strike both
        (strike(Kind.KILL_CHILDREN, 1.7, 1.9, pids=(100, 101)), False),
        (strike(Kind.FREEZE_SERVER, 2.5, 9), True),
        (strike(Kind.FREEZE_FAMILY, -6, 1.99), True),  # it lay in a ring, and began as its child was thawed
        (strike(Kind.FREEZE_FAMILY, -6, 1.4), False),
        (strike(Kind.FREEZE_SHORT, 2.5, 3.5), False),  # the lease was longer
        (strike(Kind.FREEZE_CHILD, 2.5, 9, pids=(100,)), False),  # its server went on beating
        (strike(Kind.KILL_HOOKS, 2.5, pids=(101,)), False),
        (strike(Kind.KILL_HOOKS, 2.5, pids=(100,)), True),  # it was young, and taken for that of the hooks
        (strike(Kind.NET_DROP, 2.5), False),  # a write that is sent again
        (strike(Kind.NET_REFUSE, 2.5, 6.5), True),
        (strike(Kind.NET_REFUSE, 2.5, 6.5, server=1), False),
        (strike(Kind.NET_REFUSE, 0.1, 0.2, server=-1), True),  # the reply to its enqueue
        (strike(Kind.STOP_SERVER, 2.5, 4), False),  # it had returned, and Redis was there
        (strike(Kind.UNREAD_STOP, 2.5, 4), False),
        (strike(Kind.UNREAD_STDERR, 2.5, 9, pids=(100,)), True),
        (strike(Kind.UNREAD_STDERR, 2.5, 9, pids=(101,)), False),  # leases go on
        (strike(Kind.FREEZE_REDIS, 2.5, 77.5), True),
        (strike(Kind.OUTAGE, 2.5, 77.5), False),  # nobody died
        (strike(Kind.FDS_SERVER, 2.5, 12.5, pids=(1,)), True),  # its result may have needed one
        (strike(Kind.FDS_SERVER, 2.5, 12.5, pids=(1,), server=1), False),
        (strike(Kind.FDS_CHILD, 2.5, 12.5, pids=(100,)), False),  # it had returned
    ],
)
def test_a_fault_explains_a_second_run_only_if_it_could_cause_it(struck: Strike, is_explained: bool) -> None:
    runs = (run(2, 3), run(5, 6, who=(1, 200)))
    assert broken(evidence(*runs, strikes=[struck])) == ([] if is_explained else ["twice"])


@pytest.mark.parametrize(
    ("struck", "who", "is_explained"),
    [
        (strike(Kind.FREEZE_FAMILY, 1, 7.99), (0, 100), True),  # its child went on before it could take the task back
        (strike(Kind.FREEZE_FAMILY, 1, 9), (0, 100), True),  # the bench was slow to write down that it goes on
        (strike(Kind.NET_REFUSE, 1, 9), (0, 100), True),  # its child does not know that it is cut off
        (strike(Kind.FREEZE_FAMILY, 1, 7.4), (0, 100), False),  # by then it had taken the task back
        (strike(Kind.FREEZE_FAMILY, 2, 7.99), (0, 100), False),  # the other took it before the lease ended
        (strike(Kind.FREEZE_SHORT, 6.5, 7.99), (0, 100), False),  # the lease was longer
        (strike(Kind.FREEZE_FAMILY, 1, 7.99), (2, 100), False),  # it was started later, and had nothing in its rings
    ],
)
def test_a_server_that_lost_its_lease_may_begin_what_another_has_run(
    struck: Strike, who: tuple[int, int], is_explained: bool
) -> None:
    lives = {**LIVES, 2: Life(0, 4 * S, 0)}
    runs = (run(5, 5.1, who=(1, 200)), run(8, 8.1, who=who))
    assert broken(evidence(*runs, strikes=[struck], lives=lives)) == ([] if is_explained else ["twice"])


@pytest.mark.parametrize(
    ("struck", "is_explained"),
    [
        (strike(Kind.UNREAD_STOP, 2.5, 4), True),
        (strike(Kind.FDS_CHILD, 2.5, 12.5, pids=(100,)), True),
        (strike(Kind.FDS_CHILD, 2.5, 12.5, pids=(101,)), False),
        (strike(Kind.FDS_CHILD, 3.5, 12.5, pids=(100,)), False),
    ],
)
def test_a_fault_explains_a_run_that_failed_only_if_it_could_cause_it(struck: Strike, is_explained: bool) -> None:
    runs = (run(2, 3, what=What.RAISED), run(5, 6, retried=1))
    assert broken(evidence(*runs, strikes=[struck])) == ([] if is_explained else ["twice"])


def test_a_large_result_may_not_leave_a_child_that_lacks_descriptors() -> None:
    struck = strike(Kind.FDS_CHILD, 2.5, 12.5, pids=(100,))
    result = f'"{TASK * JOBS["bulky"].echoes}"'.encode()
    for job, reported in (("bulky", []), ("keep", ["twice"])):
        kept = in_redis("completed", result=result if job == "bulky" else f'"{TASK}"'.encode())
        runs = (run(2, 3), run(5, 6, retried=1))
        assert broken(evidence(*runs, entries=(entry(job=job),), keyspace=kept, strikes=[struck])) == reported


def test_a_server_that_lacks_descriptors_has_no_redis_once_it_lost_its_connections() -> None:
    short, dropped = strike(Kind.FDS_SERVER, 2, 12, pids=(1,)), strike(Kind.NET_DROP, 2.5)
    runs = [*run(13, 14), *run(16, 17)]
    assert broken(evidence(iter(runs), strikes=[short, dropped])) == []
    for known in ([short], [dropped]):
        assert broken(evidence(iter(runs), strikes=known)) == ["twice"]


def blocked(*, retried: int, who: tuple[int, int] = (0, 100), task: str = "async") -> list[str]:
    """Return what is broken where one task blocked its loop, and another ran again."""
    blocker = (run(2, None, task_id=NEXT), run(9, 9, task_id=NEXT, retried=1))
    runs = (*blocker, run(2, None, who=who), run(9, 10, retried=retried))
    return broken(evidence(*runs, entries=(entry(job=task), entry(NEXT, "block"))))


def test_a_coroutine_that_blocks_its_loop_is_charged_and_its_neighbors_are_not() -> None:
    assert blocked(retried=0) == []
    assert blocked(retried=1) == ["blocked"]
    assert blocked(retried=0, who=(0, 101)) == ["twice"]
    assert blocked(retried=0, who=(1, 100)) == ["twice"]
    assert blocked(retried=0, task="quick") == ["twice"]
    free = (run(2, None), run(9, 10))
    assert broken(evidence(*free, entries=(entry(job="block"),))) == ["twice"]


def test_a_neighbor_is_not_charged_the_second_time_either() -> None:
    blocks = (run(2, None, task_id=NEXT), run(12, None, task_id="2"))
    again = (run(20, 21, task_id=NEXT, retried=1), run(20, 21, task_id="2", retried=1))
    neighbor = (run(3, None), run(12, None), run(20, 21, retried=1))
    entries = (entry(job="async"), entry(NEXT, "block"), entry("2", "block"))
    assert broken(evidence(*blocks, *again, *neighbor, entries=entries)) == ["blocked"]


def test_a_timeout_that_came_while_the_process_stood_still_is_explained() -> None:
    def reported(struck: Strike, job: str) -> list[str]:
        runs = (run(2, 9, what=What.RAISED), run(10, 11, retried=1))
        return broken(evidence(*runs, entries=(entry(job=job),), strikes=[struck]))

    assert reported(strike(Kind.FREEZE_CHILD, 3, 9, pids=(100,)), "beside") == []
    assert reported(strike(Kind.FREEZE_CHILD, 3, 9, pids=(101,)), "beside") == ["twice"]
    assert reported(strike(Kind.FREEZE_CHILD, 3, 9, pids=(100,)), "async") == ["twice"]


def test_a_child_that_is_frozen_before_it_gives_its_result_may_meet_an_outage_with_it() -> None:
    def reported(*strikes: Strike) -> list[str]:
        return broken(evidence(run(2, 3), run(22, 23), strikes=list(strikes)))

    frozen = strike(Kind.FREEZE_CHILD, 3.001, 9, pids=(100,))
    outage = strike(Kind.NET_REFUSE, 9.5, 20)
    assert reported(frozen, outage) == []
    for known in ([frozen], [outage], [replace(frozen, pids=(999,)), outage]):
        assert reported(*known) == ["twice"]


def test_the_death_of_a_child_does_not_explain_what_it_had_ended_before_its_next_task() -> None:
    runs = (run(2, 2.1), run(2.2, 2.9, task_id=NEXT), run(5, 6, retried=1))
    killed = strike(Kind.KILL_CHILD, 2.5, pids=(100,))
    entries = (entry(TASK), entry(NEXT))
    assert broken(evidence(*runs, entries=entries, strikes=[killed])) == ["twice"]


def test_a_failure_that_is_meant_explains_one_more_attempt() -> None:
    entries = (entry(job="flaky"),)
    failed = run(2, 3, what=What.RAISED)
    assert broken(evidence(failed, run(4, 5, retried=1), entries=entries)) == []
    failed = run(2, 3, what=What.RAISED)
    assert broken(evidence(failed, run(4, 5, retried=0), entries=entries)) == ["twice"]


def test_an_attempt_charged_without_a_run_is_reported() -> None:
    assert broken(evidence(run(2, 3, retried=1))) == ["charged"]
    assert broken(evidence(run(2, 3, retried=1), strikes=[strike(Kind.KILL_SERVER, 1.5)])) == ["charged"]
    killed = strike(Kind.KILL_CHILD, 2.5, pids=(100,))
    assert broken(evidence(run(2, None), run(5, 6, retried=2), strikes=[killed])) == ["charged"]


def test_a_killed_child_explains_one_attempt_that_began_before_the_first_line_of_its_handler() -> None:
    def reported(retried: int, killed_s: float, job: str = "quick", kind: Kind = Kind.KILL_CHILD) -> list[str]:
        struck = [strike(kind, killed_s, pids=(100,))]
        return broken(evidence(run(2, 3, retried=retried), entries=(entry(job=job),), strikes=struck))

    assert reported(1, 1.5) == []
    assert reported(2, 1.5) == ["charged"]
    assert reported(1, 2.5) == ["charged"]
    assert reported(1, 1.5, job="async") == ["charged"]
    assert reported(1, 1.5, kind=Kind.KILL_PRELOADER) == ["charged"]


@pytest.mark.parametrize(("pids", "found"), [((100,), ["charged"]), ((100, 101), [])])
def test_a_killed_child_explains_one_such_attempt_only(pids: tuple[int, ...], found: list[str]) -> None:
    runs = (run(2, 3, retried=1), run(2, 3, retried=1, task_id=NEXT))
    struck = [strike(Kind.KILL_CHILD, 1.5, pids=pids)]
    assert broken(evidence(*runs, entries=(entry(), entry(NEXT)), strikes=struck)) == found


@pytest.mark.parametrize("lost", [strike(Kind.KILL_SERVER, 2.5), strike(Kind.FREEZE_SERVER, 2.5, 9)])
def test_an_attempt_that_was_lost_is_not_charged(lost: Strike) -> None:
    def reported(retried: int, ended_s: float | None, what: What) -> list[str]:
        runs = (run(2, ended_s, what=what), run(12, 13, retried=retried, who=(1, 200)))
        return broken(evidence(*runs, strikes=[lost]))

    assert reported(0, None, What.RETURNED) == []
    assert reported(1, None, What.RETURNED) == ["charged"]
    assert reported(1, 3, What.RETURNED) == ["charged"]
    assert reported(1, 3, What.RAISED) == []  # its failure may have been written


@pytest.mark.parametrize(("pid", "found"), [(100, []), (101, ["charged"])])
def test_one_whose_young_child_was_killed_before_its_server_is_charged(pid: int, found: list[str]) -> None:
    """The fault that is for the child of the hooks may hit a child of the pool that has not worked yet."""
    runs = (run(2, None), run(12, 13, retried=1, who=(1, 200)))
    strikes = [strike(Kind.KILL_HOOKS, 2.1, pids=(pid,)), strike(Kind.KILL_SERVER, 2.5)]
    assert broken(evidence(*runs, strikes=strikes)) == found


def in_redis(*states: str, result: bytes | None = None) -> Keyspace:
    return Keyspace({TASK: Stored(states, "asynq: task lease expired", result, failed_unix_s=20)}, [])


@pytest.mark.parametrize("states", [("active",), ("active", "lease"), ("retry",), ("pending",), ("lease",)])
def test_what_is_left_on_the_way_is_reported(states: tuple[str, ...]) -> None:
    assert broken(evidence(run(2, 3), keyspace=in_redis(*states))) == ["kept"]


def test_data_without_a_state_is_reported() -> None:
    assert broken(evidence(run(2, 3), keyspace=Keyspace({}, [TASK]))) == ["nothing_left"]


def test_a_task_in_the_archive_is_reported_unless_its_last_attempt_was_cut_short() -> None:
    archived = in_redis("archived")
    last = (entry(job="last"),)
    killed = [strike(Kind.KILL_SERVER, 2.5)]
    killed_later = [strike(Kind.KILL_SERVER, 12.5)]
    assert broken(evidence(run(2, None), keyspace=archived)) == ["archived"]
    assert broken(evidence(run(2, None), keyspace=archived, entries=last)) == ["archived"]
    assert broken(evidence(run(2, None), keyspace=archived, entries=last, strikes=killed)) == []
    assert broken(evidence(keyspace=archived, entries=last, strikes=killed)) == ["last"]
    assert broken(evidence(keyspace=archived, entries=last, strikes=killed_later)) == []
    cut_off = [strike(Kind.NET_REFUSE, 12.5, 16.5)]
    assert broken(evidence(keyspace=archived, entries=last, strikes=cut_off)) == []
    away = [strike(Kind.OUTAGE, 2.5, 18.5)]
    assert broken(evidence(run(2, 3), keyspace=archived, entries=last, strikes=away)) == ["archived"]
    assert broken(evidence(keyspace=archived, entries=last, strikes=away)) == ["last"]


def test_a_kept_task_without_its_result_is_reported() -> None:
    kept = (entry(job="keep"),)
    right = f'"{TASK}"'.encode()
    assert broken(evidence(run(2, 3), keyspace=in_redis("completed", result=right), entries=kept)) == []
    assert broken(evidence(run(2, 3), keyspace=in_redis("completed"), entries=kept)) == ["result"]
    assert broken(evidence(run(2, 3), entries=kept)) == ["kept"]
    assert broken(evidence(keyspace=in_redis("completed", result=right), entries=kept)) == ["kept"]


def test_a_result_of_another_task_is_reported() -> None:
    for job, right in (("blank", None), ("late", f'"{TASK}"'.encode())):
        kept = (entry(job=job),)
        assert broken(evidence(run(2, 3), keyspace=in_redis("completed", result=right), entries=kept)) == []
        others = in_redis("completed", result=f'"{NEXT}"'.encode())
        assert broken(evidence(run(2, 3), keyspace=others, entries=kept)) == ["result"]


def test_a_handler_beyond_the_slots_is_reported() -> None:
    overfull = iter([Record(TASK, What.OVERFULL, 0, 0, 100, 2 * S, 0)])
    assert broken(evidence(run(2, 3), overfull)) == ["slots"]


def test_a_task_that_begins_before_its_time_is_reported() -> None:
    late = entry()._replace(order=order(TASK, "due")._replace(delay_s=3.0))
    assert broken(evidence(run(1.9, 2), entries=(late,))) == ["early"]
    assert broken(evidence(run(3.1, 4), entries=(late,))) == []


def test_a_lock_that_is_left_is_reported() -> None:
    assert broken(evidence(run(2, 3), keyspace=Keyspace({}, [], ["asynq:{high}:unique:x"]))) == ["nothing_left"]


def test_what_nobody_enqueued_is_reported() -> None:
    assert broken(evidence(run(2, 3), run(2, 3, task_id=NEXT))) == ["strange"]
    assert broken(evidence(entries=(), keyspace=in_redis("completed"))) == ["strange"]


def test_what_the_bench_itself_saw_is_reported() -> None:
    assert broken(evidence(run(2, 3), observed=[("alive", "process 7 outlived its server")])) == ["alive"]


def test_a_damaged_ledger_is_no_ledger(tmp_path: Path) -> None:
    writer = LedgerWriter(str(tmp_path / "ledger"), generation=0)
    writer.write(TASK, What.BEGAN, 0)
    with (tmp_path / "ledger").open("ab") as file:
        file.write(b"half a rec")
    with pytest.raises(ValueError, match="not a multiple of the record"):
        list(read_ledger(tmp_path / "ledger"))
    with pytest.raises(ValueError, match="an end without a beginning"):
        check(evidence(iter([Record(TASK, What.RETURNED, 0, 0, 100, S, 0)])))


@pytest.mark.parametrize(
    ("beside", "charged", "reported"),
    [(None, 1, []), (2.0, 0, []), (2.0, 1, ["batch"])],
    ids=["alone", "with another", "charged"],
)
def test_a_task_that_died_in_a_call_of_many_is_not_charged(
    beside: float | None, charged: int, reported: list[str]
) -> None:
    others = [run(beside, None, task_id=NEXT), run(5, 6, task_id=NEXT)] if beside else []
    entries = (entry(job="batch"), entry(NEXT, job="batch"))[: 1 + len(others)]
    stored = {one.order.id: Stored(("completed",), "", f'"{one.order.id}"'.encode()) for one in entries}
    found = evidence(
        run(2.0001, None),
        run(7, 8, retried=charged),
        *others,
        entries=entries,
        strikes=[strike(Kind.KILL_CHILD, 3, pids=(100,))],
        keyspace=Keyspace(stored, []),
    )
    assert broken(found) == reported
