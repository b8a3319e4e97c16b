"""A thread in C that kills the group of this process when the other end of a pipe is gone, whoever holds the GIL.

For systems without ``F_SETSIG``; see ``lifeline.py``.
"""

cdef extern from *:
    """
    #include <poll.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <unistd.h>

    static void *fq_watch(void *argument) {
        struct pollfd watched = {(int)(intptr_t)argument, 0, 0};
        for (;;) {
            /* events 0: only POLLHUP, POLLERR and POLLNVAL are reported. */
            if (poll(&watched, 1, -1) > 0) kill(0, SIGKILL);
        }
        return 0;
    }

    static int fq_start_watch(int fd) {
        pthread_t thread;
        sigset_t all, before;
        int error;
        /* The thread inherits the mask: a signal must wake the main thread from its sleep, and not go to this one. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&thread, 0, fq_watch, (void *)(intptr_t)fd);
        pthread_sigmask(SIG_SETMASK, &before, 0);
        if (!error) pthread_detach(thread);
        return error;
    }
    """
    int fq_start_watch(int fd)


def watch(fd: int) -> None:
    """Start the thread; the descriptor must stay open."""
    cdef int error = fq_start_watch(fd)
    if error:
        raise OSError(error, "cannot start the thread that watches the lifeline")
