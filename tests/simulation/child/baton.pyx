"""One baton for all threads of simulated processes: a seed decides who has it, and nobody else runs.

An actor is a thread, and belongs to a process. It may lose the baton at each access to shared memory (``sim_point``),
where it keeps the interpreter (GIL) of its process, and where Python code calls in here, where it does not. Nothing in
here is bytecode, so an error that is set for a thread is raised behind the call, as behind any function in C. Time is
simulated: each point takes a little, and when all wait it goes on to the next who waits for a time.
"""

from cpython.buffer cimport Py_buffer, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool.shared import layout

cdef extern from *:
    """
    #include <poll.h>
    #include <semaphore.h>
    #include <time.h>
    static __thread int me = -1;
    static int sim_get(void) { return me; }
    static void sim_set(int actor) { me = actor; }
    static int sim_readable(const int *fds, int count) {
        struct pollfd polled[64];
        int i;
        for (i = 0; i < count; i++) polled[i] = (struct pollfd){fds[i], POLLIN, 0};
        return poll(polled, count, 0) > 0;
    }
    static void sim_pass(sem_t *to, sem_t *own) { sem_post(to); while (sem_wait(own)) {} }
    """
    ctypedef struct sem_t:
        pass
    struct timespec:
        long tv_sec
        long tv_nsec
    int sem_init(sem_t *sem, int shared, unsigned int value) nogil
    int sem_post(sem_t *sem) nogil
    int sem_wait(sem_t *sem) nogil
    int sim_get() nogil
    void sim_set(int actor) nogil
    bint sim_readable(const int *fds, int count) nogil
    void sim_pass(sem_t *to, sem_t *own) nogil

cdef enum:
    ACTORS = 256
    PROCESSES = 64
    FDS = 64
    KILLS = 16
    CHANGES = 64

cdef struct Actor:
    sem_t turn
    int process
    int done
    bint waits, wants_fds, idles
    int64_t until  # -1 for ever
    int fds[FDS]
    int fd_count
    int *word
    int priority

cdef struct Process:
    bint dead
    int interpreter  # the actor that has it, -1 for none
    int chief  # its main thread, which takes signals
    bint signaled
    char *base  # of its segment, NULL before it is ready
    uint64_t ring_at, ring_bytes
    int rows, threads

cdef Actor actors[ACTORS]
cdef Process processes[PROCESSES]
cdef int actor_count = 0
cdef int process_count = 0
cdef uint64_t state = 1
cdef uint64_t points = 0
cdef uint64_t trace = 14695981039346656037ULL
cdef int64_t now = 1_000_000_000_000
cdef int64_t cost = 1000
cdef uint64_t chance = 10  # of 256
cdef bint by_priority = False
cdef uint64_t kills[KILLS]
cdef int kill_count = 0
cdef uint64_t changes[CHANGES]
cdef int change_count = 0
cdef int untold = 0  # dead processes of which the preloader has not heard
cdef int lost = 0
cdef bint running = False
cdef int64_t UNIX_NS = 1_700_000_000_000_000_000LL
cdef sem_t arrived
cdef list on_signal = [None] * PROCESSES
sem_init(&arrived, 0, 0)

cdef uint64_t MOST = 300_000
cdef char *REASONS[5]
REASONS[1] = "a child sleeps although it could begin a task in its ring"
REASONS[2] = "the main process sleeps although an idle child has sent a result"
REASONS[3] = "all wait for each other"
REASONS[4] = "one goes on and on, and nothing comes of it"

cdef Py_ssize_t ROWS_AT = layout.SLOTS_AT
cdef Py_ssize_t ROW_WIDTH = layout.ROW_WIDTH
cdef Py_ssize_t STATE_AT = layout.RECORD_STATE_AT
cdef Py_ssize_t KIND_AT = layout.RECORD_KIND_AT
cdef Py_ssize_t COMMAND_AT = layout.COMMAND_AT
cdef Py_ssize_t REPORT_AT = layout.REPORT_AT
cdef Py_ssize_t TASK_TAIL_AT = layout.TASK_TAIL_AT
cdef Py_ssize_t TASK_HEAD_AT = layout.TASK_HEAD_AT
cdef Py_ssize_t RESULT_TAIL_AT = layout.RESULT_TAIL_AT
cdef Py_ssize_t RESULT_HEAD_AT = layout.RESULT_HEAD_AT
cdef uint32_t WAITING = layout.RECORD_WAITING
cdef uint32_t ASYNC = layout.TASK_ASYNC
cdef uint32_t THREADED = layout.TASK_THREADED
cdef uint64_t HEADER = layout.RECORD_HEADER


