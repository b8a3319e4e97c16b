# A batch in the child: several attempts, one call. Included by work.pyx.

cdef int read_record(Work work, Attempt task, Record *record, bint is_batch) except -1:
    """Copy the bytes of a task, or those of each task of a batch, out of the ring."""
    if is_batch:
        return read_batch(work, task, record.data)
    task.data = PyBytes_FromStringAndSize(record.data, record.size)
    return 0


cdef int read_segment(Work work, Attempt task, bytes data, bint is_batch) except -1:
    """Take what came in a segment of its own: a task as it is, without a copy, or each task of a batch."""
    if is_batch:
        return read_batch(work, task, PyBytes_AS_STRING(data))
    task.data = data
    return 0


cdef list data_of(list tasks):
    cdef Attempt task
    cdef list data = []
    for task in tasks:
        data.append(task.data)
    return data


cdef int read_batch(Work work, Attempt first, const char *at) except -1:
    """Make the attempts of a batch, which its record holds; the first one has the row of the call."""
    cdef uint64_t count = (<uint64_t *>at)[0]
    cdef const Member *members = <const Member *>(at + sizeof(uint64_t))
    cdef const char *data = <const char *>(members + count)
    cdef Attempt task
    cdef uint64_t nth
    first.followers = []
    for nth in range(count):
        if nth == 0:
            task = first
        else:
            task = work.attempt(members[nth].seq, members[nth].row, members[nth].kind)
            task.started_ns = first.started_ns
            first.followers.append(task)
        task.data = PyBytes_FromStringAndSize(data, members[nth].size)
        data += members[nth].size
        task.deadline_ns = deadline_of(first.started_ns, members[nth].timeout, members[nth].deadline)
    return 0


cdef int open_batch(Work work, Attempt first) except -1:
    """Begin the tasks of a batch.

    A task whose time is up ends here. Its deadline does not limit the others.
    """
    cdef Attempt task
    cdef int64_t least = 0
    first.called = []
    for task in [first, *first.followers]:
        if 0 < task.deadline_ns <= first.started_ns:
            continue
        first.called.append(task)
        if task.deadline_ns:
            least = min(least, task.deadline_ns) if least else task.deadline_ns
            task.deadline_ns = 0
    if first.called:
        if first not in first.called:
            work.slots.interrupt(first.seq, layout.ROW_TIMED_OUT)  # the call uses the row; the task must not run
        first.deadline_ns = least
        work.slots.limit(first.row, least)
    for task in first.followers:
        task.leader = first
        task.deadline_ns = task.deadline_ns or least
        work.slots.begin(task.row, task.seq, task.started_ns, least)
        if 0 < task.deadline_ns <= task.started_ns:
            work.finish_one(task, TIMEOUT, (EventKind.TIMEOUT, NOT_BEGUN))
    return 0


cdef int finish_batch(Work work, Attempt first, uint32_t kind, object answer) except -1:
    """End the tasks of a batch, and take them apart: attempts are no objects of the garbage collector."""
    cdef Attempt task
    try:
        return end_tasks(work, first, kind, answer)
    finally:
        for task in first.followers:
            task.leader = None
        first.followers = first.called = None


cdef int end_tasks(Work work, Attempt first, uint32_t kind, object answer) except -1:
    """End the tasks of a batch, the first one last.

    If the runner answered None, all are done. The main process then takes the end of the first task as the end of every
    task for which nothing was sent.
    """
    cdef Attempt task
    cdef bint is_silent = answer is None and kind == DONE
    answers, called = answer if isinstance(answer, list) else None, first.called
    if answers is not None and len(answers) != len(called):
        answers, answer = None, (BROKEN, f"a runner gave {len(answers)} answers to {len(called)} tasks".encode())
    its = dict(zip(called, answers)) if answers is not None else {}
    for task in called:
        if is_silent and task is not first and task.unsent is None and not task.is_awaited:
            end_silently(work, task)
        elif task is not first:
            work.finish_one(task, kind, its.get(task, None if answers is not None else answer), is_silent)
    is_late = first not in called
    work.finish_one(first, kind, (EventKind.TIMEOUT, NOT_BEGUN) if is_late else its.get(first, None if answers is not None else answer))
    return 0


cdef int end_silently(Work work, Attempt task) except -1:
    """End a task that is done; send nothing, unless it was told to end meanwhile."""
    cdef int state = work.slots.end(task.row, task.seq)
    if state != ROW_RUNNING:
        told = _INTERRUPTIONS.get(state, EventKind.BROKEN)
        work.outbox.send(task, told, TOO_LATE if told in _TOLD_TO_END else b"", atomic.now_ns() - task.started_ns)
    return 0


cdef bint goes_on(Work work, Attempt task) noexcept:
    """Return whether the call of a batch must go on, because one of its tasks was not told to end."""
    cdef Attempt other
    if task.followers is None:
        return False
    for other in task.followers:
        if work.slots.state(other.row, other.seq) == ROW_RUNNING:
            return True
    return work.slots.state(task.row, task.seq) == ROW_RUNNING


cdef int64_t deadline_of(int64_t now, int64_t timeout, int64_t deadline_unix) noexcept:
    """Return when the time of a task that begins now is up, 0 for never."""
    cdef int64_t until = now + timeout if timeout > 0 else 0
    cdef int64_t absolute
    if deadline_unix > 0:
        absolute = max(1, now + deadline_unix - atomic.unix_ns())
        until = min(until, absolute) if until else absolute
    return until
