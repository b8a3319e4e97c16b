"""The wire codec of TaskMessage: the bytes that asynq's Go program writes, and what it refuses."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastq._wire cimport (
    BAD_FIELD_NUMBER, BAD_UTF8, BAD_WIRE_TYPE, LENGTH, MAX_FIELD_NUMBER, NO_ERROR, TOO_DEEP, TRUNCATED,
    UNMATCHED_GROUP, VARINT, VARINT_TOO_LONG, Error, Reader, read_span, read_tag, read_varint, skip_value,
    varint_size, write_varint,
)

from fastq.errors import InvalidMessageError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *size) except NULL
    int64_t PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1


@cython.final
cdef class TaskMessage:
    """Hold one task as it is stored on the wire.

    Times are Unix seconds and durations whole seconds; 0 means "none" throughout, as in asynq.proto.
    """

    cdef public object type, payload, id, queue, retry, retried, error_msg, last_failed_at, timeout, deadline
    cdef public object unique_key, group_key, retention, completed_at, headers

    def __init__(
        self, type="", payload=b"", id="", queue="", retry=0, retried=0, error_msg="", last_failed_at=0, timeout=0,
        deadline=0, unique_key="", group_key="", retention=0, completed_at=0, headers=None,
    ):
        self.type = type
        self.payload = payload
        self.id = id
        self.queue = queue
        self.retry = retry
        self.retried = retried
        self.error_msg = error_msg
        self.last_failed_at = last_failed_at
        self.timeout = timeout
        self.deadline = deadline
        self.unique_key = unique_key
        self.group_key = group_key
        self.retention = retention
        self.completed_at = completed_at
        self.headers = {} if headers is None else headers

    def replace(self, **changes):
        """Return a copy in which the named fields have other values."""
        values = {name: getattr(self, name) for name in FIELDS}
        values.update(changes)
        return TaskMessage(**values)

    def __eq__(self, other):
        if not isinstance(other, TaskMessage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    def __repr__(self):
        return f"TaskMessage({', '.join(f'{name}={getattr(self, name)!r}' for name in FIELDS)})"

    def __reduce__(self):
        return TaskMessage, tuple([getattr(self, name) for name in FIELDS])


cdef tuple FIELDS
FIELDS = (
    "type", "payload", "id", "queue", "retry", "retried", "error_msg", "last_failed_at", "timeout", "deadline",
    "unique_key", "group_key", "retention", "completed_at", "headers",
)


cdef object decode_error(Error error, Py_ssize_t offset):
    if error == TRUNCATED:
        reason = "truncated"
    elif error == VARINT_TOO_LONG:
        reason = "varint longer than 64 bits"
    elif error == BAD_FIELD_NUMBER:
        reason = "field number out of range"
    elif error == BAD_WIRE_TYPE:
        reason = "unknown wire type"
    elif error == UNMATCHED_GROUP:
        reason = "end of a group that was not opened"
    elif error == TOO_DEEP:
        reason = "groups nested too deep"
    else:
        reason = "string field contains invalid UTF-8"
    return InvalidMessageError(f"cannot decode TaskMessage: {reason} near byte {offset}")


cdef inline str text_of(Reader *r):
    return PyUnicode_DecodeUTF8(<const char *> r.at, r.end - r.at, NULL)


cdef Error decode_header(Reader entry, dict headers) except *:
    cdef uint32_t number = 0
    cdef int wire_type = 0
    cdef Reader span
    cdef str key = ""
    cdef str value = ""
    cdef Error error
    while entry.at < entry.end:
        error = read_tag(&entry, MAX_FIELD_NUMBER, &number, &wire_type)
        if error:
            return error
        if wire_type == LENGTH and number <= 2:
            error = read_span(&entry, &span)
            if error:
                return error
            if number == 1:
                key = text_of(&span)
            else:
                value = text_of(&span)
        else:
            error = skip_value(&entry, number, wire_type)
            if error:
                return error
    headers[key] = value
    return NO_ERROR


cdef Error decode_text(TaskMessage msg, uint32_t number, Reader *span) except *:
    if number == 1:
        msg.type = text_of(span)
    elif number == 2:
        msg.payload = PyBytes_FromStringAndSize(<const char *> span.at, span.end - span.at)
    elif number == 3:
        msg.id = text_of(span)
    elif number == 4:
        msg.queue = text_of(span)
    elif number == 7:
        msg.error_msg = text_of(span)
    elif number == 10:
        msg.unique_key = text_of(span)
    elif number == 14:
        msg.group_key = text_of(span)
    else:
        return decode_header(span[0], msg.headers)
    return NO_ERROR


cdef void decode_number(TaskMessage msg, uint32_t number, uint64_t value) except *:
    if number == 5:
        msg.retry = <int32_t> value
    elif number == 6:
        msg.retried = <int32_t> value
    elif number == 8:
        msg.timeout = <int64_t> value
    elif number == 9:
        msg.deadline = <int64_t> value
    elif number == 11:
        msg.last_failed_at = <int64_t> value
    elif number == 12:
        msg.retention = <int64_t> value
    else:
        msg.completed_at = <int64_t> value


cdef enum:
    # Bit n stands for field n.
    TEXT_FIELDS = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 10 | 1 << 14 | 1 << 15
    NUMBER_FIELDS = 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 13


cdef Error decode_into(TaskMessage msg, Reader *r) except *:
    cdef uint32_t number = 0
    cdef int wire_type = 0
    cdef uint64_t value = 0
    cdef Reader span
    cdef Error error
    while r.at < r.end:
        error = read_tag(r, MAX_FIELD_NUMBER, &number, &wire_type)
        if error:
            return error
        if wire_type == LENGTH and number < 16 and TEXT_FIELDS >> number & 1:
            error = read_span(r, &span)
            if not error:
                error = decode_text(msg, number, &span)
        elif wire_type == VARINT and number < 16 and NUMBER_FIELDS >> number & 1:
            error = read_varint(r, &value)
            if not error:
                decode_number(msg, number, value)
        else:
            error = skip_value(r, number, wire_type)
        if error:
            return error
    return NO_ERROR


def decode_task_message(data):
    """Return the message that ``data`` holds; raise InvalidMessageError where asynq would refuse it."""
    cdef Py_buffer view
    cdef Reader r
    cdef Error error
    cdef TaskMessage msg = TaskMessage()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        r.at = <const uint8_t *> view.buf
        r.end = r.at + view.len
        error = decode_into(msg, &r)
        if error:
            raise decode_error(error, r.at - <const uint8_t *> view.buf)
    except UnicodeDecodeError as reason:
        raise decode_error(BAD_UTF8, r.at - <const uint8_t *> view.buf) from reason
    finally:
        PyBuffer_Release(&view)
    return msg


cdef struct Text:
    const char *at
    Py_ssize_t size


cdef Text text_to_write(object value, str name) except *:
    cdef Text text
    if not isinstance(value, str):
        raise TypeError(f"{name} must be str, not {type(value).__name__}")
    try:
        text.at = PyUnicode_AsUTF8AndSize(value, &text.size)
    except UnicodeEncodeError as reason:
        raise InvalidMessageError(f"cannot encode TaskMessage: {name} is not valid UTF-8: {value!r}") from reason
    return text


cdef int64_t number_to_write(object value, str name, bint is_int32) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    # Nothing but int: __index__ could change the message while pointers into its strings are held.
    if not isinstance(value, int):
        raise TypeError(f"{name} must be int, not {type(value).__name__}")
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or is_int32 and not INT32_MIN <= number <= INT32_MAX:
        bits = 32 if is_int32 else 64
        raise InvalidMessageError(f"cannot encode TaskMessage: {name} does not fit in {bits} bits: {value!r}")
    return number


cdef inline Py_ssize_t field_size(Text *text) noexcept:
    return 1 + varint_size(text.size) + text.size if text.size else 0


cdef inline Py_ssize_t number_size(int64_t value) noexcept:
    return 1 + varint_size(<uint64_t> value) if value else 0


cdef inline uint8_t *write_span(uint8_t *at, int number, Text *text) noexcept:
    """Write a length-delimited field, empty or not."""
    at[0] = <uint8_t> (number << 3 | LENGTH)
    at = write_varint(at + 1, text.size)
    memcpy(at, text.at, text.size)
    return at + text.size


cdef inline uint8_t *write_text(uint8_t *at, int number, Text *text) noexcept:
    return write_span(at, number, text) if text.size else at


cdef inline uint8_t *write_number(uint8_t *at, int number, int64_t value) noexcept:
    if not value:
        return at
    at[0] = <uint8_t> (number << 3 | VARINT)
    return write_varint(at + 1, <uint64_t> value)


cdef bytes encode_headers(dict headers):
    """Return the map's entries; a key and a value are written even when empty."""
    cdef Text key, value
    cdef Py_ssize_t size
    cdef bytes entry
    cdef uint8_t *at
    cdef list entries = []
    for name, text in headers.items():
        key = text_to_write(name, "a key of headers")
        value = text_to_write(text, "a value of headers")
        size = 2 + varint_size(key.size) + key.size + varint_size(value.size) + value.size
        entry = PyBytes_FromStringAndSize(NULL, 1 + varint_size(size) + size)
        at = <uint8_t *> PyBytes_AS_STRING(entry)
        at[0] = 15 << 3 | LENGTH
        write_span(write_span(write_varint(at + 1, size), 1, &key), 2, &value)
        entries.append(entry)
    return b"".join(entries)


