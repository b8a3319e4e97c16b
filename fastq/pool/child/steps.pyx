"""Publishes which task's coroutine the child's event loop runs now, so that a task that blocks the loop can be charged.

A coroutine is driven through a ``Step``, which writes the task's sequence number into shared memory around each step.
Coroutines that it starts in a step, by ``asyncio.create_task`` or ``gather``, belong to the same task.
"""

from cython cimport freelist, linetrace
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint64_t

from fastq.pool.shared cimport atomics as atomic
from fastq.pool.shared.ring cimport Memory

import asyncio
from types import CoroutineType

from fastq.pool.shared import layout
from fastq.pool.shared.processes import leave

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030a0000
    #error "Step needs am_send"
    #endif
    /* Called by PyIter_Send: without it a coroutine that returns must raise StopIteration, which costs 500 ns. */
    static void fq_set_sender(PyObject *type, PySendResult (*sender)(PyObject *, PyObject *, PyObject **)) {
        ((PyTypeObject *)type)->tp_as_async->am_send = sender;
    }
    /* Fails with the error that is set. */
    static int fq_fail(void) { return -1; }
    """
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(PyObject *iterator, PyObject *value, PyObject **result)
    void fq_set_sender(object type, PySendResult (*sender)(PyObject *, PyObject *, PyObject **) noexcept)
    int fq_fail() except -1


cdef class Stage:
    """The task whose coroutine the child's event loop runs now, published to the main process."""

    cdef Memory memory
    cdef char *at
    # The task whose coroutine is in a step, 0 for none.
    cdef uint64_t seq
    cdef bint forked

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.at = memory.base + <Py_ssize_t>layout.STEP_AT

    cdef void enter(self, uint64_t seq) noexcept:
        self.seq = seq
        atomic.store64(self.at, seq)

    def follow(self, seq: int, coroutine):
        """Return ``coroutine`` wrapped so that its steps are published as those of the task ``seq``."""
        cdef Step step = Step.__new__(Step)
        step.stage, step.seq, step.coroutine = self, seq, coroutine
        return step

    def make_task(self, loop, coroutine, **options):
        """Make an asyncio task, as the loop's task factory; it belongs to the fastq task that is in a step now."""
        if self.seq and not self.forked and type(coroutine) is CoroutineType:
            coroutine = self.follow(self.seq, coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    def disown(self) -> None:
        """Mark this process as a fork of the child, which must not continue the event loop."""
        self.forked = True

    def check(self) -> None:
        """End this process if it is a fork of the child that has returned to its event loop."""
        if self.forked:
            leave_the_loop()


@freelist(64)
cdef class Step:
    """A coroutine that wraps another one."""

    cdef Stage stage
    cdef uint64_t seq
    cdef object coroutine

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """Continue with a value."""
        cdef PyObject *result = NULL
        cdef PySendResult status = step_send(<PyObject *>self, <PyObject *>value, &result)
        if status == PYGEN_ERROR:
            fq_fail()
        answer = <object>result
        Py_DECREF(answer)
        if status == PYGEN_RETURN:
            raise StopIteration(answer)
        return answer

    def throw(self, error, value=None, traceback=None):
        """Continue with an error."""
        cdef uint64_t outer = self.stage.seq
        self.stage.enter(self.seq)
        try:
            answer = self.coroutine.throw(*[given for given in (error, value, traceback) if given is not None])
        except BaseException as raised:
            if self.stage.forked:
                leave(None if isinstance(raised, StopIteration) else raised)
            self.stage.enter(outer)
            raise
        self.stage.check()
        self.stage.enter(outer)
        return answer

    def close(self):
        """End early."""
        self.coroutine.close()

    def __getattr__(self, name):
        # cr_frame, cr_code and so on, for debuggers.
        return getattr(self.coroutine, name)


@linetrace(False)  # tracing must not run while an error is set
cdef PySendResult step_send(PyObject *step, PyObject *value, PyObject **result) noexcept:
    """Do one step, as ``PyIter_Send`` does."""
    cdef Stage stage = (<Step>step).stage
    cdef uint64_t outer = stage.seq
    cdef PySendResult status
    if stage.forked:
        leave_the_loop()
    stage.enter((<Step>step).seq)
    status = PyIter_Send(<PyObject *>(<Step>step).coroutine, value, result)
    if stage.forked:
        leave_step(status)
    stage.enter(outer)
    return status


cdef int leave_step(PySendResult status) except -1:
    """End a fork that was made in a step, with the status of the step's outcome."""
    if status == PYGEN_NEXT:
        leave_the_loop()
    if status == PYGEN_RETURN:
        leave(None)
    try:
        return fq_fail()
    except BaseException as error:
        leave(error)


cdef int leave_the_loop() except -1:
    leave(SystemExit("fastq: a fork of a worker process cannot go on with the worker's event loop; it ends here"))


fq_set_sender(Step, step_send)
