import os
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastq.pool.shared import layout
from fastq.pool.shared.memory import Segment
from fastq.pool.shared.ring import Memory, Ring, RingCorruptError

TAIL, HEAD, DATA = 0, 64, 4096
CAPACITY = 4096
INLINE = CAPACITY // 4 - layout.RECORD_HEADER


def ring(buffer: bytearray, capacity: int = CAPACITY) -> Ring:
    return Ring(Memory(buffer), TAIL, HEAD, DATA, capacity)


def pair() -> tuple[Ring, Ring, bytearray]:
    buffer = bytearray(DATA + CAPACITY)
    return ring(buffer), ring(buffer), buffer


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, INLINE)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("withdraw"), st.integers(0, 1 << 20)),
    ),
    max_size=200,
)


@settings(deadline=None, max_examples=300)
@given(OPERATIONS)
def test_a_ring_behaves_as_a_queue_that_loses_nothing(operations: list[tuple[str, int]]) -> None:
    producer, consumer, _ = pair()
    model: deque[tuple[int, bytes]] = deque()
    positions: dict[int, int] = {}
    seq = 0
    for operation, number in operations:
        if operation == "put":
            data = bytes([seq % 251]) * number
            position = producer.put(seq, data)
            if position >= 0:
                model.append((seq, data))
                positions[seq] = position
                seq += 1
            else:
                assert positions, "an empty ring takes any record that is not too big"
        elif operation == "take":
            taken = consumer.take()
            if taken is None:
                assert not model
            else:
                assert (taken[0], taken[2]) == model.popleft()
        elif positions:
            chosen = number % len(positions)
            waiting = [entry for entry in model if entry[0] == chosen]
            assert producer.withdraw(positions[chosen]) == bool(waiting)
            for entry in waiting:
                model.remove(entry)
    rest = []
    while (taken := consumer.take()) is not None:
        rest.append((taken[0], taken[2]))
    assert rest == list(model)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, INLINE])
def test_records_survive_any_place_of_the_wrap(size: int) -> None:
    producer, consumer, _ = pair()
    for number in range(1000):
        data = bytes([number % 256]) * size
        assert producer.put(number, data, kind=number, a=1, b=2) >= 0
        assert consumer.take() == (number, number, data)


def test_a_full_ring_refuses_and_takes_again_once_there_is_room() -> None:
    producer, consumer, _ = pair()
    count = 0
    while producer.put(count, b"x" * 100) >= 0:
        count += 1
    assert count == CAPACITY // 144
    assert producer.put(count, b"x" * 100) == -1
    taken = [consumer.take() for _ in range(count)]
    assert [entry[0] for entry in taken if entry] == list(range(count))
    assert producer.put(count, b"x" * 100) >= 0


def test_small_records_stay_in_the_first_part_of_a_ring_while_little_is_unread() -> None:
    producer, consumer, _ = pair()
    highest = 0
    for seq in range(1000):
        position = producer.put(seq, b"")
        assert position >= 0
        highest = max(highest, position % CAPACITY)
        if seq:  # one is always unread
            taken = consumer.take()
            assert taken is not None
            assert taken[0] == seq - 1
    assert 0 < highest <= CAPACITY // 8


def test_what_never_fits_is_refused_with_its_size() -> None:
    producer, _, _ = pair()
    with pytest.raises(ValueError, match=f"{INLINE + 1} bytes does not fit"):
        producer.put(0, b"x" * (INLINE + 1))


def test_a_record_that_was_taken_cannot_be_withdrawn_though_its_bytes_were_reused() -> None:
    producer, consumer, _ = pair()
    first = producer.put(0, b"x")
    consumer.take()
    seq = 1
    while producer.put(seq, b"y") >= 0:
        seq += 1
    # The ring has wrapped: a newer record, still waiting, stands where the first one was.
    assert not producer.withdraw(first)
    for number in range(1, seq):
        assert consumer.take() == (number, 0, b"y")


def test_a_record_is_withdrawn_once() -> None:
    producer, consumer, _ = pair()
    position = producer.put(0, b"x")
    assert producer.withdraw(position)
    assert not producer.withdraw(position)
    assert consumer.take() is None


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (DATA + layout.RECORD_SIZE_AT, 1 << 30),  # longer than the ring
        (DATA + layout.RECORD_SIZE_AT, 64),  # longer than what was written
        (DATA + layout.RECORD_STATE_AT, layout.RECORD_PAD),  # a pad that goes beyond the tail
        (TAIL, 1 << 20),  # more than the ring holds
    ],
)
def test_nonsense_from_the_other_side_is_an_error_and_is_not_read(at: int, value: int) -> None:
    producer, consumer, buffer = pair()
    producer.put(0, b"x" * 16)
    buffer[at : at + 4] = value.to_bytes(4, "little")
    with pytest.raises(RingCorruptError):
        consumer.take()


def test_a_ring_outside_its_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves its memory"):
        Ring(Memory(bytearray(100)), 0, 8, 16, 4096)
    with pytest.raises(ValueError, match="power of two"):
        Ring(Memory(bytearray(10000)), 0, 8, 16, 4095)


def test_two_processes_agree_on_who_has_each_record() -> None:
    """One takes while the other withdraws: every record ends in exactly one hand, in order, with its own bytes."""
    total, seed = 60_000, 7
    segment = Segment.create(DATA + CAPACITY)
    report_read, report_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(report_read)
        consume(segment, report_write, total)
        os._exit(0)
    os.close(report_write)
    producer = Ring(Memory(segment.memory), TAIL, HEAD, DATA, CAPACITY)
    chance = random.Random(seed)
    withdrawn = set()
    recent: deque[tuple[int, int]] = deque(maxlen=8)
    for seq in range(total):
        data = seq.to_bytes(8, "little") * chance.randrange(1, 20)
        while (position := producer.put(seq, data)) < 0:
            os.sched_yield()
        recent.append((seq, position))
        if chance.random() < 0.3:
            chosen, position = chance.choice(recent)
            if producer.withdraw(position):
                assert chosen not in withdrawn
                withdrawn.add(chosen)
    while producer.put(total, b"") < 0:
        os.sched_yield()
    with os.fdopen(report_read, "rb") as report:
        words = report.read().split()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    taken = [int(word) for word in words]
    assert taken == sorted(set(taken))
    assert withdrawn
    assert not withdrawn & set(taken)
    assert withdrawn | set(taken) == set(range(total))
    segment.close_fd()


def consume(segment: Segment, report_fd: int, total: int) -> None:
    """Take everything up to the last, and write down what came."""
    consumer = Ring(Memory(segment.memory), TAIL, HEAD, DATA, CAPACITY)
    taken = []
    while True:
        found = consumer.take()
        if found is None:
            os.sched_yield()
            continue
        seq, _, data = found
        if seq == total:
            break
        if data != seq.to_bytes(8, "little") * (len(data) // 8) or not data:
            os._exit(1)
        taken.append(b"%d\n" % seq)
    with os.fdopen(report_fd, "wb") as report:
        report.writelines(taken)
