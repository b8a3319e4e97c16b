# Whether a thread is taking a lock or giving one back. Included by work.pyx.
#
# What is set for a thread is raised after its present instruction. Behind a call of ``acquire`` nothing would ever give
# the lock back, since the ``try`` comes only then. A lock in C that ``with`` takes is safe: nothing is raised between it
# and the block.

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef frozenset TAKERS = frozenset({
    "acquire", "release", "__enter__", "__exit__", "enter_context", "_acquireLock", "_releaseLock"
})
# Of the innermost frames so many are looked at: a context manager may be a generator.
cdef int INNERMOST = 3
# They break what threads share if one of their lines is left out: a queue that tells nobody of its element.
cdef dict THREADING = vars(threading), QUEUE = vars(queue)
# These only wait, and put all in order if an error comes while they do.
cdef object JOIN = threading.Thread.join.__code__
cdef tuple WAITS = tuple([
    function.__code__
    for function in (threading.Condition.wait, getattr(threading.Thread, "_wait_for_tstate_lock", None))
    if function is not None
])
cdef frozenset CALLS = frozenset([code for name, code in _opmap.items() if "CALL" in name])
cdef frozenset LOADS = frozenset([_opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in _opmap])
cdef int EXTENDED = _opmap["EXTENDED_ARG"]
# From 3.14 on ``with`` calls __enter__ by an instruction behind this one, and an error may come between it and the block.
cdef int ENTERS = _opmap.get("LOAD_SPECIAL", -1)
# Later versions may enter it in another way.
cdef bint IS_UNKNOWN = sys.version_info >= (3, 15)
# In LOAD_ATTR of 3.12 and later the last bit of the argument is no part of the name's index.
cdef int FLAGS = 1 if sys.version_info >= (3, 12) else 0


cdef bint is_at_lock(unsigned long thread) except -1:
    """Return whether an error in a thread would leave a lock taken; no bytecode runs meanwhile, in no thread."""
    cdef int was_enabled = PyGC_Disable()  # a finalizer would be bytecode
    try:
        return takes_lock(sys._current_frames().get(thread))
    finally:
        if was_enabled:
            PyGC_Enable()


cpdef bint takes_lock(frame) except -1:
    """Return whether an error in a frame would leave a lock taken."""
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
    while at > 0 and not ops[at]:  # the unused places behind an instruction
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
    # The call and its method begin at the same place of the source, whatever the arguments do between them.
    begins = [(line, column) for line, _, column, _ in code.co_positions()]
    # The unused places behind an instruction are zeros, which is no instruction of these.
    for place in range(at - 2, -1, -2):
        if ops[place] in LOADS and begins[place // 2] == begins[at // 2]:
            name = ops[place + 1]
            if place >= 2 and ops[place - 2] == EXTENDED:
                name |= ops[place - 1] << 8
            name >>= FLAGS
            if name < len(names) and names[name] == "acquire":
                return True
    return False
