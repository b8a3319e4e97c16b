# TaskMessage and TaskView: a task as stored on the wire, and the part of it that a server needs.
#
# Both are arrays of slots indexed by field number, so that small tables drive the codec.


cdef extern from *:
    """
    #include <structmember.h>
    """
    ctypedef struct PyMemberDef:
        const char *name
        int type
        Py_ssize_t offset
        int flags
        const char *doc
    int T_OBJECT_EX
    int READONLY
    object PyDescr_NewMember(PyTypeObject *owner, PyMemberDef *member)
    void PyType_Modified(PyTypeObject *owner)
    const char *PyUnicode_AsUTF8(object text) except NULL

# The fields by their numbers: how each is read, and whether a view shows it.
cdef tuple TABLE = (
    ("data", UNKNOWN, True),
    ("type", NAME, True),
    ("payload", BYTES, False),
    ("id", TEXT, True),
    ("queue", NAME, True),
    ("retry", INT32, True),
    ("retried", INT32, True),
    ("error_msg", TEXT, False),
    ("timeout", DURATION, True),
    ("deadline", INT64, True),
    ("unique_key", TEXT, True),
    ("last_failed_at", INT64, False),
    ("retention", DURATION, True),
    ("completed_at", INT64, False),
    ("group_key", TEXT, True),
    ("headers", ENTRY, False),
)
FIELDS = tuple([name for name, _, _ in TABLE])
VIEW_FIELDS = tuple([name for name, _, viewed in TABLE if viewed])
cdef tuple ARGUMENTS = (
    "type", "payload", "id", "queue", "retry", "retried", "error_msg", "last_failed_at", "timeout", "deadline",
    "unique_key", "group_key", "retention", "completed_at", "headers",
)


@cython.final
cdef class TaskMessage:
    """One task as it is stored on the wire.

    Times are Unix seconds and durations whole seconds; 0 means "none" throughout, as in asynq.proto.
    """

    def __init__(
        self, type="", payload=b"", id="", queue="", retry=0, retried=0, error_msg="", last_failed_at=0, timeout=0,
        deadline=0, unique_key="", group_key="", retention=0, completed_at=0, headers=None,
    ):
        put(&self.slots[TYPE], type)
        put(&self.slots[PAYLOAD], payload)
        put(&self.slots[ID], id)
        put(&self.slots[QUEUE], queue)
        put(&self.slots[RETRY], retry)
        put(&self.slots[RETRIED], retried)
        put(&self.slots[ERROR_MSG], error_msg)
        put(&self.slots[TIMEOUT], timeout)
        put(&self.slots[DEADLINE], deadline)
        put(&self.slots[UNIQUE_KEY], unique_key)
        put(&self.slots[LAST_FAILED_AT], last_failed_at)
        put(&self.slots[RETENTION], retention)
        put(&self.slots[COMPLETED_AT], completed_at)
        put(&self.slots[GROUP_KEY], group_key)
        put(&self.slots[HEADERS], {} if headers is None else headers)

    def __dealloc__(self):
        clear(self.slots)

    def replace(self, **changes):
        """Return a copy in which the named fields have other values."""
        return TaskMessage(**{name: getattr(self, name) for name in ARGUMENTS} | changes)

    def __eq__(self, other):
        if not isinstance(other, TaskMessage):
            return NotImplemented
        return all([getattr(self, name) == getattr(other, name) for name in ARGUMENTS])

    def __repr__(self):
        unset = TaskMessage()
        values = [(name, getattr(self, name)) for name in ARGUMENTS]
        shown = [f"{name}={value!r}" for name, value in values if value != getattr(unset, name)]
        return f"TaskMessage({', '.join(shown)})"

    def __reduce__(self):
        return TaskMessage, tuple([getattr(self, name) for name in ARGUMENTS])


@cython.final
cdef class TaskView:
    """The fields of a task that a server needs; ``data`` is the whole encoded message."""

    def __init__(self):
        raise TypeError("TaskView is made by view_task_message alone")

    def __dealloc__(self):
        clear(self.slots)

    @property
    def has_headers(self):
        """Return whether the task has headers."""
        return self.slots[ANY_HEADER] != NULL

    @property
    def has_fastq_headers(self):
        """Return whether the task has a header of fastq's own, whose name begins with ``fastq-``."""
        return self.slots[FASTQ_HEADER] != NULL

    def __repr__(self):
        return f"TaskView(type={self.type!r}, id={self.id!r}, queue={self.queue!r})"


cdef inline void clear(PyObject **slots) noexcept:
    cdef int number
    for number in range(SLOTS):
        Py_XDECREF(slots[number])


# The types keep pointers into these tables, which therefore are static.
cdef PyMemberDef MESSAGE_MEMBERS[SLOTS]
cdef PyMemberDef VIEW_MEMBERS[SLOTS]


cdef int expose(type owner, PyMemberDef *members, Py_ssize_t offset, tuple names, int flags) except -1:
    """Make slots readable as attributes, by the descriptor that classes with __slots__ use.

    CPython has a specialized instruction for this descriptor; reading a Cython property costs five times more.
    """
    cdef PyTypeObject *raw = <PyTypeObject *> owner
    cdef Py_ssize_t number
    for name in names:
        number = FIELDS.index(name)
        members[number].name = PyUnicode_AsUTF8(name)
        members[number].type = T_OBJECT_EX
        members[number].offset = offset + number * sizeof(PyObject *)
        members[number].flags = flags
        (<dict> raw.tp_dict)[name] = PyDescr_NewMember(raw, &members[number])
    PyType_Modified(raw)
    return 0


cdef int expose_both() except -1:
    cdef TaskMessage msg = TaskMessage.__new__(TaskMessage)
    cdef TaskView view = TaskView.__new__(TaskView)
    expose(TaskMessage, MESSAGE_MEMBERS, <char *> msg.slots - <char *> <PyObject *> msg, FIELDS[1:], 0)
    expose(TaskView, VIEW_MEMBERS, <char *> view.slots - <char *> <PyObject *> view, VIEW_FIELDS, READONLY)
    return 0


expose_both()
