from fastq._codec cimport TaskView
from libc.stdint cimport int64_t


cdef class HeldTask:
    cdef readonly str queue
    cdef readonly TaskView view
    cdef readonly str id
    cdef public int64_t seq
    cdef public double leased_until_s
    cdef public bint held
    cdef public object disposition
    cdef public bytes written
    cdef public int reruns
    cdef public object canceled
    cdef public object submission


cdef class HeldTasks:
    cdef double lease_s
    cdef dict queues
    cdef HeldTask hold(self, str queue, TaskView view, double now_s)
    cdef HeldTask look(self, str queue, str task_id)
    cdef void let_go(self, HeldTask task)
