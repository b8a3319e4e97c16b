"""The dispatcher: spreads submissions over children without hoarding them. The main process's hot path.

A child gets about ``prefetch_time`` of plain tasks, by a running estimate per type. Of coroutines and of tasks for
threads it gets as many as can run at once, and those that would start within that time as others end. A task moves to a
free child, or is RETURNED in the order of submission, in two cases: it waits behind a task that exceeds its estimate by
half of ``prefetch_time``, or it has waited for twice ``prefetch_time``, here or in a ring. It also moves if a child
has nothing to do (``_idle.pxi``).

Tasks with the same ``BatchRule`` are put together here, for one call that counts as one task (``_gathering.pxi``).

A child runs plain tasks or coroutines, never both at once. If every child is busy with one sort and a task of the other
sort waits, one child is reserved for the waiting sort: it gets no more tasks of its own sort, and runs dry. Coroutines
and tasks in threads run side by side in a child. In such a child no task waits in the ring, where it would keep the
other sort from free rows.
"""

from collections import deque

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool.shared cimport atomics as atomic
from fastq.pool.main.child_queue cimport BatchRule, ChildQueue, Estimate, Event, Submission
from fastq.pool.shared.ring cimport Memory

from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import EventKind

cdef uint32_t RETURNED = EventKind.RETURNED
cdef uint32_t AWAKE = layout.BELL_AWAKE
cdef uint32_t ASLEEP = layout.BELL_ASLEEP
cdef enum:  # sorts of tasks
    PLAIN
    COROUTINE
    THREAD
    SORTS
cdef int64_t MAX_BYTES = 1_000_000
cdef int MAX_TYPES = 1024
# For the mean over all types. Wide, so that a run of quick tasks among slow ones does not fetch too many.
cdef int MEAN_SPAN = 64
# For the share that a task has in a call. Narrow, since a call may take long, and the next one should be full.
cdef int SHARE_SPAN = 16
# How long a few tasks wait here for a row, or for the child that is reserved for them. Then they are returned, since
# another server may have a free row. A reserved child also stays reserved for so long after it has run dry, which is
# more than returned tasks need to come back from Redis.
cdef int64_t PATIENCE_NS = 1_000_000_000
# How many tasks of a sort may wait in this way. More would take the places of tasks that could start.
cdef int PATIENT_TASKS = 16
# While every child has this share of its backlog, no tasks are requested. They would come in calls of one or two tasks
# each, and the calls would cost more than the tasks.
cdef double ENOUGH = 0.75
# The child chosen last is chosen again until its backlog has grown by this: waking another costs as much.
cdef int64_t RUN_NS = 100_000
# How long no tasks are requested after a task could not be passed on, for lack of descriptors or memory.
cdef int64_t SHORTAGE_NS = 1_000_000_000


