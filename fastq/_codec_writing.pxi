# Writes TaskMessage as asynq in Go does: fields in the order of their numbers, zero values left out.
#
# Each field is measured first and written afterwards, into bytes of the exact size.


cdef extern from *:
    # Raw pointers, like the slots.
    bint PyLong_Check(PyObject *)
    bint PyUnicode_Check(PyObject *)
    long long PyLong_AsLongLongAndOverflow(PyObject *, int *)
    const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *)


cdef dict NUMBER_OF = {name: number for number, name in enumerate(FIELDS) if number}


cdef struct Part:
    # One field ready to be written: a number in ``value``, or ``value`` bytes at ``at``.
    const char *at
    uint64_t value


cdef int refuse_number(int number, object value, int bits) except -1:
    # Python refuses to print a number of thousands of digits.
    shown = value if value.bit_length() < 1_000 else f"a number of {value.bit_length()} bits"
    raise InvalidMessageError(f"cannot encode TaskMessage: {FIELDS[number]} does not fit in {bits} bits: {shown}")


cdef inline Py_ssize_t measure_number(int number, PyObject *value, Part *part) except -1:
    cdef int overflow = 0
    cdef bint is_short = SHORT_NUMBERS >> number & 1
    cdef int64_t small
    # Only int is allowed: an object's __index__ could change the message while pointers into its texts are held.
    if not PyLong_Check(value):
        raise TypeError(f"{FIELDS[number]} must be int, not {(<object> value)!r}")
    small = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or is_short and not INT32_MIN <= small <= INT32_MAX:
        refuse_number(number, <object> value, 32 if is_short else 64)
    part.value = <uint64_t> small
    return varint_size(number << 3) + varint_size(part.value) if small else 0


cdef int refuse_written_text(int number, object text) except -1:
    """Replace the current UnicodeEncodeError with an InvalidMessageError that names the field."""
    if PyErr_ExceptionMatches(UnicodeEncodeError):
        PyErr_Clear()
        shown = text if len(text) < 1_000 else text[:1_000] + "..."
        raise InvalidMessageError(f"cannot encode TaskMessage: {FIELDS[number]} is not valid Unicode: {shown!r}")
    return -1


cdef inline Py_ssize_t measure_text(int number, PyObject *value, Part *part) except -1:
    cdef Py_ssize_t size = 0
    if not PyUnicode_Check(value):
        what = "each key and value of headers" if number == HEADERS else FIELDS[number]
        raise TypeError(f"{what} must be str, not {(<object> value)!r}")
    part.at = PyUnicode_AsUTF8AndSize(value, &size)
    if part.at == NULL:
        refuse_written_text(number, <object> value)
    part.value = <uint64_t> size
    return varint_size(number << 3) + varint_size(size) + size if size else 0


cdef inline Py_ssize_t measure_bytes(int number, PyObject *value, Part *part) except -1:
    """Measure the payload, or the entries of the headers, which already include their tags."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(<object> value)
    part.at = PyBytes_AS_STRING(<object> value)
    part.value = size
    return size if number == HEADERS or not size else varint_size(number << 3) + varint_size(size) + size


cdef object value_of(TaskMessage msg, int number):
    if msg.slots[number] == NULL:
        raise AttributeError(f"TaskMessage has no {FIELDS[number]}")
    return <object> msg.slots[number]


cdef inline Py_ssize_t measure(int number, PyObject *value, Part *part) except -1:
    """Point ``part`` at the value and return the field's size on the wire; run no Python code except to raise."""
    if NUMBERS >> number & 1:
        return measure_number(number, value, part)
    if number == PAYLOAD or number == HEADERS:
        return measure_bytes(number, value, part)
    return measure_text(number, value, part)


cdef inline uint8_t *write_span(uint8_t *at, int number, Part *part) noexcept:
    at = write_varint(write_varint(at, number << 3 | LENGTH), part.value)
    memcpy(at, part.at, part.value)
    return at + part.value


cdef inline uint8_t *write_part(uint8_t *at, int number, Part *part) noexcept:
    if not part.value:
        return at
    if NUMBERS >> number & 1:
        return write_varint(write_varint(at, number << 3 | VARINT), part.value)
    if number == HEADERS:
        memcpy(at, part.at, part.value)
        return at + part.value
    return write_span(at, number, part)


