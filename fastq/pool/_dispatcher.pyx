"""Spread submissions over children, and never hoard: the main process' hot path.

What does not start soon is given back: a child gets about ``prefetch_time`` of work by a running estimate per type.
What waits behind a task that runs half of that time longer than its estimate, or waited twice as long, here or in a
ring, moves to a free child or is RETURNED in the order it was submitted.
"""

from collections import deque

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool cimport _atomics as atomic
from fastq.pool._feed cimport Estimate, Event, Feed, Submission
from fastq.pool._ring cimport Memory

from fastq.pool import layout
from fastq.pool._ring import RingCorruptError
from fastq.pool.outcome import Kind

cdef uint32_t RETURNED = Kind.RETURNED
cdef uint32_t AWAKE = layout.BELL_AWAKE
cdef uint32_t ASLEEP = layout.BELL_ASLEEP
cdef int64_t MAX_BYTES = 1_000_000
cdef int MAX_TYPES = 1024
# The mean is over all types: a run of quick ones among slow ones is to fetch no more than the mix is worth.
cdef int MEAN_SPAN = 64


cdef class Dispatcher:
    """Hold what waits, the feeds it goes to, and the estimates."""

    cdef list feeds
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
    cdef int64_t only_idle_until, next_return
    # Last attempts that were given back, and have not come again.
    cdef Py_ssize_t owed
    cdef readonly bint closed
    # Whether one that is stuck may have others behind it that are not, or that may not wait.
    cdef bint mixed
    cdef bint scan_all

    def __init__(self, bell: Memory, prefetch_time: float, prefetch_records: int) -> None:
        self.memory = bell
        self.bell = bell.base + <Py_ssize_t>layout.BELL_AT
        self.prefetch_ns = prefetch_time * 1e9
        self.max_records = prefetch_records
        self.feeds = []
        self.waiting = deque()
        self.estimates = {}
        self.mean = Estimate(MEAN_SPAN)
        self.mean.ns = self.prefetch_ns

    def add(self, feed: Feed) -> None:
        """Let a child take part."""
        self.feeds.append(feed)

    def remove(self, feed: Feed) -> None:
        """Forget a child, if it took part."""
        if feed in self.feeds:
            self.feeds.remove(feed)

    # In ---------------------------------------------------------------------------------------------------------

    def submit(self, batch) -> list:
        """Take submissions and give out what can be; return events for those that cannot even wait."""
        cdef Submission submission
        cdef int64_t now = atomic.now_ns()
        cdef Py_ssize_t last_attempts = 0
        for submission in batch:
            submission.submitted_at = now
            submission.order = self.order
            self.order += 1
            submission.estimate = self.estimate(submission.type)
            self.mixed |= submission.is_async
            self.scan_all |= submission.last_attempt
            last_attempts += submission.last_attempt
            self.mean_bytes += (PyBytes_GET_SIZE(submission.data) - self.mean_bytes) / MEAN_SPAN
            self.waiting.append(submission)
        if last_attempts and self.owed:
            self.settle(last_attempts, now)
        return self.dispatch()

    cdef void settle(self, Py_ssize_t last_attempts, int64_t now):
        """Go on asking for idle children only until those that were given back have come again, or are another's.

        Else they would gather at the head of the queue, and each batch take and give back all of them.
        """
        if now >= self.only_idle_until:
            self.owed = 0
        self.owed = max(0, self.owed - last_attempts)
        self.only_idle_until = now + <int64_t>self.prefetch_ns if self.owed else 0

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
        """Give out what waits, as far as it may be; return events for last attempts that found no idle child."""
        cdef Submission submission
        cdef Feed feed
        cdef int64_t now
        cdef bint plain_stuck = False
        cdef bint async_stuck = False
        events = []
        if not self.waiting:
            return events
        now = atomic.now_ns()
        kept = []
        for feed in self.feeds:
            feed.measure_backlog(now)
        while self.waiting:
            if plain_stuck and not (self.mixed or self.scan_all or self.closed):
                break
            submission = self.waiting.popleft()
            if self.closed or (async_stuck if submission.is_async else plain_stuck):
                feed = None
            else:
                feed = self.choose(submission)
            if feed is not None and feed.push(submission, self.seq + 1):
                self.seq += 1
                continue
            if submission.last_attempt or self.closed:
                # It must not wait: were this server killed, a recoverer would archive it unrun.
                events.append(Event.make(RETURNED, submission, b"", 0))
                self.only_idle_until = now + <int64_t>self.prefetch_ns
                self.owed += 1
                continue
            kept.append(submission)
            if submission.is_async and not async_stuck:
                async_stuck = True
                self.reserve(submission)
            elif not submission.is_async and not plain_stuck:
                plain_stuck = True
                self.reserve(submission)
        self.waiting.extendleft(reversed(kept))
        self.scan_all = False
        for feed in self.feeds:
            if feed.touched:
                feed.ring_if_asleep()
        return events

    cdef Feed choose(self, Submission submission):
        """Return the child that will be free first, ``None`` when none may take this one now."""
        cdef Feed feed
        cdef Feed best = None
        for feed in self.feeds:
            if self.may_take(feed, submission) and (best is None or feed.backlog_ns < best.backlog_ns):
                best = feed
        return best

    cdef bint may_take(self, Feed feed, Submission submission):
        cdef Py_ssize_t count = feed.count()
        if not feed.open or feed.left == 0:
            return False
        if count == 0:
            feed.reserved = False
            return True
        if feed.reserved:
            return False
        if submission.is_async:
            return count == feed.async_count and count < feed.slots.count
        return (
            feed.async_count == 0
            and not submission.last_attempt
            and feed.backlog_ns < self.prefetch_ns
            and count < self.max_records
            and feed.bytes + PyBytes_GET_SIZE(submission.data) <= MAX_BYTES
        )

    cdef void reserve(self, Submission submission):
        """Let one child run dry if all are busy with the other sort, plain or coroutines, which would never end."""
        cdef Feed feed
        cdef Feed best = None
        for feed in self.feeds:
            if not feed.open:
                continue
            if feed.reserved or submission.is_async == (feed.async_count > 0):
                return  # this one will come to it
            if best is None or feed.count() < best.count():
                best = feed
        if best is not None:
            best.reserved = True

    # Out --------------------------------------------------------------------------------------------------------

    def collect(self, events: list) -> list:
        """Append an event for every result there is; return the feeds whose child wrote what it must not."""
        cdef Feed feed
        corrupt = []
        for feed in self.feeds:
            if feed.has_results():
                try:
                    feed.collect(events, self.mean)
                except RingCorruptError as error:
                    corrupt.append((feed, str(error)))
        return corrupt

    def collect_last(self, feed: Feed, events: list) -> None:
        """Append an event for every result of a child that is dead."""
        try:
            feed.collect(events, self.mean)
        except RingCorruptError:
            pass  # what cannot be read is judged with the rest

    def wake(self) -> None:
        """Tell the children that the rings are being read: nobody need ring."""
        atomic.store32(self.bell, AWAKE)

    def fall_asleep(self) -> bool:
        """Ask the children to ring from now on; false, and they need not, when there is a result already."""
        cdef Feed feed
        atomic.store32(self.bell, ASLEEP)
        atomic.fence()  # the bell is visible before the rings are read again
        for feed in self.feeds:
            if feed.has_results():
                atomic.store32(self.bell, AWAKE)
                return False
        return True

    # Limits -----------------------------------------------------------------------------------------------------

    def free(self, only_async: bool) -> int:
        """Estimate how many more submissions would start within ``prefetch_time``, and find their place."""
        cdef Feed feed
        cdef Py_ssize_t count
        cdef int64_t now = atomic.now_ns()
        cdef bint only_idle = now < self.only_idle_until
        cdef double room
        cdef double total = 0
        cdef double mean = max(self.mean.ns, 1.0)
        if self.closed:
            return 0
        for feed in self.feeds:
            if not feed.open or feed.left == 0:
                continue
            count = feed.count()
            if feed.reserved and count:
                continue
            if only_async or feed.async_count:
                room = feed.slots.count - count if count == feed.async_count else 0
            elif count == 0:
                room = 1 if only_idle else max(1.0, min(self.prefetch_ns / mean, self.max_records))
            elif only_idle:
                room = 0
            else:
                feed.measure_backlog(now)
                room = max(0.0, min((self.prefetch_ns - feed.backlog_ns) / mean, self.max_records - count))
            room = min(room, self.places(feed))
            total += min(room, feed.left) if feed.left > 0 else room
        return max(0, <int64_t>total - <int64_t>len(self.waiting))

    cdef double places(self, Feed feed):
        """Estimate for how many more submissions of the usual size there are bytes left; a big one has its place."""
        # Coroutines that run have left the ring, and are bounded by their number alone.
        cdef int64_t held = feed.tasks.unread() if feed.async_count else feed.bytes
        return max(0.0 if held else 1.0, (MAX_BYTES - held) / max(1.0, self.mean_bytes))

    def relieve(self) -> list:
        """Move what waits behind an overdue task, or too long, to free children; return events for what none can take."""
        cdef Feed feed
        cdef int64_t now = atomic.now_ns()
        # The pool asks every quarter of it, or half at first: so nothing waits for more than twice as long.
        cdef int64_t limit = now - <int64_t>(1.5 * self.prefetch_ns)
        stuck, late = [], []
        for feed in self.feeds:
            if feed.is_overdue(now, self.prefetch_ns / 2):
                stuck += feed.take_back_all()
            elif 0 < feed.oldest_waiting() < limit:
                late += feed.take_back_all()
        self.put_back(stuck + late)
        events = self.dispatch()
        if now >= self.next_return and any([submission.feed is None for submission in stuck]):
            limit = now  # another server may have a free child; but among more children than cores some always look stuck
            self.next_return = now + <int64_t>(1.5 * self.prefetch_ns)
        if self.waiting and (<Submission>self.waiting[0]).submitted_at < limit:
            events += [Event.make(RETURNED, submission, b"", 0) for submission in self.waiting]
            self.waiting.clear()
        return events

    def put_back(self, submissions: list) -> None:
        """Let withdrawn submissions wait again, in their place."""
        if submissions:
            self.waiting = deque(sorted([*submissions, *self.waiting], key=_order))

    def close(self) -> list[Submission]:
        """Withdraw everything that was not begun, here and in the rings, in order; what comes later is RETURNED."""
        cdef Feed feed
        self.closed = True
        for feed in self.feeds:
            self.put_back(feed.take_back_all())
        rest = list(self.waiting)
        self.waiting.clear()
        return rest

    def withdraw(self, submission: Submission) -> bool:
        """Withdraw one submission; false when it was begun, or is not here."""
        if submission.feed is not None:
            return submission.feed.take_back(submission)
        try:
            self.waiting.remove(submission)
        except ValueError:
            return False
        return True

    @property
    def pending(self) -> int:
        """Return how many submissions have had no event yet."""
        cdef Feed feed
        cdef Py_ssize_t total = len(self.waiting)
        for feed in self.feeds:
            total += feed.count()
        return total


def _order(submission: Submission) -> int:
    return submission.order
