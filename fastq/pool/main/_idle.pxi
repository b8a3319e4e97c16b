# How the dispatcher keeps a child from idling while tasks wait in the ring of another, and what could start at once.
# Included by dispatcher.pyx.

# What would wait for less stays where it is: to take a task back and give it out again costs about 1 us, to wake a child
# 10 us, and the next tasks from Redis are about 1 ms away.
cdef double WORTH_MOVING_NS = 2_000_000


cdef int help_idle(Dispatcher desk) except -1:
    """Take back what waits in the ring of the busiest child if another child has nothing to do, to give it out anew."""
    cdef ChildQueue queue
    cdef ChildQueue busiest = None
    cdef double most_ns = WORTH_MOVING_NS
    cdef int64_t now = 0
    for queue in desk.queues:
        if not queue.count() and queue.open and queue.left:
            now = atomic.now_ns()
            if not is_reserved(queue, now):
                break
    else:
        return 0
    if now < desk.short_until:
        return 0  # what cannot be passed on now had better stay
    for queue in desk.queues:
        if queue.count() > (queue.at_once() if queue.async_count else 1):
            queue.measure_backlog(now)
            if queue.backlog_ns > most_ns:
                busiest, most_ns = queue, queue.backlog_ns
    if busiest is not None:
        desk.put_back(busiest.take_back_all())
    return 0


def free_coroutines(Dispatcher desk not None) -> int:
    """Return how many more coroutines would start at once, in children that run no plain task."""
    cdef ChildQueue queue
    cdef Py_ssize_t rows = 0
    cdef int64_t now = atomic.now_ns()
    if desk.closed or now < desk.short_until:
        return 0
    for queue in desk.queues:
        if queue.open and queue.left and not is_reserved(queue, now) and (queue.async_count or not queue.count()):
            rows += max(0, queue.free_coroutines() if queue.left < 0 else min(queue.left, queue.free_coroutines()))
    return max(0, rows - <Py_ssize_t>len(desk.waiting) - desk.following)