cdef class Dispatcher:
    """The waiting tasks, the child queues to which they go, and the estimates."""

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
    # The child chosen last in this turn, and the backlog up to which it is chosen again.
    cdef ChildQueue last
    cdef double last_until_ns
    # The batches that may get more tasks, by their rules, and how many tasks wait behind the first one of a batch.
    cdef dict open_batches
    cdef Py_ssize_t following
    cdef bint none_follow
    # The mean share of recent tasks in a call; 1 until the first task for a batch has come.
    cdef Estimate share
    cdef bint has_batches
    # The sorts of tasks that have come so far. If a task of each of them is stuck, all tasks are.
    cdef bint come[SORTS]

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
        self.open_batches = {}
        self.share = Estimate(SHARE_SPAN)
        self.share.ns = 1

    def add(self, queue: ChildQueue) -> None:
        """Add the queue of a ready child."""
        self.queues.append(queue)

    def remove(self, queue: ChildQueue) -> None:
        """Remove the queue of a child, if it was added."""
        if queue in self.queues:
            self.queues.remove(queue)

    # In ---------------------------------------------------------------------------------------------------------

    def submit(self, batch) -> list:
        """Take submissions and dispatch them; return events for those that are refused after ``close``."""
        cdef Submission submission
        cdef int64_t now = atomic.now_ns()
        for submission in batch:
            submission.submitted_at = now
            submission.order = self.order
            self.order += 1
            submission.estimate = self.estimate(submission.type)
            self.come[sort_of(submission)] = True
            self.mean_bytes += (PyBytes_GET_SIZE(submission.data) - self.mean_bytes) / MEAN_SPAN
            self.has_batches |= submission.batch is not None
            if self.has_batches:
                self.share.update(1.0 if submission.batch is None else 1.0 / submission.batch.size)
            if submission.batch is None or gather(self, submission):
                self.waiting.append(submission)
        return self.dispatch()

    cdef Estimate estimate(self, str type):
        cdef Estimate found = self.estimates.get(type)
        if found is None:
            if len(self.estimates) >= MAX_TYPES:  # types made up on the fly are not worth remembering
                self.estimates.clear()
            found = Estimate()
            found.ns = self.prefetch_ns
            self.estimates[type] = found
        return found

    def dispatch(self) -> list:
        """Give waiting tasks to children as far as possible; once closed, return events for all of them instead."""
        cdef Submission submission
        cdef ChildQueue queue
        cdef bint stuck[SORTS]
        cdef int sort
        if self.closed:
            return self.return_all()
        if not self.waiting:  # otherwise a child that is free gets what waits here
            help_idle(self)
        if not self.waiting:
            return []
        cdef int64_t now = atomic.now_ns()
        for sort in range(SORTS):
            stuck[sort] = not self.come[sort]
        kept = []
        try:
            for queue in self.queues:
                queue.measure_backlog(now)
            while self.waiting and not (stuck[PLAIN] and stuck[COROUTINE] and stuck[THREAD]):
                submission = self.waiting[0]
                sort = sort_of(submission)
                if not stuck[sort] and (submission.due_at <= now or not is_open(self, submission)):
                    queue = self.choose(submission, now)
                    if queue is not None and self.push(queue, submission, now):
                        self.waiting.popleft()
                        continue
                    stuck[sort] = not is_open(self, submission)  # a batch that is not full holds up no other tasks
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
        """Give a submission to a child; return False if there is no room or an error occurs: then it waits here."""
        try:
            if not queue.push(submission, self.seq + 1):
                return False
        except Exception as error:  # noqa: BLE001 - no descriptor, no memory: whatever it is, other tasks must go on
            self.shortage = error
            self.short_until = now + SHORTAGE_NS
            return False
        self.seq += 1
        queue.reserved_until = 0
        if submission.batch is not None:
            self.seq += <uint64_t>len(submission.followers)
            send_off(self, submission, now)
        return True

    def take_shortage(self) -> Exception | None:
        """Return the last error in passing on tasks since this was last called, None if there was none."""
        shortage, self.shortage = self.shortage, None
        return shortage

    cdef list return_all(self):
        return [Event.make(RETURNED, submission, b"", 0) for submission in take_waiting(self)]

    cdef ChildQueue choose(self, Submission submission, int64_t now):
        """Return the queue of a child that may take a submission now and is among the least busy, None if none may."""
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
        cdef Py_ssize_t at_once = queue.at_once() if submission.is_async else 1
        cdef int64_t held = queue.tasks.unread() if submission.is_async else queue.bytes
        if not queue.open or queue.left == 0:
            return False
        if is_reserved(queue, now) and (count or queue.reserved_for_async != submission.is_async):
            return False
        if count and submission.is_async != (queue.async_count > 0):
            return False
        if submission.batch is not None:
            if <Py_ssize_t>len(submission.followers) > queue.places_left() or not may_go(self, queue, submission):
                return False
            held += submission.batch_bytes - PyBytes_GET_SIZE(submission.data)
        return starts_at_once(queue, submission) or (
            not queue.is_mixed()  # a task that waits for a row keeps tasks of the other sort from free rows
            and self.may_wait(queue, submission.estimate.ns, now)
            and count < self.max_records + at_once - 1
            and held + PyBytes_GET_SIZE(submission.data) <= MAX_BYTES
        )

    # Out --------------------------------------------------------------------------------------------------------

    def collect(self, events: list) -> list:
        """Append an event for every result; return the queues that cannot be read any more, each with its error."""
        cdef ChildQueue queue
        unreadable = []
        for queue in self.queues:
            if queue.has_results():
                try:
                    queue.collect(events, self.mean)
                except Exception as error:  # noqa: BLE001 - the others are read, and this child is replaced
                    unreadable.append((queue, error))
        return unreadable

    def any_leaves(self) -> bool:
        """Return whether a child must leave, or is leaving and has no tasks any more."""
        cdef ChildQueue queue
        for queue in self.queues:
            if queue.left == 0 or queue.report() or not (queue.open or queue.count()):
                return True
        return False

    def collect_last(self, queue: ChildQueue, events: list) -> None:
        """Append an event for every result of a dead child."""
        try:
            queue.collect(events, self.mean)
        except Exception:  # noqa: BLE001 - tasks with unreadable results are resolved with the rest
            pass

    def wake(self) -> None:
        """Set the flag that the rings are being read, so that no child needs to ring."""
        atomic.store32(self.bell, AWAKE)

    def fall_asleep(self) -> bool:
        """Ask the children to ring from now on; return False instead if there is a result already."""
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
        """Estimate how many more submissions would start within ``prefetch_time`` and fit into the queues.

        It is 0 while every child has enough work. Tasks that wait for their batch to fill are not counted: otherwise a
        child would idle until the batch is due.
        """
        cdef ChildQueue queue
        cdef bint any_needs = False
        cdef bint needs
        cdef Py_ssize_t count, at_once, most, rows
        cdef int64_t now = atomic.now_ns()
        cdef double room, due
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
            at_once = queue.at_once() if only_async or queue.async_count else 1
            most = self.max_records + at_once - 1
            queue.measure_backlog(now)
            rows = self.free_rows(queue, at_once)
            needs, room = rows > 0, rows / self.share.ns
            if self.may_wait(queue, mean, now):
                due = self.due_ns(queue, now)
                needs |= queue.backlog_ns < due - (1 - ENOUGH) * self.prefetch_ns and count < ENOUGH * most
                room = max(room, min((due - queue.backlog_ns) * at_once / mean, (most - count) / self.share.ns))
            room = min(max(room, 1.0 if needs else 0.0), self.places(queue), 1.0 + queue.places_left())
            any_needs |= needs and room >= 1
            total += min(room, queue.left / self.share.ns) if queue.left > 0 else room
        if not any_needs:
            return 0
        return max(0, <int64_t>total - <int64_t>len(self.waiting) - self.following + gathering(self, now))

    cdef bint may_wait(self, ChildQueue queue, double charge_ns, int64_t now):
        """Return whether a child may have one more task that waits behind those that it runs."""
        if not queue.async_count:
            return queue.backlog_ns < self.prefetch_ns
        # If the child has tasks of both sorts, a waiting task would keep the other sort from free rows.
        return not queue.is_mixed() and queue.backlog_ns + charge_ns / queue.at_once() <= self.due_ns(queue, now)

    cdef double due_ns(self, ChildQueue queue, int64_t now):
        """Return how long a child may be busy and still get more tasks.

        Tasks side by side count as busy for one task's time, although the next one starts as soon as the first of them
        ends. So about as many tasks may wait as end in half of ``prefetch_time``. If none has ended within
        ``prefetch_time``, none may wait.
        """
        if queue.async_count < queue.at_once():
            return self.prefetch_ns
        if not queue.ended_at or now - queue.ended_at > self.prefetch_ns:
            return 0
        return max(self.prefetch_ns, self.prefetch_ns / 2 + queue.charged_ns / queue.count())

    cdef Py_ssize_t free_rows(self, ChildQueue queue, Py_ssize_t at_once):
        """Return how many tasks to request for the free rows.

        If only one sort has free rows, few tasks are requested: they may be of the other sort.
        """
        cdef int full = full_sort(queue)
        if full == THREAD and self.come[COROUTINE]:
            return min(queue.free_coroutines(), PATIENT_TASKS)
        if full == COROUTINE and self.come[THREAD]:
            return min(queue.free_threads(), PATIENT_TASKS)
        return at_once - queue.count()

    cdef double places(self, ChildQueue queue):
        """Estimate how many more submissions of the mean size fit; one always fits an empty queue."""
        # Running coroutines have left the ring; only their number is bounded.
        cdef int64_t held = queue.tasks.unread() if queue.async_count else queue.bytes
        return max(0.0 if held else 1.0, (MAX_BYTES - held) / max(1.0, self.mean_bytes))

    def relieve(self) -> list:
        """Move tasks that wait too long, or behind an overdue task, to free children; return events for the rest."""
        cdef ChildQueue queue
        cdef int64_t now = atomic.now_ns()
        # Called at least every 0.4 prefetch times, so no task waits for more than two.
        cdef int64_t limit = now - <int64_t>(1.5 * self.prefetch_ns)
        stuck, late = [], []
        for queue in self.queues:
            if queue.is_overdue(now, self.prefetch_ns / 2):
                stuck += queue.take_back_all()
            elif 0 < queue.oldest_waiting() < limit:
                late += queue.take_back_all()
                queue.strict_until = now + <int64_t>(4 * self.prefetch_ns)  # its coroutines take longer than estimated
        self.put_back(stuck + late)
        events = self.dispatch()
        if now >= self.next_return and any([submission.queue is None for submission in stuck]):
            # Other servers may have room. Not often, since with more children than cores, some tasks only look stuck.
            limit = now
            self.next_return = now + <int64_t>(1.5 * self.prefetch_ns)
        return events + return_late(self, limit, now)

    def list_waiting(self) -> list[Submission]:
        """Return the tasks that no child has been given, oldest first."""
        return all_waiting(self)

    @property
    def due_at(self) -> int:
        """Return when the next batch goes even if it is not full; 0 if none waits for tasks."""
        return next_due(self)

    def put_back(self, submissions: list) -> None:
        """Let withdrawn submissions wait again, in the order of submission."""
        cdef Submission submission
        if not submissions:
            return
        again = []
        for submission in submissions:
            if submission.batch is None or gather(self, submission):
                again.append(submission)
        self.waiting = deque(sorted([*again, *self.waiting], key=_order))

    def let_batches_go(self) -> list[Event]:
        """Let no batch wait for more tasks, from now on, since none will come; return events as ``dispatch`` does."""
        cdef Submission leader
        cdef int64_t now = atomic.now_ns()
        self.none_follow = True
        for leader in self.open_batches.values():
            leader.due_at = min(leader.due_at, now)
        return self.dispatch()

    def close(self) -> list[Submission]:
        """Withdraw all tasks that have not begun, here and in the rings, in order; later tasks are RETURNED."""
        cdef ChildQueue queue
        self.closed = True
        for queue in self.queues:
            self.put_back(queue.take_back_all())
        return sorted(take_waiting(self), key=_order)

    def withdraw(self, submission: Submission) -> bool:
        """Withdraw one submission; return False if it has begun or is unknown."""
        cdef ChildQueue queue = submission.queue
        if queue is None:
            return withdraw_waiting(self, submission)
        taken = queue.take_back(submission)
        if not taken:
            return False
        queue.wake()
        taken.remove(submission)
        self.put_back(taken)
        return True

    @property
    def pending(self) -> int:
        """Return the number of submissions without a final event."""
        cdef ChildQueue queue
        cdef Py_ssize_t total = len(self.waiting) + self.following
        for queue in self.queues:
            total += len(queue.in_flight)
        return total


