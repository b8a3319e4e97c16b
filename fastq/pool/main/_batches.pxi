# The main process's side of batches: several submissions in one record. Included by child_queue.pyx.

cdef bytes pack_batch(ChildQueue queue, Submission leader, uint64_t seq):
    """Give the tasks of a batch their numbers and rows; return the data of its record."""
    try:
        return pack(queue, leader, seq)
    except BaseException:
        unpack_batch(queue, leader)
        raise


cdef bytes pack(ChildQueue queue, Submission leader, uint64_t seq):
    cdef Member member
    cdef Submission follower
    cdef uint64_t count = 1 + <uint64_t>len(leader.followers)
    members = [leader, *leader.followers]
    parts = [PyBytes_FromStringAndSize(<char *>&count, sizeof(count))]
    for follower in members:
        member.seq, member.timeout, member.deadline = seq, follower.timeout_ns, follower.deadline_unix_ns
        member.kind = AWAITED if follower.is_awaited else 0
        member.size = PyBytes_GET_SIZE(follower.data)
        member.row = 0
        if follower is not leader:
            member.row = place_of(queue, follower, seq)
        parts.append(PyBytes_FromStringAndSize(<char *>&member, sizeof(Member)))
        seq += 1
    for follower in members:
        parts.append(follower.data)
    return b"".join(parts)


cdef int place_of(ChildQueue queue, Submission follower, uint64_t seq) except -1:
    """Give a child a task that is not the first of its batch; return the task's row."""
    cdef int row
    if queue.free_places:
        row = queue.free_places.pop()
    else:
        row = queue.first_place + queue.made_places
        queue.made_places += 1
    queue.slots.places[seq] = row
    queue.in_flight[seq] = follower
    queue.following += 1
    queue.bytes += PyBytes_GET_SIZE(follower.data)
    follower.seq, follower.queue, follower.charge_ns = seq, queue, 0
    return row


cdef int unpack_batch(ChildQueue queue, Submission leader) except -1:
    """Undo ``pack_batch`` for a batch that could not be passed on; its tasks stay together."""
    cdef Submission follower
    if leader.followers:
        for follower in leader.followers:
            if follower.queue is queue:
                queue.forget(follower)
            follower.leader = leader
    return 0


cdef int note_batch(ChildQueue queue, Submission leader) except -1:
    """Note that a batch is in the ring."""
    cdef Submission follower
    queue.calls[leader.batch] = queue.calls.get(leader.batch, 0) + 1
    leader.called = 1
    if leader.followers:
        leader.called += <int>len(leader.followers)
        for follower in leader.followers:
            follower.position = leader.position
    return 0


cdef int end_rest(uint32_t kind, Submission leader, list events, int64_t ran_ns) except -1:
    """End the tasks of a batch for which the child has sent nothing by the batch's end; return how many.

    These tasks are done, unless the child has given the batch back, or could not receive it.
    """
    cdef Submission follower
    cdef ChildQueue queue = leader.queue
    cdef int count = 0
    rest = [follower for follower in leader.followers if follower.queue is queue]
    for follower in rest:
        events.append(Event.make(kind if kind == RETURNED or kind == BROKEN else DONE, follower, b"", ran_ns))
        queue.forget(follower)
        count += 1
    return count
