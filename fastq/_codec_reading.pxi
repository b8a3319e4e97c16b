# Reads TaskMessage from the wire, whole or as a view, and refuses the same bytes as asynq in Go.
#
# One loop serves all readers; each reader has a table of how it treats the known fields.


cdef extern from *:
    object _PyObject_New(PyTypeObject *)
    # Raw pointers from here on, because slots are raw pointers.
    void Py_XINCREF(PyObject *)
    PyObject *PyDict_New() except NULL
    PyObject *new_bytes "PyBytes_FromStringAndSize" (const char *, Py_ssize_t) except NULL
    PyObject *PyLong_FromLongLong(long long) except NULL
    PyObject *PyUnicode_New(Py_ssize_t, Py_UCS4) except NULL
    PyObject *PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *)
    void *PyUnicode_DATA(PyObject *)
    bint unlikely(bint)


cdef enum:
    SHARED_NAMES_SIZE = 256
    SHARED_NAME_LIMIT = 64
    SHARED_DURATIONS_SIZE = 64

cdef str NO_TEXT = ""
cdef bytes NO_BYTES = b""
cdef object ZERO = 0
# The prefix of the keys of fastq's own headers.
cdef const uint8_t *OWN_PREFIX = b"fastq-"
cdef enum:
    OWN_PREFIX_SIZE = 6

# How each reader treats a known field, by the byte of its tag: number << 3 | wire type.
cdef uint8_t DECODED[8 * SLOTS]
cdef uint8_t VIEWED[8 * SLOTS]
cdef uint8_t CHECKED[8 * SLOTS]
cdef PyObject *DEFAULTS[SLOTS]
cdef PyObject *VIEW_DEFAULTS[SLOTS]


cdef int add_field(int number, Kind kind, bint viewed) except -1:
    cdef int tag = number << 3 | (VARINT if kind < NAME else LENGTH)
    cdef Kind unread = UNREAD_NUMBER if kind < NAME else FLAGGED_ENTRY if kind == ENTRY else UNREAD
    # An empty dict has to be made anew for each message.
    default = None if kind == ENTRY else NO_BYTES if kind == BYTES else ZERO if kind < NAME else NO_TEXT
    DECODED[tag] = kind
    VIEWED[tag] = kind if viewed else unread
    CHECKED[tag] = CHECKED_TEXT if kind == NAME or kind == TEXT else CHECKED_ENTRY if kind == ENTRY else unread
    DEFAULTS[number] = NULL if default is None else <PyObject *> default
    VIEW_DEFAULTS[number] = DEFAULTS[number] if viewed else NULL
    return 0


cdef int add_fields() except -1:
    cdef int number
    for number in range(TYPE, SLOTS):
        _, kind, viewed = TABLE[number]
        add_field(number, kind, viewed)
    return 0


add_fields()


cdef inline void fill_slots(PyObject **slots, PyObject **defaults) noexcept:
    cdef int number
    for number in range(TYPE, SLOTS):
        if slots[number] == NULL:
            Py_XINCREF(defaults[number])
            slots[number] = defaults[number]


cdef int refuse_text(int number) except -1:
    """Replace the current UnicodeDecodeError by an InvalidMessageError."""
    if PyErr_ExceptionMatches(UnicodeDecodeError):
        PyErr_Clear()
        raise InvalidMessageError(f"cannot decode TaskMessage: {FIELDS[number]} contains invalid UTF-8")
    return -1


cdef inline PyObject *read_text(Reader span, int number) except NULL:
    cdef Py_ssize_t size = span.end - span.at
    cdef PyObject *text
    # Texts of one character are left to CPython, which has a shared object for each.
    if size > 1 and is_ascii(span.at, size):
        text = PyUnicode_New(size, 127)
        memcpy(PyUnicode_DATA(text), span.at, size)
        return text
    text = PyUnicode_DecodeUTF8(<const char *> span.at, size, NULL)
    if text == NULL:
        refuse_text(number)
    return text


# Recent types and queue names, by a hash of their bytes; at most SHARED_NAMES_SIZE short texts. Most messages have one
# of the same few texts. To find a text here is cheaper than to make one, and the text's hash is computed already.
cdef PyObject *SHARED_NAMES[SHARED_NAMES_SIZE]