include "_gathering.pxi"
include "_idle.pxi"


cdef list return_late(Dispatcher desk, int64_t limit, int64_t now):
    """Return events for all waiting tasks if the first waited too long, except a few that would come back at once.

    A few tasks stay of each sort for which a child is reserved, or for which a child with free rows of another sort is
    full.
    """
    cdef Submission submission
    cdef ChildQueue queue
    cdef int patient[SORTS]
    cdef int sort
    for sort in range(SORTS):
        patient[sort] = PATIENT_TASKS if is_any_reserved(desk.queues, sort != PLAIN, now) else 0
    for queue in desk.queues:
        sort = full_sort(queue)
        if sort != PLAIN:
            patient[sort] = PATIENT_TASKS
    staying, leaving = deque(), []
    for submission in desk.waiting:
        sort = sort_of(submission)
        if submission.due_at > now and is_open(desk, submission):
            staying.append(submission)  # the task waits for its batch, not for a child
        elif patient[sort] and submission.submitted_at > now - PATIENCE_NS:
            patient[sort] -= 1
            staying.append(submission)
        else:
            leaving.append(submission)
    if not leaving or since(leaving[0]) >= limit:
        return []
    desk.waiting = staying
    return [Event.make(RETURNED, one, b"", 0) for submission in leaving for one in scatter(desk, submission)]


