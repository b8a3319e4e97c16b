"""Spread submissions over children, and never hoard: the main process' hot path.

What does not start soon is given back: a child gets about ``prefetch_time`` of work by a running estimate per type;
coroutines as many as run at once, and those that would start as others end in that time.
What waits behind a task that runs half of that time longer than its estimate, or waited twice as long, here or in a
ring, moves to a free child or is RETURNED in the order it was submitted.

A child runs plain tasks or coroutines, never both at once. Where every child is busy with one sort, and a task of the
other waits, one child is reserved for that sort: it gets nothing more of its own, and runs dry.
"""

from collections import deque

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool cimport _atomics as atomic
from fastq.pool._child_queue cimport Estimate, Event, ChildQueue, Submission
from fastq.pool._ring cimport Memory

from fastq.pool import layout
from fastq.pool.event_kind import EventKind

cdef uint32_t RETURNED = EventKind.RETURNED
cdef uint32_t AWAKE = layout.BELL_AWAKE
cdef uint32_t ASLEEP = layout.BELL_ASLEEP
cdef int64_t MAX_BYTES = 1_000_000
cdef int MAX_TYPES = 1024
# The mean is over all types: a run of quick ones among slow ones is to fetch no more than the mix is worth.
cdef int MEAN_SPAN = 64
# How long a few tasks wait here for the child reserved for them: then another server may have a free one. The child
# is reserved for as long after it has run dry, as they may come again: the way to Redis and back is much shorter.
cdef int64_t PATIENCE_NS = 1_000_000_000
# More would take the place of those for which there is room.
cdef int PATIENT_TASKS = 16
# While each child has so much of its due before it nothing is asked for: what there is room for then would be fetched
# and written in calls of one or two tasks each, which cost more than the tasks.
cdef double ENOUGH = 0.75
# As long as it has no more than this before it a child is given the next task, too: to wake another costs as much.
cdef int64_t RUN_NS = 100_000
# For how long nothing is asked for after a task could not be handed over, as for want of descriptors or memory.
cdef int64_t SHORTAGE_NS = 1_000_000_000


