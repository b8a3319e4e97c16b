"""The checker can fail: each guarantee, broken by a doctored ledger, journal or keyspace, is reported as broken."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastq.server.timing import Timing
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
    assert [violation.guarantee for violation in verdict.violations] == ["lost"]
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
    assert broken(evidence(iter(doctored), entries=entries)) == ["lost"]


def test_a_task_whose_enqueue_was_in_doubt_may_not_be_there() -> None:
    assert broken(evidence(entries=(entry(said=Enqueued.MAYBE),))) == []


def test_a_run_that_did_not_return_is_not_the_end_of_a_task() -> None:
    assert broken(evidence(run(2, 3, what=What.RAISED))) == ["lost"]
    assert broken(evidence(run(2, None))) == ["lost"]


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
        (strike(Kind.KILL_HOOKS, 2.5), False),
        (strike(Kind.NET_DROP, 2.5), False),  # a write that is sent again
        (strike(Kind.NET_REFUSE, 2.5, 6.5), True),
        (strike(Kind.NET_REFUSE, 2.5, 6.5, server=1), False),
        (strike(Kind.NET_REFUSE, 0.1, 0.2, server=-1), True),  # the reply to its enqueue
        (strike(Kind.STOP_SERVER, 2.5, 4), False),  # it had returned, and Redis was there
    ],
)
def test_a_fault_explains_a_second_run_only_if_it_could_cause_it(struck: Strike, is_explained: bool) -> None:
    runs = (run(2, 3), run(5, 6, retried=1, who=(1, 200)))
    assert broken(evidence(*runs, strikes=[struck])) == ([] if is_explained else ["twice"])


def test_a_child_that_is_frozen_before_it_gives_its_result_may_meet_an_outage_with_it() -> None:
    def reported(*strikes: Strike) -> list[str]:
        return broken(evidence(run(2, 3), run(22, 23, retried=1), strikes=list(strikes)))

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
    assert broken(evidence(run(2, 3, retried=1), strikes=[strike(Kind.KILL_SERVER, 1.5)])) == []
    killed = strike(Kind.KILL_CHILD, 2.5, pids=(100,))
    assert broken(evidence(run(2, None), run(5, 6, retried=2), strikes=[killed])) == ["charged"]


def in_redis(*states: str, result: bytes | None = None) -> Keyspace:
    return Keyspace({TASK: Stored(states, "asynq: task lease expired", result, failed_unix_s=20)}, [])


@pytest.mark.parametrize("states", [("active",), ("active", "lease"), ("retry",), ("pending",), ("lease",)])
def test_what_is_left_on_the_way_is_reported(states: tuple[str, ...]) -> None:
    assert broken(evidence(run(2, 3), keyspace=in_redis(*states))) == ["left"]


def test_data_without_a_state_is_reported() -> None:
    assert broken(evidence(run(2, 3), keyspace=Keyspace({}, [TASK]))) == ["left"]


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


def test_a_kept_task_without_its_result_is_reported() -> None:
    kept = (entry(job="keep"),)
    right = f'"{TASK}"'.encode()
    assert broken(evidence(run(2, 3), keyspace=in_redis("completed", result=right), entries=kept)) == []
    assert broken(evidence(run(2, 3), keyspace=in_redis("completed"), entries=kept)) == ["result"]
    assert broken(evidence(run(2, 3), entries=kept)) == ["result"]
    assert broken(evidence(keyspace=in_redis("completed", result=right), entries=kept)) == ["result"]


def test_a_handler_beyond_the_slots_is_reported() -> None:
    overfull = iter([Record(TASK, What.OVERFULL, 0, 0, 100, 2 * S, 0)])
    assert broken(evidence(run(2, 3), overfull)) == ["slots"]


def test_a_task_that_begins_before_its_time_is_reported() -> None:
    late = entry()._replace(order=order(TASK, "due")._replace(delay_s=3.0))
    assert broken(evidence(run(1.9, 2), entries=(late,))) == ["early"]
    assert broken(evidence(run(3.1, 4), entries=(late,))) == []


def test_a_lock_that_is_left_is_reported() -> None:
    assert broken(evidence(run(2, 3), keyspace=Keyspace({}, [], ["asynq:{high}:unique:x"]))) == ["lock"]


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
    with pytest.raises(ValueError, match="no multiple of a record"):
        list(read_ledger(tmp_path / "ledger"))
    with pytest.raises(ValueError, match="an end without a beginning"):
        check(evidence(iter([Record(TASK, What.RETURNED, 0, 0, 100, S, 0)])))
