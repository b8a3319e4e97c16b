/* Clocks and randomness of a process, read from a page that the simulation writes (LD_PRELOAD, FASTQ_SIMULATION=page).
 *
 * Python and redis-server each have a page, since the clock of a simulated machine need not be that of Redis.
 * CLOCK_MONOTONIC_RAW stays real: the simulation measures its own speed by it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { IS_ON, WALL_NS, MONOTONIC_NS, RANDOM, WORDS };

static volatile uint64_t nothing[WORDS];
static volatile uint64_t *page = nothing;

__attribute__((constructor)) static void map_page(void) {
    const char *path = getenv("FASTQ_SIMULATION");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *found = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof nothing, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (found != MAP_FAILED) page = found;
    if (getenv("FASTQ_SIMULATION_SERVER")) prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int is_simulated = is_wall || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME;
    if (!page[IS_ON] || !is_simulated) return (int)syscall(SYS_clock_gettime, clock, at);
    uint64_t ns = page[is_wall ? WALL_NS : MONOTONIC_NS];
    at->tv_sec = (time_t)(ns / 1000000000);
    at->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

/* splitmix64 */
static uint64_t draw(void) {
    uint64_t word = page[RANDOM] += 0x9E3779B97F4A7C15u;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

ssize_t getrandom(void *to, size_t size, unsigned int flags) {
    if (!page[IS_ON]) return syscall(SYS_getrandom, to, size, flags);
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = draw();
        memcpy((char *)to + at, &word, size - at < sizeof word ? size - at : sizeof word);
    }
    return (ssize_t)size;
}

int getentropy(void *to, size_t size) { return getrandom(to, size, 0) < 0 ? -1 : 0; }

/* A server takes the seed of its hash tables from /dev/urandom, and from /proc/cpuinfo that it may read the time from
 * the processor.
 */
FILE *fopen64(const char *path, const char *mode) {
    FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen64");
    if (page[IS_ON] && !strcmp(path, "/dev/urandom")) path = "/dev/zero";
    if (page[IS_ON] && !strcmp(path, "/proc/cpuinfo")) path = "/dev/null";
    return next(path, mode);
}

FILE *fopen(const char *path, const char *mode) { return fopen64(path, mode); }