cdef class Dispatcher:
    """The tasks that wait, the child queues they go to, and the estimates."""

    cdef list queues
    cdef object waiting
    cdef dict estimates
    cdef Estimate mean
    cdef double mean_bytes
    cdef Memory memory
    cdef char *bell
    cdef double prefetch_ns
    cdef int max_records
    cdef uint64_t seq
    cdef uint64_t order
    cdef int64_t next_return, short_until
    cdef object shortage
    cdef readonly bint closed
    # The child chosen last, in this turn, and how long it may have to work before another is looked for.
    cdef ChildQueue last
    cdef double last_until_ns
    # Which sorts have come so far, plain tasks and coroutines: where there is but one, all that waits is stuck with the first.
    cdef bint come[2]

    def __init__(self, bell: Memory, prefetch_time: float, prefetch_records: int) -> None:
        self.memory = bell
        self.bell = bell.base + <Py_ssize_t>layout.BELL_AT
        self.prefetch_ns = prefetch_time * 1e9
        self.max_records = prefetch_records
        self.queues = []
        self.waiting = deque()
        self.estimates = {}
        self.mean = Estimate(MEAN_SPAN)
        self.mean.ns = self.prefetch_ns

    def add(self, queue: ChildQueue) -> None:
        """Let a child take part."""
        self.queues.append(queue)

    def remove(self, queue: ChildQueue) -> None:
        """Forget a child, if it took part."""
        if queue in self.queues:
            self.queues.remove(queue)

    # In ---------------------------------------------------------------------------------------------------------

    def submit(self, batch) -> list:
        """Take submissions and give out what can be; return events for those that cannot even wait."""
        cdef Submission submission
        cdef int64_t now = atomic.now_ns()
        for submission in batch:
            submission.submitted_at = now
            submission.order = self.order
            self.order += 1
            submission.estimate = self.estimate(submission.type)
            self.come[submission.is_async] = True
            self.mean_bytes += (PyBytes_GET_SIZE(submission.data) - self.mean_bytes) / MEAN_SPAN
            self.waiting.append(submission)
        return self.dispatch()

    cdef Estimate estimate(self, str type):
        cdef Estimate found = self.estimates.get(type)
        if found is None:
            if len(self.estimates) >= MAX_TYPES:  # types made up on the fly: none of them is worth remembering
                self.estimates.clear()
            found = Estimate()
            found.ns = self.prefetch_ns
            self.estimates[type] = found
        return found

    def dispatch(self) -> list:
        """Give out what waits, as far as it may be; once closed, return it all instead."""
        cdef Submission submission
        cdef ChildQueue queue
        cdef bint stuck[2]
        if not self.waiting:
            return []
        if self.closed:
            return self.return_all()
        cdef int64_t now = atomic.now_ns()
        stuck[0], stuck[1] = not self.come[0], not self.come[1]
        kept = []
        try:
            for queue in self.queues:
                queue.measure_backlog(now)
            while self.waiting and not (stuck[0] and stuck[1]):
                submission = self.waiting[0]
                if not stuck[submission.is_async]:
                    queue = self.choose(submission, now)
                    if queue is not None and self.push(queue, submission, now):
                        self.waiting.popleft()
                        continue
                    stuck[submission.is_async] = True
                    reserve_child(self.queues, submission.is_async, now)
                kept.append(submission)
                self.waiting.popleft()
        finally:
            self.last = None
            self.waiting.extendleft(reversed(kept))
            for queue in self.queues:
                if queue.touched:
                    queue.ring_if_asleep()
        return []

    cdef bint push(self, ChildQueue queue, Submission submission, int64_t now) except -1:
        """Give a submission to a child; false when it has no room, or on any error: then it waits, or goes back."""
        try:
            if not queue.push(submission, self.seq + 1):
                return False
        except Exception as error:  # noqa: BLE001 - of descriptors, of memory: whatever it is, nothing else may suffer
            self.shortage = error
            self.short_until = now + SHORTAGE_NS
            return False
        self.seq += 1
        queue.reserved_until = 0
        return True

    def take_shortage(self) -> Exception | None:
        """Return why tasks could not be handed over since the last call, if so."""
        shortage, self.shortage = self.shortage, None
        return shortage

    cdef list return_all(self):
        events = [Event.make(RETURNED, submission, b"", 0) for submission in self.waiting]
        self.waiting.clear()
        return events

    cdef ChildQueue choose(self, Submission submission, int64_t now):
        """Return the child that will be free first, about; ``None`` when none may take this one now."""
        cdef ChildQueue queue
        cdef ChildQueue best = self.last
        if best is not None and best.backlog_ns < self.last_until_ns and self.may_take(best, submission, now):
            return best
        best = None
        for queue in self.queues:
            if (best is None or queue.backlog_ns < best.backlog_ns) and self.may_take(queue, submission, now):
                best = queue
        if best is not None and not submission.is_async:
            self.last, self.last_until_ns = best, best.backlog_ns + RUN_NS
        return best

    cdef bint may_take(self, ChildQueue queue, Submission submission, int64_t now):
        cdef Py_ssize_t count = queue.count()
        cdef Py_ssize_t at_once = queue.slots.count if submission.is_async else 1
        cdef int64_t held = queue.tasks.unread() if submission.is_async else queue.bytes
        if not queue.open or queue.left == 0:
            return False
        if is_reserved(queue, now) and (count or queue.reserved_for_async != submission.is_async):
            return False
        if count and submission.is_async != (queue.async_count > 0):
            return False
        return count < at_once or (
            queue.backlog_ns < self.prefetch_ns
            and count < self.max_records + at_once - 1
            and held + PyBytes_GET_SIZE(submission.data) <= MAX_BYTES
        )

    # Out --------------------------------------------------------------------------------------------------------

    def collect(self, events: list) -> list:
        """Append an event for every result there is; return the queues that cannot be read any more, each with the error."""
        cdef ChildQueue queue
        unreadable = []
        for queue in self.queues:
            if queue.has_results():
                try:
                    queue.collect(events, self.mean)
                except Exception as error:  # noqa: BLE001 - whatever it is, the others are read, and the child is replaced
                    unreadable.append((queue, error))
        return unreadable

    def any_leaves(self) -> bool:
        """Return whether a child is to leave, or has answered for all that it had since it left."""
        cdef ChildQueue queue
        for queue in self.queues:
            if queue.left == 0 or queue.report() or not (queue.open or queue.count()):
                return True
        return False

    def collect_last(self, queue: ChildQueue, events: list) -> None:
        """Append an event for every result of a child that is dead."""
        try:
            queue.collect(events, self.mean)
        except Exception:  # noqa: BLE001 - what cannot be read is judged with the rest
            pass

    def wake(self) -> None:
        """Set the flag that the rings are being read, so that no child needs to ring."""
        atomic.store32(self.bell, AWAKE)

    def fall_asleep(self) -> bool:
        """Ask the children to ring from now on; false, and they need not, when there is a result already."""
        cdef ChildQueue queue
        atomic.store32(self.bell, ASLEEP)
        atomic.fence()  # the bell is visible before the rings are read again
        for queue in self.queues:
            if queue.has_results():
                atomic.store32(self.bell, AWAKE)
                return False
        return True

    # Limits -----------------------------------------------------------------------------------------------------

    def free(self, only_async: bool) -> int:
        """Estimate how many more submissions would start within ``prefetch_time``, and find their place.

        None while every child has enough before it.
        """
        cdef ChildQueue queue
        cdef bint any_needs = False
        cdef bint needs
        cdef Py_ssize_t count, at_once, most
        cdef int64_t now = atomic.now_ns()
        cdef double room
        cdef double total = 0
        cdef double mean = max(self.mean.ns, 1.0)
        if self.closed or now < self.short_until:
            return 0
        for queue in self.queues:
            if not queue.open or queue.left == 0:
                continue
            count = queue.count()
            if count and (is_reserved(queue, now) or only_async and not queue.async_count):
                continue
            at_once = queue.slots.count if only_async or queue.async_count else 1
            most = self.max_records + at_once - 1
            queue.measure_backlog(now)
            room = min((self.prefetch_ns - queue.backlog_ns) * at_once / mean, most - count)
            needs = count < at_once or (queue.backlog_ns < ENOUGH * self.prefetch_ns and count < ENOUGH * most)
            room = min(max(room, at_once - count, 1.0 if needs else 0.0), self.places(queue))
            any_needs |= needs and room >= 1
            total += min(room, queue.left) if queue.left > 0 else room
        return max(0, <int64_t>total - <int64_t>len(self.waiting)) if any_needs else 0

    cdef double places(self, ChildQueue queue):
        """Estimate for how many more submissions of the usual size there are bytes left; a big one has its place."""
        # Coroutines that run have left the ring, and are bounded by their number alone.
        cdef int64_t held = queue.tasks.unread() if queue.async_count else queue.bytes
        return max(0.0 if held else 1.0, (MAX_BYTES - held) / max(1.0, self.mean_bytes))

    def relieve(self) -> list:
        """Move what waits behind an overdue task, or too long, to free children; return events for what none can take."""
        cdef ChildQueue queue
        cdef int64_t now = atomic.now_ns()
        # The pool asks five times in two of it, or more often: so nothing waits for more than twice as long.
        cdef int64_t limit = now - <int64_t>(1.5 * self.prefetch_ns)
        stuck, late = [], []
        for queue in self.queues:
            if queue.is_overdue(now, self.prefetch_ns / 2):
                stuck += queue.take_back_all()
            elif 0 < queue.oldest_waiting() < limit:
                late += queue.take_back_all()
                queue.strict_until = now + <int64_t>(4 * self.prefetch_ns)  # its coroutines take longer than was thought
        self.put_back(stuck + late)
        events = self.dispatch()
        if now >= self.next_return and any([submission.queue is None for submission in stuck]):
            limit = now  # another server may have a free child; but among more children than cores some always look stuck
            self.next_return = now + <int64_t>(1.5 * self.prefetch_ns)
        return events + self.return_late(limit, now)

    cdef list return_late(self, int64_t limit, int64_t now):
        """Return events for all that waits if it waited for too long; a few stay that a child is reserved for."""
        cdef Submission submission
        cdef int patient[2]
        patient[0] = PATIENT_TASKS if is_any_reserved(self.queues, False, now) else 0
        patient[1] = PATIENT_TASKS if is_any_reserved(self.queues, True, now) else 0
        staying, leaving = deque(), []
        for submission in self.waiting:
            if patient[submission.is_async] and submission.submitted_at > now - PATIENCE_NS:
                patient[submission.is_async] -= 1
                staying.append(submission)
            else:
                leaving.append(submission)
        if not leaving or (<Submission>leaving[0]).submitted_at >= limit:
            return []
        self.waiting = staying
        return [Event.make(RETURNED, submission, b"", 0) for submission in leaving]

    def list_waiting(self) -> list[Submission]:
        """Return what no child has been given, oldest first."""
        return list(self.waiting)

    def put_back(self, submissions: list) -> None:
        """Let withdrawn submissions wait again, in their place."""
        if submissions:
            self.waiting = deque(sorted([*submissions, *self.waiting], key=_order))

    def close(self) -> list[Submission]:
        """Withdraw everything that was not begun, here and in the rings, in order; what comes later is RETURNED."""
        cdef ChildQueue queue
        self.closed = True
        for queue in self.queues:
            self.put_back(queue.take_back_all())
        rest = list(self.waiting)
        self.waiting.clear()
        return rest

    def withdraw(self, submission: Submission) -> bool:
        """Withdraw one submission; false when it was begun, or is not here."""
        if submission.queue is not None:
            return submission.queue.take_back(submission)
        try:
            self.waiting.remove(submission)
        except ValueError:
            return False
        return True

    @property
    def pending(self) -> int:
        """Return how many submissions have had no event yet."""
        cdef ChildQueue queue
        cdef Py_ssize_t total = len(self.waiting)
        for queue in self.queues:
            total += queue.count()
        return total


