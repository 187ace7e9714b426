/* Preloaded into a program (LD_PRELOAD), it lets what concerns one folder fail: FAULT=full:N, readonly or clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long first_failing; /* number of the first write that finds the disk full; 0: none does */
static long *writes;       /* so far, of all processes together: a file that they share */
static int read_only, clock_jumps;

__attribute__((constructor)) static void begin(void) {
    const char *fault = getenv("FAULT"), *of = getenv("FAULT_FOLDER"), *count = getenv("FAULT_COUNT");
    if (!fault || !of || !count || !realpath(of, folder)) return;
    if (strncmp(fault, "full:", 5) == 0) {
        int file = open(count, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof *writes) != 0) return;
        void *memory = mmap(NULL, sizeof *writes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (memory == MAP_FAILED) return;
        writes = memory;
        first_failing = atol(fault + 5);
    }
    read_only = strcmp(fault, "readonly") == 0;
    clock_jumps = strcmp(fault, "clock") == 0;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int inside(const char *path) {
    size_t length = strlen(folder);
    return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int is_full(int file) {
    char link[64], path[PATH_MAX];
    if (!first_failing) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    if (!inside(path) || __atomic_add_fetch(writes, 1, __ATOMIC_SEQ_CST) < first_failing) return 0;
    errno = ENOSPC;
    return 1;
}

static int is_read_only(int at, const char *path) {
    char whole[2 * PATH_MAX + 2] = "";
    if (!read_only || at != AT_FDCWD) return 0;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        snprintf(whole, sizeof whole, "%s/", here);
    }
    strncat(whole, path, PATH_MAX);
    if (!inside(whole)) return 0;
    errno = EROFS;
    return 1;
}

ssize_t write(int file, const void *bytes, size_t count) { REAL(write); return is_full(file) ? -1 : real(file, bytes, count); }
ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { REAL(pwrite); return is_full(file) ? -1 : real(file, bytes, count, at); }
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) { REAL(pwrite64); return is_full(file) ? -1 : real(file, bytes, count, at); }
ssize_t writev(int file, const struct iovec *parts, int count) { REAL(writev); return is_full(file) ? -1 : real(file, parts, count); }
ssize_t copy_file_range(int from, off64_t *of, int to, off64_t *at, size_t count, unsigned flags) {
    REAL(copy_file_range);
    return is_full(to) ? -1 : real(from, of, to, at, count, flags);
}
ssize_t sendfile(int to, int from, off_t *at, size_t count);
ssize_t sendfile(int to, int from, off_t *at, size_t count) { REAL(sendfile); return is_full(to) ? -1 : real(to, from, at, count); }

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags, mode) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { REAL(open); MODE(flags, mode) return WRITES(flags) && is_read_only(AT_FDCWD, path) ? -1 : real(path, flags, mode); }
int open64(const char *path, int flags, ...) { REAL(open64); MODE(flags, mode) return WRITES(flags) && is_read_only(AT_FDCWD, path) ? -1 : real(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { REAL(openat); MODE(flags, mode) return WRITES(flags) && is_read_only(at, path) ? -1 : real(at, path, flags, mode); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return is_read_only(AT_FDCWD, path) ? -1 : real(path, mode); }
int rename(const char *old, const char *new) { REAL(rename); return is_read_only(AT_FDCWD, new) ? -1 : real(old, new); }
int unlink(const char *path) { REAL(unlink); return is_read_only(AT_FDCWD, path) ? -1 : real(path); }

/* Two hours ahead in one second, two hours behind in the next. */
static time_t jump(void) {
    struct timespec now;
    if (!clock_jumps) return 0;
    REAL(clock_gettime);
    real(CLOCK_MONOTONIC, &now);
    return now.tv_sec % 2 ? 7200 : -7200;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(clock_gettime);
    int status = real(which, now);
    if (status == 0 && which == CLOCK_REALTIME) now->tv_sec += jump();
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    REAL(gettimeofday);
    int status = real(now, zone);
    if (status == 0) now->tv_sec += jump();
    return status;
}

time_t time(time_t *result) {
    REAL(time);
    time_t now = real(NULL) + jump();
    if (result) *result = now;
    return now;
}