cdef bytes encode_headers(object headers):
    """Return the map's entries, tags included; both key and value are written even when empty."""
    cdef Part key, value
    cdef Py_ssize_t size
    cdef bytes entry
    cdef uint8_t *at
    cdef list entries = []
    if type(headers) is not dict:
        if not isinstance(headers, _Mapping):
            raise TypeError(f"headers must be a mapping, not {headers!r}")
        headers = dict(headers)
    for name, text in (<dict> headers).items():
        measure_text(HEADERS, <PyObject *> name, &key)
        measure_text(HEADERS, <PyObject *> text, &value)
        size = 2 + varint_size(key.value) + key.value + varint_size(value.value) + value.value
        entry = PyBytes_FromStringAndSize(NULL, 1 + varint_size(size) + size)
        at = <uint8_t *> PyBytes_AS_STRING(entry)
        at[0] = HEADERS << 3 | LENGTH
        write_span(write_span(write_varint(at + 1, size), 1, &key), 2, &value)
        entries.append(entry)
    return b"".join(entries)


cdef bytes flat_payload(object payload):
    if type(payload) is bytes:
        return payload
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise TypeError(f"payload must be bytes, not {type(payload).__name__}")
    return bytes(payload)


def encode_task_message(TaskMessage msg not None):
    """Return the message's bytes as asynq writes them; headers keep the order of their mapping."""
    cdef Part parts[SLOTS]
    cdef PyObject *value
    cdef int number
    cdef Py_ssize_t size = 0
    cdef uint8_t *at
    # These two calls may run Python code, so they come before any pointer into the message is taken.
    cdef bytes entries = encode_headers(value_of(msg, HEADERS))
    cdef bytes payload = flat_payload(value_of(msg, PAYLOAD))
    cdef bytes data
    for number in range(TYPE, SLOTS):
        value = msg.slots[number]
        if number == PAYLOAD:
            value = <PyObject *> payload
        elif number == HEADERS:
            value = <PyObject *> entries
        elif value == NULL:
            value_of(msg, number)
        size += measure(number, value, &parts[number])
    data = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t *> PyBytes_AS_STRING(data)
    for number in range(TYPE, SLOTS):
        at = write_part(at, number, &parts[number])
    return data


cdef Py_ssize_t splice(bytes data, uint8_t *out, Part *parts, uint32_t changed) noexcept:
    """Copy valid ``data`` to ``out`` with the changed fields in place, and return the size written."""
    cdef uint8_t *start = out
    cdef const uint8_t *field
    cdef uint32_t number = 0
    cdef uint32_t next_number = TYPE
    cdef int wire_type = 0
    cdef Reader r
    r.at = <const uint8_t *> PyBytes_AS_STRING(data)
    r.end = r.at + PyBytes_GET_SIZE(data)
    while r.at < r.end:
        field = r.at
        read_tag(&r, MAX_FIELD_NUMBER, &number, &wire_type)
        skip_value(&r, number, wire_type)
        while next_number < SLOTS and next_number <= number:
            if changed >> next_number & 1:
                out = write_part(out, next_number, &parts[next_number])
            next_number += 1
        # A field with the number of a changed field, but another wire type, is unknown, and stays.
        if number < SLOTS and changed >> number & 1 and wire_type == (VARINT if NUMBERS >> number & 1 else LENGTH):
            continue
        memcpy(out, field, r.at - field)
        out += r.at - field
    for next_number in range(next_number, SLOTS):
        if changed >> next_number & 1:
            out = write_part(out, next_number, &parts[next_number])
    return out - start


cdef bytes spliced(bytes data, Py_ssize_t most, Part *parts, uint32_t changed):
    """Return valid ``data`` with the changed fields in place, ``most`` bytes at most."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, most)
    cdef Py_ssize_t size = splice(data, <uint8_t *> PyBytes_AS_STRING(out), parts, changed)
    return out if size == most else out[:size]


def rewrite_task_message(bytes data not None, **changes):
    """Return ``data`` with the named fields changed; all other fields, including unknown ones, stay as they are.

    ``None`` leaves a field alone; a zero or empty value removes it. Raises the errors of decoding and encoding.
    """
    cdef Part parts[SLOTS]
    cdef uint32_t changed = 0
    cdef int number
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef list values = []
    check_task_message(data)
    for name, value in changes.items():
        number = NUMBER_OF.get(name, 0)
        if not number:
            raise TypeError(f"TaskMessage has no {name}")
        if value is None:
            continue
        if number == PAYLOAD:
            value = flat_payload(value)
        elif number == HEADERS:
            value = encode_headers(value)
        # The parts point into these values, which must stay alive.
        values.append(value)
        size += measure(number, <PyObject *> value, &parts[number])
        changed |= 1 << number
    return spliced(data, size, parts, changed)


def completed_message(TaskView view not None, completed_at):
    """Return the message of a view with this time of completion."""
    cdef Part parts[SLOTS]
    cdef bytes data = <bytes> <object> view.slots[DATA]
    cdef Py_ssize_t more = measure(COMPLETED_AT, <PyObject *> completed_at, &parts[COMPLETED_AT])
    return spliced(data, PyBytes_GET_SIZE(data) + more, parts, 1 << COMPLETED_AT)
