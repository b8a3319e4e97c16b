# Protocol Buffers' wire format over raw memory: what Google's Go package accepts, and nothing that it refuses.
# Every read checks its bound before it touches a byte. Reading functions return 0 or an Error, and no function raises.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef enum Error:
    NO_ERROR = 0
    TRUNCATED = 1
    VARINT_TOO_LONG = 2
    BAD_FIELD_NUMBER = 3
    BAD_WIRE_TYPE = 4
    UNMATCHED_GROUP = 5
    TOO_DEEP = 6
    # A Python exception is set; only functions that build Python objects return this.
    RAISED = 7


cdef enum WireType:
    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    START_GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


cdef enum:
    MAX_FIELD_NUMBER = (1 << 29) - 1
    # Go allows one level more than its limit of 10 000.
    MAX_GROUP_DEPTH = 10001


cdef struct Reader:
    const uint8_t *at
    const uint8_t *end


cdef inline Error read_varint(Reader *r, uint64_t *value) noexcept nogil:
    cdef const uint8_t *p = r.at
    cdef uint64_t result = 0
    cdef int shift = 0
    if p < r.end and p[0] < 0x80:
        value[0] = p[0]
        r.at = p + 1
        return NO_ERROR
    while p < r.end:
        # The tenth byte holds bit 63 alone; more would not fit.
        if shift == 63 and p[0] > 1:
            return VARINT_TOO_LONG
        result |= <uint64_t> (p[0] & 0x7F) << shift
        shift += 7
        p += 1
        if (p - 1)[0] < 0x80:
            value[0] = result
            r.at = p
            return NO_ERROR
    return TRUNCATED


cdef inline Error read_tag(Reader *r, uint64_t limit, uint32_t *number, int *wire_type) noexcept nogil:
    cdef uint64_t tag = 0
    cdef Error error = read_varint(r, &tag)
    if error:
        return error
    if tag < 8 or tag >> 3 > limit:
        return BAD_FIELD_NUMBER
    number[0] = <uint32_t> (tag >> 3)
    wire_type[0] = tag & 7
    return NO_ERROR


cdef inline Error read_span(Reader *r, Reader *span) noexcept nogil:
    """Read a length and set ``span`` to that many bytes."""
    cdef uint64_t size = 0
    cdef Error error = read_varint(r, &size)
    if error:
        return error
    # The comparison is unsigned, so that a length above 2**63 is not taken for a small negative number.
    if size > <uint64_t> (r.end - r.at):
        return TRUNCATED
    span.at = r.at
    r.at += size
    span.end = r.at
    return NO_ERROR


cdef inline Error skip_plain(Reader *r, int wire_type) noexcept nogil:
    """Skip a value that is not a group."""
    cdef uint64_t ignored = 0
    cdef Reader span
    cdef Py_ssize_t size
    if wire_type == VARINT:
        return read_varint(r, &ignored)
    if wire_type == LENGTH:
        return read_span(r, &span)
    if wire_type == FIXED64:
        size = 8
    elif wire_type == FIXED32:
        size = 4
    else:
        return BAD_WIRE_TYPE
    if r.end - r.at < size:
        return TRUNCATED
    r.at += size
    return NO_ERROR


cdef inline Error skip_group(Reader *r, uint32_t number) noexcept nogil:
    """Skip a group whose start tag was read; a stack of numbers replaces recursion."""
    cdef uint32_t[MAX_GROUP_DEPTH] open_groups
    cdef int depth = 1
    cdef int wire_type = 0
    cdef Error error
    open_groups[0] = number
    while depth:
        # Inside a group Go accepts field numbers up to 2**31 - 1.
        error = read_tag(r, 0x7FFFFFFF, &number, &wire_type)
        if error:
            return error
        if wire_type == START_GROUP:
            if depth == MAX_GROUP_DEPTH:
                return TOO_DEEP
            open_groups[depth] = number
            depth += 1
        elif wire_type == END_GROUP:
            depth -= 1
            if open_groups[depth] != number:
                return UNMATCHED_GROUP
        else:
            error = skip_plain(r, wire_type)
            if error:
                return error
    return NO_ERROR


cdef inline Error skip_value(Reader *r, uint32_t number, int wire_type) noexcept nogil:
    if wire_type == START_GROUP:
        return skip_group(r, number)
    if wire_type == END_GROUP:
        return UNMATCHED_GROUP
    return skip_plain(r, wire_type)


cdef inline Py_ssize_t varint_size(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *write_varint(uint8_t *at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t> (value | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t> value
    return at + 1


cdef inline uint64_t load(const uint8_t *at, int size) noexcept nogil:
    """Return ``size`` bytes, at most 8, as a number in this machine's order."""
    cdef uint64_t word = 0
    memcpy(&word, at, size)
    return word


cdef inline bint is_ascii(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t *end = at + size
    cdef uint64_t seen = 0
    if size >= 8:
        while end - at > 8:
            seen |= load(at, 8)
            at += 8
        # The last word may overlap the previous one: this costs less than a loop over the remaining bytes.
        seen |= load(end - 8, 8)
    else:
        while at < end:
            seen |= at[0]
            at += 1
    return not seen & <uint64_t> 0x8080808080808080


cdef inline bint same_bytes(const uint8_t *a, const uint8_t *b, Py_ssize_t size) noexcept nogil:
    """Compare short runs of bytes; a call of memcmp would cost more than the comparison."""
    cdef Py_ssize_t i = 0
    if size < 4:
        while i < size and a[i] == b[i]:
            i += 1
        return i == size
    if size < 8:
        return load(a, 4) == load(b, 4) and load(a + size - 4, 4) == load(b + size - 4, 4)
    while i < size - 8:
        if load(a + i, 8) != load(b + i, 8):
            return False
        i += 8
    return load(a + size - 8, 8) == load(b + size - 8, 8)