cdef inline int sort_of(Submission submission) noexcept:
    return submission.is_async + submission.is_threaded


cdef int full_sort(ChildQueue queue) noexcept:
    """Return the sort for which a busy child has no row while it has some for another, PLAIN for none."""
    if not queue.threads or not queue.async_count or (queue.free_threads() > 0) == (queue.free_coroutines() > 0):
        return PLAIN
    return COROUTINE if queue.free_threads() > 0 else THREAD


cdef bint starts_at_once(ChildQueue queue, Submission submission):
    """Return whether a submission would start at once in a child: the child is idle, or has a free thread or row."""
    if submission.is_threaded:
        return queue.free_threads() > 0
    if submission.is_async:
        return queue.free_coroutines() > 0
    return queue.count() == 0


cdef bint is_reserved(ChildQueue queue, int64_t now):
    """Return whether a child is reserved for one sort: until it has run dry, and PATIENCE_NS longer."""
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
    """Reserve a child for a stuck sort if all children are busy with the other sort, which might never end."""
    cdef ChildQueue queue
    cdef ChildQueue best = None
    if is_any_reserved(queues, is_async, now):
        return
    for queue in queues:
        if not queue.open or queue.left == 0 or is_reserved(queue, now):
            continue
        if queue.count() == 0 or is_async == (queue.async_count > 0):
            return  # this child will come to the stuck tasks by itself
        if best is None or queue.count() < best.count():
            best = queue
    if best is not None:
        best.reserved_for_async = is_async
        best.reserved_until = now + PATIENCE_NS


def _order(submission: Submission) -> int:
    return submission.order