cdef bint is_reserved(ChildQueue queue, int64_t now):
    """Return whether a child is reserved for one sort: until it has run dry, and a while for one of it to come."""
    if not queue.reserved_until:
        return False
    if queue.count():
        queue.reserved_until = now + PATIENCE_NS
    elif queue.reserved_until <= now:
        queue.reserved_until = 0
    return queue.reserved_until > 0


cdef bint is_any_reserved(list queues, bint is_async, int64_t now):
    """Return whether a child is reserved for coroutines, or for plain tasks."""
    cdef ChildQueue queue
    for queue in queues:
        if queue.reserved_for_async == is_async and is_reserved(queue, now):
            return True
    return False


cdef void reserve_child(list queues, bint is_async, int64_t now):
    """Keep a child for a sort that is stuck, if all others are busy with the other sort, which might never end."""
    cdef ChildQueue queue
    cdef ChildQueue best = None
    if is_any_reserved(queues, is_async, now):
        return
    for queue in queues:
        if not queue.open or queue.left == 0 or is_reserved(queue, now):
            continue
        if queue.count() == 0 or is_async == (queue.async_count > 0):
            return  # this one will come to it
        if best is None or queue.count() < best.count():
            best = queue
    if best is not None:
        best.reserved_for_async = is_async
        best.reserved_until = now + PATIENCE_NS


def _order(submission: Submission) -> int:
    return submission.order