cdef uint64_t draw(uint64_t below) noexcept nogil:
    global state
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return (state * 2685821657736338717ULL >> 32) % below


# Who goes next ------------------------------------------------------------------------------------------------------

cdef bint is_ready(int one) noexcept nogil:
    cdef Actor *actor = &actors[one]
    cdef Process *process = &processes[actor.process]
    if actor.done or process.dead or process.interpreter not in (-1, one):
        return False
    if not actor.waits or (0 <= actor.until <= now) or (process.signaled and process.chief == one):
        return True
    if actor.word != NULL and actor.word[0]:
        return True
    return actor.fd_count > 0 and sim_readable(actor.fds, actor.fd_count)


cdef int choose() noexcept nogil:
    """Return an actor that can go on, and let time pass until there is one."""
    global now, lost
    cdef int ready[ACTORS]
    cdef int count, one, best
    cdef int64_t first
    while True:
        count, best, first = 0, -1, -1
        for one in range(actor_count):
            if is_ready(one):
                ready[count] = one
                count += 1
                if best < 0 or actors[one].priority > actors[best].priority:
                    best = one
            elif not actors[one].done and not processes[actors[one].process].dead and actors[one].until >= 0:
                first = actors[one].until if first < 0 else min(first, actors[one].until)
        if count:
            return best if by_priority else ready[draw(count)]
        if not lost:
            lost = look_for_lost()
        if first < 0 and not lost:
            lost = 3
        if lost:
            return 0
        now = max(now, first)


cdef int look_for_lost() noexcept nogil:
    """Return which wake-up was lost, now that all wait; 0 for none."""
    cdef Process *process
    cdef char *record
    cdef uint64_t tail, head, at
    cdef uint32_t kind
    cdef int row, coroutines, threads, one, i
    for one in range(process_count):
        process = &processes[one]
        if process.dead or process.base == NULL or (<uint32_t *>(process.base + COMMAND_AT))[0]:
            continue
        coroutines = threads = 0
        for row in range(process.rows):
            if (<uint64_t *>(process.base + ROWS_AT + row * ROW_WIDTH))[0]:
                coroutines += row < process.rows - process.threads
        for i in range(actor_count):  # a thread that sends a result has no row any more
            threads += actors[i].process == one and i != process.chief and not actors[i].idles
        tail = (<uint64_t *>(process.base + TASK_TAIL_AT))[0]
        head = (<uint64_t *>(process.base + TASK_HEAD_AT))[0]
        if tail == head:
            if (
                not coroutines + threads
                and (<uint64_t *>(process.base + RESULT_TAIL_AT))[0] != (<uint64_t *>(process.base + RESULT_HEAD_AT))[0]
            ):
                return 2
            continue
        if (<uint32_t *>(process.base + REPORT_AT))[0] or not actors[process.chief].wants_fds:
            continue
        at = head & (process.ring_bytes - 1)
        record = process.base + process.ring_at + at
        if process.ring_bytes - at < HEADER or (<uint32_t *>(record + STATE_AT))[0] == layout_pad:
            record = process.base + process.ring_at
        if (<uint32_t *>(record + STATE_AT))[0] != WAITING:
            continue
        kind = (<uint32_t *>(record + KIND_AT))[0]
        if not coroutines + threads:
            return 1
        if kind & THREADED and threads < process.threads and actors[process.chief].fd_count > 1:
            return 1
        if kind & ASYNC and not kind & THREADED and coroutines < process.rows - process.threads:
            if actors[process.chief].fd_count > 1:
                return 1
    return 0

cdef uint32_t layout_pad = layout.RECORD_PAD


