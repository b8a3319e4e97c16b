"""Task ids: random UUIDs (version 4), in lower case as in asynq; in lanes, UUIDs that sort by time (version 7).

Every call reads its randomness from the system and keeps none for the next, so a fork never repeats an id.
"""

from os import urandom as _urandom

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    str PyUnicode_New(Py_ssize_t size, Py_UCS4 highest)
    void *PyUnicode_DATA(str text)

cdef enum:
    RANDOM_SIZE = 16
    TEXT_SIZE = 36

cdef char PAIRS[512]
for _number in range(256):
    PAIRS[2 * _number] = ord("0123456789abcdef"[_number >> 4])
    PAIRS[2 * _number + 1] = ord("0123456789abcdef"[_number & 15])
del _number


cdef str format_id(const uint8_t *random, uint8_t version=0x40):
    cdef str text = PyUnicode_New(TEXT_SIZE, 127)
    cdef char *at = <char *> PyUnicode_DATA(text)
    cdef int i
    cdef uint8_t byte
    for i in range(RANDOM_SIZE):
        byte = random[i]
        if i == 6:
            byte = byte & 0x0F | version
        elif i == 8:
            byte = byte & 0x3F | 0x80
        if i == 4 or i == 6 or i == 8 or i == 10:
            at[0] = b"-"
            at += 1
        memcpy(at, &PAIRS[2 * byte], 2)
        at += 2
    return text


def new_task_id():
    """Return a new id."""
    cdef bytes random = _urandom(RANDOM_SIZE)
    return format_id(<const uint8_t *> PyBytes_AS_STRING(random))


# The time of the newest id of next_task_id: Unix milliseconds, then 12 bits for the fraction of a millisecond.
cdef uint64_t newest = 0


def next_task_id(uint64_t now_ns):
    """Return a new id that sorts by time, also among the ids of other processes.

    The id sorts after all ids that this function has returned in this process.
    """
    global newest
    cdef uint8_t parts[RANDOM_SIZE]
    cdef bytes random = _urandom(RANDOM_SIZE)
    memcpy(parts, PyBytes_AS_STRING(random), RANDOM_SIZE)
    cdef uint64_t time = now_ns // 1_000_000 << 12 | now_ns % 1_000_000 * 4096 // 1_000_000
    newest = time if time > newest else newest + 1
    cdef int i
    for i in range(6):
        parts[i] = newest >> (52 - 8 * i) & 0xFF
    parts[6] = newest >> 8 & 0x0F
    parts[7] = newest & 0xFF
    return format_id(parts, 0x70)


def new_task_ids(n):
    """Return ``n`` new ids."""
    if n < 0:
        raise ValueError(f"n must not be negative: {n}")
    # The size is a product of Python ints: too large a one is an error, while a C product would wrap.
    return format_ids(_urandom(n * RANDOM_SIZE))


def format_ids(bytes random not None):
    """Return an id for each 16 random bytes."""
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(random)
    cdef Py_ssize_t i
    cdef Py_ssize_t count = len(random) // RANDOM_SIZE
    return [format_id(at + i * RANDOM_SIZE) for i in range(count)]
