"""The lines of the task log: what became of each attempt, as JSON in ASCII.

Compiled, since every task passes here if the log is on: a line takes a tenth of a microsecond.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from fastq._codec cimport RETRIED, TYPE
from fastq.server.inflight.tally cimport Tally
from fastq.server.inflight.tasks cimport InFlightTask
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

import json

from fastq.server.inflight import tally as _tally

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(str text)
    Py_ssize_t PyUnicode_GET_LENGTH(str text)
    const unsigned char *PyUnicode_1BYTE_DATA(str text)

cdef tuple ENDS = tuple([name.encode() for name in _tally.OUTCOME_NAMES])
cdef int64_t REQUEUED = _tally.OUTCOME_NAMES.index("requeued")
cdef enum:
    MOST_DIGITS = 20


cdef class TaskLines:
    """The task log's lines that wait to be written."""

    cdef bytearray buffer
    cdef bytearray other
    cdef char *text
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef bytes tail
    cdef str type
    cdef str queue
    cdef bytes names

    def __init__(self, server: str) -> None:
        self.tail = b',"server":%b}\n' % json.dumps(server).encode()
        self.buffer, self.other = bytearray(), bytearray()

    def __len__(self) -> int:
        return self.size

    def take(self) -> memoryview:
        """Return the lines and remove them; they are valid until the next call.

        Two buffers are used alternately, because new memory would cost more than the lines.
        """
        lines = memoryview(self.buffer)[: self.size]
        self.buffer, self.other = self.other, self.buffer
        self.text, self.room, self.size = PyByteArray_AS_STRING(self.buffer), len(self.buffer), 0
        return lines

    def add(self, tasks: list[InFlightTask], end: str | None, time: str, most: int) -> int:
        """Add the lines of tasks that have ended; return how many were dropped, because over ``most`` bytes waited.

        ``end`` names the end of all these tasks; if it is None, each task's disposition does. A task that goes back to
        its queue without having run has no line.
        """
        cdef InFlightTask task
        cdef bytes said = None if end is None else end.encode()
        cdef bytes head = b'{"time":"%b","id":' % time.encode()
        cdef int outcome
        cdef Py_ssize_t limit = most, dropped = 0
        for task in tasks:
            outcome = Tally.outcome_of(task.disposition, task.failure)
            if outcome < 0 or (outcome == REQUEUED and task.ran_ns == 0):
                continue
            if self.size > limit:
                dropped += 1
                continue
            self.put(head)
            self.put_text(task.id)
            self.put_names(<str><object>task.view.slots[TYPE], task.queue)
            self.put(<bytes>ENDS[outcome] if said is None else said)
            self.put(b'","attempt":')
            self.put_number(<int64_t><object>task.view.slots[RETRIED] + 1)
            self.put(b',"wait_s":')
            if task.wait_s < 0:
                self.put(b"null")
            else:
                self.put_seconds(<int64_t>(task.wait_s * 1e6))
            self.put(b',"run_s":')
            self.put_seconds(task.ran_ns // 1000)
            if task.error is None:
                self.put(b',"error":null')
            else:
                self.put(b',"error":')
                self.put_text(task.error)
            self.put(self.tail)
        return dropped

    cdef int put_names(self, str type, str queue) except -1:
        """Write type and queue; mostly they are the same as in the line before."""
        cdef Py_ssize_t began
        if type == self.type and queue == self.queue:
            return self.put(self.names)
        began = self.size
        self.put(b',"type":')
        self.put_text(type)
        self.put(b',"queue":')
        self.put_text(queue)
        self.put(b',"end":"')
        self.type, self.queue = type, queue
        self.names = self.text[began : self.size]
        return 0

    cdef int put_seconds(self, int64_t micros) except -1:
        cdef uint32_t rest = micros % 1_000_000
        cdef int at
        self.put_number(micros // 1_000_000)
        self.need(7)
        self.text[self.size] = 46
        for at in range(6, 0, -1):
            self.text[self.size + at] = 48 + rest % 10
            rest //= 10
        self.size += 7
        return 0

    cdef int put_number(self, int64_t number) except -1:
        """Write a number that is not negative; snprintf would take more time than the rest of a line."""
        cdef char digits[MOST_DIGITS]
        cdef int at = MOST_DIGITS
        while number > 9:
            at -= 1
            digits[at] = 48 + number % 10
            number //= 10
        at -= 1
        digits[at] = 48 + number
        return self.copy(digits + at, MOST_DIGITS - at)

    cdef int put_text(self, str text) except -1:
        """Write a JSON string. Text from producers may need escapes; most of it does not."""
        cdef Py_ssize_t at, size = 0
        cdef const unsigned char *ascii = NULL
        cdef unsigned char is_odd = not PyUnicode_IS_ASCII(text)
        if not is_odd:
            ascii, size = PyUnicode_1BYTE_DATA(text), PyUnicode_GET_LENGTH(text)
            for at in range(size):  # no early exit, so that the compiler vectorizes the loop
                is_odd |= (ascii[at] < 32) | (ascii[at] == 34) | (ascii[at] == 92) | (ascii[at] == 127)
        if is_odd:
            return self.put(json.dumps(text).replace("\x7f", "\\u007f").encode())
        self.need(size + 2)
        self.text[self.size] = 34
        memcpy(self.text + self.size + 1, ascii, size)
        self.text[self.size + size + 1] = 34
        self.size += size + 2
        return 0

    cdef int put(self, bytes text) except -1:
        return self.copy(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    cdef inline int copy(self, const char *text, Py_ssize_t size) except -1:
        self.need(size)
        memcpy(self.text + self.size, text, size)
        self.size += size
        return 0

    cdef inline int need(self, Py_ssize_t more) except -1:
        if self.size + more > self.room:
            self.room = 2 * (self.size + more)
            PyByteArray_Resize(self.buffer, self.room)
            self.text = PyByteArray_AS_STRING(self.buffer)
        return 0