def encode_task_message(TaskMessage msg not None):
    """Return the message's bytes, as asynq writes them; headers keep the order of their mapping."""
    cdef Text payload, headers, kind, id, queue, error_msg, unique_key, group_key
    cdef int64_t retry, retried, timeout, deadline, last_failed_at, retention, completed_at
    cdef Py_ssize_t size
    cdef bytes entries = encode_headers(dict(msg.headers)) if msg.headers else b""
    cdef bytes body = msg.payload if type(msg.payload) is bytes else bytes(memoryview(msg.payload))
    cdef bytes data
    cdef uint8_t *at
    payload.at, payload.size = PyBytes_AS_STRING(body), len(body)
    kind = text_to_write(msg.type, "type")
    id = text_to_write(msg.id, "id")
    queue = text_to_write(msg.queue, "queue")
    error_msg = text_to_write(msg.error_msg, "error_msg")
    unique_key = text_to_write(msg.unique_key, "unique_key")
    group_key = text_to_write(msg.group_key, "group_key")
    retry = number_to_write(msg.retry, "retry", True)
    retried = number_to_write(msg.retried, "retried", True)
    timeout = number_to_write(msg.timeout, "timeout", False)
    deadline = number_to_write(msg.deadline, "deadline", False)
    last_failed_at = number_to_write(msg.last_failed_at, "last_failed_at", False)
    retention = number_to_write(msg.retention, "retention", False)
    completed_at = number_to_write(msg.completed_at, "completed_at", False)
    size = (
        field_size(&kind) + field_size(&payload) + field_size(&id) + field_size(&queue) + field_size(&error_msg)
        + field_size(&unique_key) + field_size(&group_key) + number_size(retry) + number_size(retried)
        + number_size(timeout) + number_size(deadline) + number_size(last_failed_at) + number_size(retention)
        + number_size(completed_at) + len(entries)
    )
    data = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t *> PyBytes_AS_STRING(data)
    at = write_text(at, 1, &kind)
    at = write_text(at, 2, &payload)
    at = write_text(at, 3, &id)
    at = write_text(at, 4, &queue)
    at = write_number(at, 5, retry)
    at = write_number(at, 6, retried)
    at = write_text(at, 7, &error_msg)
    at = write_number(at, 8, timeout)
    at = write_number(at, 9, deadline)
    at = write_text(at, 10, &unique_key)
    at = write_number(at, 11, last_failed_at)
    at = write_number(at, 12, retention)
    at = write_number(at, 13, completed_at)
    at = write_text(at, 14, &group_key)
    memcpy(at, PyBytes_AS_STRING(entries), len(entries))
    return data
