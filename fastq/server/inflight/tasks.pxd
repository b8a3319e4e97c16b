from fastq._codec cimport TaskView
from fastq.server.inflight.tally cimport Tally
from libc.stdint cimport int64_t


cdef class InFlightTask:
    cdef readonly str queue
    cdef public TaskView view
    cdef readonly str id
    cdef public int64_t seq
    cdef public double leased_until_s
    cdef public bint in_flight
    cdef public object disposition
    cdef public bytes written
    cdef public object awaiter
    cdef public int marks
    cdef public int reruns
    cdef public int unexplained_reruns
    cdef public bint is_alone
    cdef public object canceled
    cdef public object submission
    cdef public Tally tally
    cdef public int failure
    cdef public str error
    cdef public int64_t ran_ns
    cdef public double wait_s


cdef class InFlightTasks:
    cdef double lease_s
    cdef dict queues
    cdef readonly set marked_queues
    cdef InFlightTask take(self, str queue, TaskView view, double now_s)
    cdef InFlightTask look(self, str queue, str task_id)
    cdef void let_go(self, InFlightTask task)