cdef void switch(bint keeps) noexcept nogil:
    """Let the seed decide whether another goes on; return once it is this one's turn."""
    global points, now, trace, lost
    cdef int own = sim_get()
    cdef int next
    cdef int i
    points += 1
    now += cost
    if points > MOST:
        lost = 4
    if not keeps:
        processes[actors[own].process].interpreter = -1
    for i in range(kill_count):
        if kills[i] == points:
            kill_one(actors[own].process)
    for i in range(change_count):
        if changes[i] == points:
            actors[own].priority = -i
    if lost:
        next = 0
    elif not by_priority and not actors[own].waits and not processes[actors[own].process].dead and draw(256) >= chance:
        next = own
    else:
        next = choose()
    trace = (trace ^ (<uint64_t>next << 40) ^ points) * 1099511628211ULL
    if next != own:
        sim_pass(&actors[next].turn, &actors[own].turn)
    actors[own].waits = actors[own].wants_fds = False
    actors[own].word, actors[own].fd_count, actors[own].until = NULL, 0, -1
    processes[actors[own].process].interpreter = own


cdef void kill_one(int process) noexcept nogil:
    """Kill the child that runs, or else one that has tasks."""
    cdef int i
    if process < 2:
        for i in range(2, process_count):
            if not processes[i].dead and processes[i].base != NULL:
                process = i
    if process >= 2:
        kill_now(process)


cdef void kill_now(int process) noexcept nogil:
    global untold
    if not processes[process].dead:
        processes[process].dead = True
        untold += 1


cdef public void sim_point() noexcept:
    if running and sim_get() >= 0:
        with nogil:
            switch(True)


cdef public int sim_clock(int which, timespec *at) noexcept nogil:
    cdef int64_t value = now
    if which == 0:  # CLOCK_REALTIME
        value += UNIX_NS
    at.tv_sec, at.tv_nsec = value // 1_000_000_000, value % 1_000_000_000
    return 0


# For Python ---------------------------------------------------------------------------------------------------------

class Stuck(BaseException):
    """Raised in the main process when nothing can go on that should."""


cdef int after() except -1:
    """Take a signal, and end the run if a wake-up was lost."""
    cdef int own = sim_get()
    cdef Process *process = &processes[actors[own].process]
    if process.signaled and process.chief == own:
        process.signaled = False
        if on_signal[actors[own].process] is not None:
            on_signal[actors[own].process](0, None)
    if lost and own == 0:
        raise Stuck(REASONS[lost].decode())
    return 0


cdef int wait(int *word, int64_t until) except -1:
    cdef Actor *actor = &actors[sim_get()]
    actor.waits, actor.word, actor.until = True, word, until
    with nogil:
        switch(False)
    return after()


cpdef int point() except -1:
    """Let others go first."""
    if running and sim_get() >= 0:
        with nogil:
            switch(False)
        return after()
    return 0


def wait_readable(fds, until_s):
    """Wait until a descriptor can be read, or until a time."""
    cdef Actor *actor = &actors[sim_get()]
    assert len(fds) <= FDS
    for i, fd in enumerate(fds):
        actor.fds[i] = fd
    actor.fd_count, actor.wants_fds = len(fds), True
    wait(NULL, -1 if until_s is None else <int64_t>(until_s * 1e9))


def monotonic():
    return now / 1e9


def unix_time():
    return now / 1e9 + 1_700_000_000


def sleep(double seconds):
    cdef int64_t until = now + <int64_t>(max(seconds, 0.0) * 1e9)
    wait(NULL, until)
    while now < until:
        wait(NULL, until)


cdef class Lock:
    """threading.Lock, and threading.RLock if it ``is_shared`` by its owner with itself."""

    cdef int is_free
    cdef int owner, count
    cdef bint is_shared

    def __init__(self, is_shared=False):
        self.is_free, self.owner, self.is_shared = 1, -1, is_shared

    cpdef acquire(self, bint blocking=True, double timeout=-1):
        cdef int64_t until = -1 if timeout < 0 else now + <int64_t>(timeout * 1e9)
        point()
        if self.is_shared and self.owner == sim_get():
            self.count += 1
            return True
        while not self.is_free:
            if not blocking or 0 <= until <= now:
                return False
            wait(&self.is_free, until)
        self.is_free, self.owner, self.count = 0, sim_get(), 1
        if running and sim_get() >= 0:
            with nogil:
                switch(False)  # it has the lock, and waits for the interpreter
        return True

    cpdef release(self):
        if self.is_free:
            raise RuntimeError("release unlocked lock")
        self.count -= 1
        if not self.count:
            self.is_free, self.owner = 1, -1
        point()

    def locked(self):
        return not self.is_free

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()


