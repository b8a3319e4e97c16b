# The layout of the two message classes, for the codec, which fills and reads their slots directly.

from cpython.object cimport PyObject

cdef extern from *:
    # Raw pointers: slots count their references by hand.
    void Py_INCREF(PyObject *)
    void Py_XDECREF(PyObject *)


cdef enum:
    # The field numbers of asynq.proto; a view keeps the whole message in slot 0.
    DATA = 0
    TYPE = 1
    PAYLOAD = 2
    ID = 3
    QUEUE = 4
    RETRY = 5
    RETRIED = 6
    ERROR_MSG = 7
    TIMEOUT = 8
    DEADLINE = 9
    UNIQUE_KEY = 10
    LAST_FAILED_AT = 11
    RETENTION = 12
    COMPLETED_AT = 13
    GROUP_KEY = 14
    HEADERS = 15
    SLOTS = 16


cdef class TaskMessage:
    # NULL is a field that was deleted. The cycle collector does not look here: texts, bytes and numbers make no cycle.
    cdef PyObject *slots[SLOTS]


cdef class TaskView:
    cdef PyObject *slots[SLOTS]


cdef inline void give(PyObject **slot, PyObject *value) noexcept:
    """Set a slot to a value with a reference that is the slot's to keep."""
    cdef PyObject *old = slot[0]
    slot[0] = value
    Py_XDECREF(old)


cdef inline void put(PyObject **slot, object value) noexcept:
    """Set a slot to a value."""
    Py_INCREF(<PyObject *> value)
    give(slot, <PyObject *> value)
