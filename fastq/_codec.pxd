# The layout of the two message classes, for the codec, which fills and reads their slots directly.

from cpython.object cimport PyObject

cdef extern from *:
    # Raw pointers: the code below counts the slots' references by hand.
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


cdef enum:
    # A view has no payload and no headers. Their slots are flags instead: the first says whether there is any header,
    # the second whether one is fastq's own. NULL means no.
    ANY_HEADER = HEADERS
    FASTQ_HEADER = PAYLOAD


cdef enum:
    # The fields that are numbers; bit n stands for field n.
    SHORT_NUMBERS = 1 << RETRY | 1 << RETRIED
    NUMBERS = (
        SHORT_NUMBERS | 1 << TIMEOUT | 1 << DEADLINE | 1 << LAST_FAILED_AT | 1 << RETENTION | 1 << COMPLETED_AT
    )


cdef enum Kind:
    # How a field is read.
    UNKNOWN
    INT32
    INT64
    # DURATION values are cached, since many messages share them. INT64 values are times, which differ.
    DURATION
    UNREAD_NUMBER
    # The kinds from here on are length-delimited. A NAME is a text that many messages share.
    NAME
    TEXT
    BYTES
    ENTRY
    CHECKED_TEXT
    CHECKED_ENTRY
    FLAGGED_ENTRY
    UNREAD


cdef class TaskMessage:
    # A slot that is NULL is a deleted field. The class needs no cycle collection, since texts, bytes and numbers make
    # no cycle.
    cdef PyObject *slots[SLOTS]


cdef class TaskView:
    cdef PyObject *slots[SLOTS]


cdef inline void give(PyObject **slot, PyObject *value) noexcept:
    """Set a slot to a value, and take over the caller's reference to it."""
    cdef PyObject *old = slot[0]
    slot[0] = value
    Py_XDECREF(old)


cdef inline void put(PyObject **slot, object value) noexcept:
    """Set a slot to a value."""
    Py_INCREF(<PyObject *> value)
    give(slot, <PyObject *> value)