cdef inline PyObject *read_name(Reader span, int number) except NULL:
    cdef Py_ssize_t size = span.end - span.at
    cdef const uint8_t *at = span.at
    cdef PyObject **shared
    if size < 2 or size > SHARED_NAME_LIMIT:
        return read_text(span, number)
    shared = &SHARED_NAMES[(7 * size + at[0] + 31 * at[size >> 1] + 131 * at[size - 1]) % SHARED_NAMES_SIZE]
    if (
        shared[0] == NULL
        or PyUnicode_GET_LENGTH(shared[0]) != size
        or not same_bytes(<const uint8_t *> PyUnicode_DATA(shared[0]), at, size)
    ):
        # Only ASCII is cached, so that the length of an object is its number of bytes.
        if not is_ascii(at, size):
            return read_text(span, number)
        give(shared, read_text(span, number))
    Py_INCREF(shared[0])
    return shared[0]


# Recent durations, by their last bits.
cdef PyObject *SHARED_DURATIONS[SHARED_DURATIONS_SIZE]
cdef uint64_t SHARED_SECONDS[SHARED_DURATIONS_SIZE]


cdef inline PyObject *read_number(uint64_t value, int kind) except NULL:
    cdef int place = value % SHARED_DURATIONS_SIZE
    if kind == INT32:
        # Like Go, truncate a number that does not fit.
        return PyLong_FromLongLong(<int32_t> value)
    if kind == INT64:
        return PyLong_FromLongLong(<int64_t> value)
    if SHARED_DURATIONS[place] == NULL or SHARED_SECONDS[place] != value:
        give(&SHARED_DURATIONS[place], PyLong_FromLongLong(<int64_t> value))
        SHARED_SECONDS[place] = value
    Py_INCREF(SHARED_DURATIONS[place])
    return SHARED_DURATIONS[place]


cdef inline Error read_part(Reader *entry, Reader *span, uint32_t *number) noexcept:
    """Read a part of a header: its key (``number`` 1), its value (2), or an unknown field (0), which is skipped."""
    cdef int wire_type = 0
    cdef Error error = read_tag(entry, MAX_FIELD_NUMBER, number, &wire_type)
    if error:
        return error
    if wire_type == LENGTH and number[0] <= 2:
        return read_span(entry, span)
    error = skip_value(entry, number[0], wire_type)
    number[0] = 0
    return error


cdef Error read_header(Reader entry, PyObject *headers) except RAISED:
    """Read one entry of the map; it is only checked if ``headers`` is NULL."""
    cdef uint32_t number = 0
    cdef Reader span
    cdef Error error
    cdef list pair = ["", ""]
    cdef PyObject *text
    while entry.at < entry.end:
        error = read_part(&entry, &span, &number)
        if error:
            return error
        if number:
            text = read_text(span, HEADERS)
            pair[number - 1] = <object> text
            Py_XDECREF(text)
    if headers != NULL:
        (<dict> headers)[pair[0]] = pair[1]
    return NO_ERROR


cdef Error flag_header(Reader entry, PyObject **slots) noexcept:
    """Skip one entry of the map, and flag in a view that there are headers, and whether this one is fastq's own."""
    cdef uint32_t number = 0
    cdef Reader span
    cdef Error error
    cdef bint is_own = False
    while entry.at < entry.end:
        error = read_part(&entry, &span, &number)
        if error:
            return error
        if number == 1:
            # If an entry has several keys, the last key counts, as in decoding.
            is_own = span.end - span.at >= OWN_PREFIX_SIZE and same_bytes(span.at, OWN_PREFIX, OWN_PREFIX_SIZE)
    put(&slots[ANY_HEADER], True)
    if is_own:
        put(&slots[FASTQ_HEADER], True)
    return NO_ERROR


cdef inline Error take_span(int kind, int number, Reader span, PyObject **slots) except RAISED:
    """Read, check or skip a length-delimited value according to ``kind``."""
    if kind == NAME:
        give(&slots[number], read_name(span, number))
    elif kind == TEXT:
        give(&slots[number], read_text(span, number))
    elif kind == BYTES:
        give(&slots[number], new_bytes(<const char *> span.at, span.end - span.at))
    elif kind == CHECKED_TEXT:
        if not is_ascii(span.at, span.end - span.at):
            Py_XDECREF(read_text(span, number))
    elif kind == ENTRY:
        if slots[number] == NULL:
            slots[number] = PyDict_New()
        return read_header(span, slots[number])
    elif unlikely(kind == FLAGGED_ENTRY):
        # ``unlikely`` keeps this branch out of the loop over fields, which makes the loop 4 % faster.
        return flag_header(span, slots)
    else:
        return read_header(span, NULL)
    return NO_ERROR


