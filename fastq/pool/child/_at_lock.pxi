# Tells whether a thread is taking or releasing a lock. Included by work.pyx.
#
# An exception that is set for a thread is raised after the thread's current instruction. Right after a call of
# ``acquire`` the ``try`` has not begun, so nothing would release the lock. A ``with`` on a lock written in C is safe:
# nothing is raised between taking the lock and entering the block.

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef frozenset TAKERS = frozenset({
    "acquire", "release", "__enter__", "__exit__", "enter_context", "_acquireLock", "_releaseLock"
})
# How many of the innermost frames are checked: a context manager may be a generator, which ``__enter__`` calls.
cdef int INNERMOST = 3
# An exception inside these modules could break what threads share, such as a queue that wakes nobody for its new item.
cdef dict THREADING = vars(threading), QUEUE = vars(queue)
# These functions only wait. If an exception is raised while they wait, they restore their state.
cdef object JOIN = threading.Thread.join.__code__
cdef tuple WAITS = tuple([
    function.__code__
    for function in (threading.Condition.wait, getattr(threading.Thread, "_wait_for_tstate_lock", None))
    if function is not None
])
cdef frozenset CALLS = frozenset([code for name, code in _opmap.items() if "CALL" in name])
cdef frozenset LOADS = frozenset([_opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in _opmap])
cdef int EXTENDED = _opmap["EXTENDED_ARG"]
# From 3.14 on, ``with`` loads __enter__ by this instruction and calls it by a later one. After that call, an exception
# may be raised before the block begins.
cdef int ENTERS = _opmap.get("LOAD_SPECIAL", -1)
# Later versions may compile ``with`` in another way.
cdef bint IS_UNKNOWN = sys.version_info >= (3, 15)
# From 3.12 on, the lowest bit of LOAD_ATTR's argument is a flag; the index of the name is in the other bits.
cdef int FLAGS = 1 if sys.version_info >= (3, 12) else 0


cdef bint is_at_lock(unsigned long thread) except -1:
    """Return whether an exception raised in a thread now would leave a lock taken; no bytecode runs during the check."""
    cdef int was_enabled = PyGC_Disable()  # a finalizer would run bytecode
    try:
        return takes_lock(sys._current_frames().get(thread))
    finally:
        if was_enabled:
            PyGC_Enable()


cpdef bint takes_lock(frame) except -1:
    """Return whether an exception raised in a frame now would leave a lock taken."""
    cdef int left = INNERMOST
    cdef bint acquires
    if frame is None or frame.f_code is JOIN:
        return False
    acquires = calls_acquire(frame.f_code, frame.f_lasti)
    if frame.f_code in WAITS:
        return not acquires
    if acquires or enters(frame.f_code, frame.f_lasti) or frame.f_globals is THREADING or frame.f_globals is QUEUE:
        return True
    while frame is not None and left > 0:
        if frame.f_code.co_name in TAKERS:
            return True
        frame = frame.f_back
        left -= 1
    return False


cdef bint enters(code, int at) except -1:
    """Return whether the instruction at an offset calls ``__enter__`` for a ``with``, or may do so."""
    cdef bytes ops
    if at < 0 or not (IS_UNKNOWN or ENTERS >= 0):
        return False
    ops = code.co_code
    if ops[at] not in CALLS:
        return False
    if IS_UNKNOWN:
        return bool(code.co_exceptiontable)
    at -= 2
    while at > 0 and not ops[at]:  # the inline cache of the instruction before this one
        at -= 2
    return at >= 0 and ops[at] == ENTERS


cdef bint calls_acquire(code, int at) except -1:
    """Return whether the instruction at an offset calls a method ``acquire``."""
    cdef tuple names = code.co_names
    cdef Py_ssize_t name
    cdef bytes ops
    cdef list begins
    cdef int place
    if at < 0 or "acquire" not in names:
        return False
    ops = code.co_code
    if ops[at] not in CALLS:
        return False
    # The instructions that load a method and that call it have the same start in the source, whatever the arguments
    # are.
    begins = [(line, column) for line, _, column, _ in code.co_positions()]
    # Inline caches are zeros in ``co_code``, and 0 is not in LOADS.
    for place in range(at - 2, -1, -2):
        if ops[place] in LOADS and begins[place // 2] == begins[at // 2]:
            name = ops[place + 1]
            if place >= 2 and ops[place - 2] == EXTENDED:
                name |= ops[place - 1] << 8
            name >>= FLAGS
            if name < len(names) and names[name] == "acquire":
                return True
    return False
