"""The codec: TaskMessage to and from the wire, exactly as asynq in Go writes and reads it.

One module in four parts: the message classes, reading, writing, and tasks made of messages. Others import
``fastq.wire.codec``.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.object cimport PyObject, PyTypeObject
from fastq._wire cimport (
    BAD_FIELD_NUMBER, BAD_WIRE_TYPE, Error, LENGTH, MAX_FIELD_NUMBER, NO_ERROR, RAISED, Reader, TOO_DEEP, TRUNCATED,
    UNMATCHED_GROUP, VARINT, VARINT_TOO_LONG, is_ascii, read_span, read_tag, read_varint, same_bytes, skip_value,
    varint_size, write_varint,
)
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from collections.abc import Mapping as _Mapping
from fastq.errors import InvalidMessageError

include "_codec_messages.pxi"
include "_codec_reading.pxi"
include "_codec_writing.pxi"
include "_codec_tasks.pxi"
