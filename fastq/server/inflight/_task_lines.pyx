"""The lines of the task log: what became of each attempt, as JSON in ASCII.

Compiled, since every task passes here if the log is on: a line takes a quarter of a microsecond.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
from fastq._codec cimport RETRIED, TYPE
from fastq.server.inflight._tally cimport Tally
from fastq.server.inflight._tasks cimport InFlightTask
from libc.stdint cimport int64_t
from libc.string cimport memcpy

import json

from fastq.server.inflight import _tally

cdef tuple ENDS = tuple([name.encode() for name in _tally.OUTCOME_NAMES])
cdef int64_t REQUEUED = _tally.OUTCOME_NAMES.index("requeued")
cdef enum:
    MOST_DIGITS = 20


cdef class TaskLines:
    """The lines of attempts on one server."""

    cdef char *text
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef bytes tail

    def __init__(self, server: str) -> None:
        self.tail = b',"server":%b}\n' % json.dumps(server).encode()

    def __dealloc__(self) -> None:
        PyMem_Free(self.text)

    def lines_of(self, tasks: list[InFlightTask], end: str | None, time: str) -> str:
        """Return the lines of tasks that have ended.

        ``end`` stands for what became of them; None: their disposition. A task that goes back to its queue without
        having run has no line.
        """
        cdef InFlightTask task
        cdef bytes said = None if end is None else end.encode()
        cdef bytes head = b'{"time":"%b","id":' % time.encode()
        cdef int outcome
        self.size = 0
        for task in tasks:
            outcome = Tally.outcome_of(task.disposition, task.failure)
            if outcome < 0 or (outcome == REQUEUED and task.ran_ns == 0):
                continue
            self.put(head)
            self.put_text(task.id)
            self.put(b',"type":')
            self.put_text(<str><object>task.view.slots[TYPE])
            self.put(b',"queue":')
            self.put_text(task.queue)
            self.put(b',"end":"')
            self.put(<bytes>ENDS[outcome] if said is None else said)
            self.put(b'","attempt":')
            self.put_number(<int64_t><object>task.view.slots[RETRIED] + 1, 1)
            self.put(b',"wait_s":')
            if task.wait_s < 0:
                self.put(b"null")
            else:
                self.put_seconds(<int64_t>(task.wait_s * 1e6))
            self.put(b',"run_s":')
            self.put_seconds(task.ran_ns // 1000)
            self.put(b',"error":')
            if task.error is None:
                self.put(b"null")
            else:
                self.put_text(task.error)
            self.put(self.tail)
        return PyUnicode_DecodeASCII(self.text, self.size, NULL) if self.size else ""

    cdef int put_seconds(self, int64_t micros) except -1:
        self.put_number(micros // 1_000_000, 1)
        self.put(b".")
        return self.put_number(micros % 1_000_000, 6)

    cdef int put_number(self, int64_t number, int least) except -1:
        """Write at least so many digits; snprintf takes more time than all else of a line."""
        cdef char digits[MOST_DIGITS]
        cdef int at = MOST_DIGITS
        while number > 0 or MOST_DIGITS - at < least:
            at -= 1
            digits[at] = 48 + number % 10
            number //= 10
        self.need(MOST_DIGITS - at)
        memcpy(self.text + self.size, digits + at, MOST_DIGITS - at)
        self.size += MOST_DIGITS - at
        return 0

    cdef int put_text(self, str text) except -1:
        """Write a JSON string. What producers send may need escapes; most of it does not."""
        cdef Py_ssize_t at, size = -1
        cdef const char *utf8 = NULL
        if text.isascii():
            utf8 = PyUnicode_AsUTF8AndSize(text, &size)
            for at in range(size):
                if utf8[at] < 32 or utf8[at] == 34 or utf8[at] == 92 or utf8[at] == 127:
                    utf8 = NULL
                    break
        if utf8 == NULL:
            return self.put(json.dumps(text).replace("\x7f", "\\u007f").encode())
        self.need(size + 2)
        self.text[self.size] = 34
        memcpy(self.text + self.size + 1, utf8, size)
        self.text[self.size + size + 1] = 34
        self.size += size + 2
        return 0

    cdef int put(self, bytes text) except -1:
        self.need(PyBytes_GET_SIZE(text))
        memcpy(self.text + self.size, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        self.size += PyBytes_GET_SIZE(text)
        return 0

    cdef int need(self, Py_ssize_t more) except -1:
        cdef char *grown
        if self.size + more > self.room:
            grown = <char *>PyMem_Realloc(self.text, 2 * (self.size + more))
            if grown == NULL:
                raise MemoryError
            self.text, self.room = grown, 2 * (self.size + more)
        return 0