cdef class Queue:
    """queue.SimpleQueue."""

    cdef list items
    cdef int count

    def __init__(self):
        self.items = []

    def put(self, item):
        point()
        self.items.append(item)
        self.count += 1
        point()

    def get(self):
        point()
        while not self.count:
            actors[sim_get()].idles = True
            wait(&self.count, -1)
            actors[sim_get()].idles = False
        self.count -= 1
        return self.items.pop(0)


# Setting up ---------------------------------------------------------------------------------------------------------

def start(uint64_t seed, int64_t cost_ns, int switches, kill_points, change_points):
    """Begin a run; this thread is the main process. ``switches`` of 256 points lead to another, 0 means by priority."""
    global state, cost, chance, by_priority, kill_count, change_count, running
    state = seed * 2 + 1
    for _ in range(8):
        draw(2)
    cost, chance, by_priority = cost_ns, switches, not switches
    kill_count, change_count = len(kill_points), len(change_points)
    for i, number in enumerate(kill_points):
        kills[i] = number
    for i, number in enumerate(change_points):
        changes[i] = number
    add_process()
    add_actor(0)
    sim_set(0)
    processes[0].interpreter = 0
    running = True


def add_process():
    """Add a process; return its number. 0 is the main process, 1 the preloader, others are children."""
    global process_count
    processes[process_count].interpreter = -1
    processes[process_count].chief = -1
    process_count += 1
    return process_count - 1


def add_actor(int process):
    """Add a thread to a process; return its number."""
    global actor_count
    cdef Actor *actor = &actors[actor_count]
    sem_init(&actor.turn, 0, 0)
    actor.process, actor.until, actor.priority = process, -1, <int>(draw(1 << 20) + 1000)
    if processes[process].chief < 0:
        processes[process].chief = actor_count
    actor_count += 1
    return actor_count - 1


def enter(int actor):
    """Be an actor from now on, once it is its turn."""
    sim_set(actor)
    with nogil:
        sem_post(&arrived)
        sem_wait(&actors[actor].turn)
    processes[actors[actor].process].interpreter = actor


def await_arrival():
    with nogil:
        sem_wait(&arrived)


def leave():
    """End this actor; nothing of its thread may run after this but its end."""
    cdef int own = sim_get()
    cdef int next
    actors[own].done = True
    if processes[actors[own].process].interpreter == own:
        processes[actors[own].process].interpreter = -1
    sim_set(-1)
    with nogil:
        next = choose()
        sem_post(&actors[next].turn)


def wait_done(int actor):
    """Wait until an actor has ended."""
    while not actors[actor].done:
        wait(&actors[actor].done, -1)


def wait_death():
    """Wait until a process has died."""
    global untold
    while not untold:
        wait(&untold, -1)
    untold -= 1


def die(int process):
    """End a process: its threads never run again."""
    with nogil:
        kill_now(process)


def is_dead(int process):
    return processes[process].dead


def signal(int process):
    processes[process].signaled = True


def set_signal(int process, handler):
    on_signal[process] = handler


def watch(int process, memory, shape):
    """Look for lost wake-ups of a child from now on."""
    cdef Py_buffer view
    PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
    processes[process].base = <char *>view.buf
    PyBuffer_Release(&view)  # the child's segment keeps it
    processes[process].ring_at, processes[process].ring_bytes = shape.task_ring_at, shape.ring_bytes
    processes[process].rows, processes[process].threads = shape.rows, shape.threads


def own_process():
    return actors[sim_get()].process if sim_get() >= 0 else 0


def own_actor():
    return sim_get()


def figures():
    """Return how many points there were, the trace's hash, and the time."""
    return points, trace, now


def waiting():
    """Return what each actor of a living process waits for."""
    found = []
    for one in range(actor_count):
        if not actors[one].done and not processes[actors[one].process].dead:
            fds = [actors[one].fds[i] for i in range(actors[one].fd_count)]
            what = f"descriptors {fds}" if fds else "a lock or a queue" if actors[one].word != NULL else "its turn"
            until = f" until {(actors[one].until - 10**12) / 1e6} ms" if actors[one].until >= 0 else ""
            found.append(f"actor {one} of process {actors[one].process} waits for {what}{until}")
    return found
