# Atomic access to shared memory. The builtins of GCC and Clang work on plain aligned integers, so they work on a
# mapping.
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>

    /* acquire: what the other side wrote before its release store is visible after this load. */
    static inline uint64_t fq_load64(const void *at) { return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE); }
    static inline uint32_t fq_load32(const void *at) { return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE); }

    /* release: everything written before is visible to whoever loads this value with acquire. */
    static inline void fq_store64(void *at, uint64_t value) { __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE); }
    static inline void fq_store32(void *at, uint32_t value) { __atomic_store_n((uint32_t *)at, value, __ATOMIC_RELEASE); }

    /* seq_cst: read-modify-writes decide who owns something (a record, a row, a wake-up); both sides must agree on one
       order, also with the flag that stands in another word. */
    static inline uint32_t fq_exchange32(void *at, uint32_t value) {
        return __atomic_exchange_n((uint32_t *)at, value, __ATOMIC_SEQ_CST);
    }
    static inline int fq_swap32(void *at, uint32_t expected, uint32_t value) {
        return __atomic_compare_exchange_n((uint32_t *)at, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    static inline int fq_swap64(void *at, uint64_t expected, uint64_t value) {
        return __atomic_compare_exchange_n((uint64_t *)at, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }

    /* Full fence, between "I wrote A" and "I read B" where the other side does "write B, read A": a sleeper sets its
       flag and looks at the ring again, a writer fills the ring and looks at the flag. Without it both may read old. */
    static inline void fq_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

    static inline int64_t fq_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    static inline int64_t fq_unix_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    uint64_t load64 "fq_load64"(const void *at) nogil
    uint32_t load32 "fq_load32"(const void *at) nogil
    void store64 "fq_store64"(void *at, uint64_t value) nogil
    void store32 "fq_store32"(void *at, uint32_t value) nogil
    uint32_t exchange32 "fq_exchange32"(void *at, uint32_t value) nogil
    bint swap32 "fq_swap32"(void *at, uint32_t expected, uint32_t value) nogil
    bint swap64 "fq_swap64"(void *at, uint64_t expected, uint64_t value) nogil
    void fence "fq_fence"() nogil
    int64_t now_ns "fq_now"() nogil
    int64_t unix_ns "fq_unix_now"() nogil