cdef Error read_long_tag(Reader *r, int *kind, int *number, const uint8_t *kinds) noexcept:
    """Read a tag of several bytes, and skip the value if the field is unknown."""
    cdef uint32_t field_number = 0
    cdef int wire_type = 0
    cdef Error error = read_tag(r, MAX_FIELD_NUMBER, &field_number, &wire_type)
    if error:
        return error
    # The tag of a known field may have more bytes than it needs.
    kind[0] = kinds[field_number << 3 | wire_type] if field_number < SLOTS else UNKNOWN
    number[0] = field_number
    return skip_value(r, field_number, wire_type) if kind[0] == UNKNOWN else NO_ERROR


cdef inline Error read_fields(Reader *whole, PyObject **slots, const uint8_t *kinds) except RAISED:
    """Read a whole message into ``slots``, each field according to ``kinds``."""
    # Two readers, because a reader whose address is passed cannot be kept in registers.
    cdef Reader r = whole[0]
    cdef Reader span
    cdef uint64_t value = 0
    cdef Error error = NO_ERROR
    cdef int tag, number, kind
    while r.at < r.end and not error:
        tag = r.at[0]
        number = tag >> 3
        kind = kinds[tag] if tag < 128 else UNKNOWN
        if kind != UNKNOWN:
            r.at += 1
        else:
            whole.at = r.at
            error = read_long_tag(whole, &kind, &number, kinds)
            r.at = whole.at
            if error or kind == UNKNOWN:
                continue
        if kind < NAME:
            error = read_varint(&r, &value)
            if not error and kind != UNREAD_NUMBER:
                give(&slots[number], read_number(value, kind))
        else:
            error = read_span(&r, &span)
            if not error and kind != UNREAD:
                error = take_span(kind, number, span, slots)
    whole.at = r.at
    return error


cdef dict REASONS = {
    TRUNCATED: "it is cut off",
    VARINT_TOO_LONG: "a varint is longer than 64 bits",
    BAD_FIELD_NUMBER: "a field number is out of range",
    BAD_WIRE_TYPE: "a wire type is unknown",
    UNMATCHED_GROUP: "a group ends that is not open",
    TOO_DEEP: "groups are nested too deep",
}


cdef int read_message(const char *data, Py_ssize_t size, PyObject **slots, const uint8_t *kinds) except -1:
    cdef Reader r
    cdef Error error
    r.at = <const uint8_t *> data
    r.end = r.at + size
    error = read_fields(&r, slots, kinds)
    if error:
        offset = r.at - <const uint8_t *> data
        raise InvalidMessageError(f"cannot decode TaskMessage: {REASONS[error]} (near byte {offset} of {size})")
    return 0


cdef TaskMessage decode(const char *data, Py_ssize_t size):
    cdef TaskMessage msg = <TaskMessage> _PyObject_New(<PyTypeObject *> TaskMessage)
    memset(msg.slots, 0, sizeof(msg.slots))
    read_message(data, size, msg.slots, DECODED)
    fill_slots(msg.slots, DEFAULTS)
    if msg.slots[HEADERS] == NULL:
        msg.slots[HEADERS] = PyDict_New()
    return msg


def decode_task_message(data):
    """Return the message in ``data``; raise InvalidMessageError if asynq would refuse it."""
    cdef Py_buffer buffer
    if type(data) is bytes:
        return decode(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return decode(<const char *> buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)


def view_task_message(bytes data not None, /):
    """Return a view of the message in ``data``; raise InvalidMessageError if its structure is broken.

    Texts that the view does not show are not checked, so decoding may still fail.
    """
    cdef TaskView view = <TaskView> _PyObject_New(<PyTypeObject *> TaskView)
    memset(view.slots, 0, sizeof(view.slots))
    put(&view.slots[0], data)
    read_message(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), view.slots, VIEWED)
    fill_slots(view.slots, VIEW_DEFAULTS)
    return view


def check_task_message(bytes data not None):
    """Raise InvalidMessageError where decode_task_message would, without making a message."""
    cdef PyObject *unused[SLOTS]
    read_message(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), unused, CHECKED)
