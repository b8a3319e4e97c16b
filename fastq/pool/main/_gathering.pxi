# How the dispatcher puts tasks together for one call. Included by dispatcher.pyx.
#
# Only the first task of a batch waits in the dispatcher's queue; it holds the others. A batch is open, which means that
# it may get more tasks, until it is full or has gone to a child.

cdef bint gather(Dispatcher desk, Submission submission) except -1:
    """Put a task into the open batch of its rule, or begin a new batch with it; return whether a new one begins."""
    cdef BatchRule rule = submission.batch
    cdef Submission leader = desk.open_batches.get(rule)
    cdef int64_t size = PyBytes_GET_SIZE(submission.data)
    cdef int64_t due_at = submission.submitted_at + (0 if desk.none_follow else rule.wait_ns)
    if submission.deadline_unix_ns > 0:
        # The batch waits for half of the time until the task's deadline: after the deadline the task would not be
        # started.
        due_at = min(due_at, atomic.now_ns() + (submission.deadline_unix_ns - atomic.unix_ns()) // 2)
    if leader is not None and leader.batch_bytes + size > rule.max_bytes:
        del desk.open_batches[rule]
        leader = None
    if leader is None:
        submission.followers = []
        submission.batch_bytes, submission.due_at = size, due_at
        if rule.size > 1:
            desk.open_batches[rule] = submission
        return True
    leader.followers.append(submission)
    submission.leader = leader
    desk.following += 1
    leader.batch_bytes += size
    leader.due_at = min(leader.due_at, due_at)
    if 1 + <Py_ssize_t>len(leader.followers) >= rule.size:
        del desk.open_batches[rule]
        leader.due_at = min(leader.due_at, submission.submitted_at)
    return False


cdef bint is_open(Dispatcher desk, Submission leader) except -1:
    """Return whether a batch may get more tasks."""
    return leader.batch is not None and desk.open_batches.get(leader.batch) is leader


cdef int send_off(Dispatcher desk, Submission leader, int64_t now) except -1:
    """Note that a batch has gone to a child."""
    if is_open(desk, leader):
        del desk.open_batches[leader.batch]
    if leader.followers:
        desk.following -= <Py_ssize_t>len(leader.followers)
    leader.gathered_ns = now - leader.submitted_at
    return 0


cdef list scatter(Dispatcher desk, Submission leader):
    """Return the tasks of a waiting batch, one by one."""
    cdef Submission follower
    tasks = [leader]
    if leader.followers:
        if is_open(desk, leader):
            del desk.open_batches[leader.batch]
        desk.following -= <Py_ssize_t>len(leader.followers)
        for follower in leader.followers:
            follower.leader = None
        tasks += leader.followers
    elif is_open(desk, leader):
        del desk.open_batches[leader.batch]
    leader.followers = None
    return tasks


cdef bint may_go(Dispatcher desk, ChildQueue queue, Submission leader) except -1:
    """Return whether a child may get a batch, in view of the batches of the same rule that the child has.

    A batch that is not full may go to a ring only if no other batch of its rule waits there. Else it stays here and can
    grow.
    """
    return not is_open(desk, leader) or starts_at_once(queue, leader) or not queue.calls.get(leader.batch)


cdef Py_ssize_t gathering(Dispatcher desk, int64_t now) except -1:
    """Return how many tasks wait for their batch to fill, and not for a child."""
    cdef Submission leader
    cdef Py_ssize_t count = 0
    for leader in desk.open_batches.values():
        if leader.due_at > now:
            count += 1 + <Py_ssize_t>len(leader.followers)
    return count


cdef int64_t since(Submission submission) noexcept:
    """Return since when a task has waited for a child; the wait for its batch to fill does not count."""
    return max(submission.submitted_at, submission.due_at)


cdef bint withdraw_waiting(Dispatcher desk, Submission submission) except -1:
    """Remove a task that waits here; return False if it does not wait here."""
    cdef Submission leader = submission.leader
    if leader is not None:
        leader.followers.remove(submission)
        leader.batch_bytes -= PyBytes_GET_SIZE(submission.data)
        submission.leader = None
        desk.following -= 1
        return True
    try:
        desk.waiting.remove(submission)
    except ValueError:
        return False
    if submission.batch is not None:
        desk.put_back(scatter(desk, submission)[1:])
    return True


cdef list all_waiting(Dispatcher desk):
    cdef Submission submission
    waiting = []
    for submission in desk.waiting:
        waiting.append(submission)
        if submission.followers:
            waiting += submission.followers
    return waiting


cdef list take_waiting(Dispatcher desk):
    """Remove all tasks that wait here, and return them."""
    waiting = all_waiting(desk)
    for submission in desk.waiting:
        scatter(desk, submission)
    desk.waiting.clear()
    return waiting


cdef int64_t next_due(Dispatcher desk) except -1:
    cdef Submission leader
    cdef int64_t first = 0
    cdef int64_t now = atomic.now_ns()
    for leader in desk.open_batches.values():
        if leader.due_at > now:
            first = min(first, leader.due_at) if first else leader.due_at
    return first
