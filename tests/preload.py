"""Small libraries put before the C library of a process: a clock that jumps, a disk that fails when it is told to.

``build`` compiles with the C compiler of the machine and skips, saying so, where there is none.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

# The file's eight bytes are seconds; the monotonic clock is left alone, as it is by whoever sets a clock.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static volatile long long *skew;
__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SKEW_FILE");
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *seen = mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (seen != MAP_FAILED) skew = seen;
}
int clock_gettime(clockid_t id, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, out);
    if (!done && skew && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += *skew;
    return done;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""
# While the file FAIL_WHEN is there, fsync or close (FAIL_CALL) of what lies below FAIL_BELOW and was written fails.
DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int fails(const char *call, int fd) {
    const char *when = getenv("FAIL_WHEN"), *below = getenv("FAIL_BELOW"), *which = getenv("FAIL_CALL");
    char link[64], path[4096];
    if (!when || !below || !which || strcmp(which, call) || access(when, F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return !strncmp(path, below, strlen(below)) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
}
int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    if (fails("fsync", fd)) { errno = EIO; return -1; }
    return real(fd);
}
int close(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "close");
    int failing = fails("close", fd), done = real(fd);
    if (failing) { errno = EIO; return -1; }
    return done;
}
"""

# A file system that grants each kernel lock to everybody, as some network file systems do.
NO_FLOCK = "int flock(int fd, int operation) { return 0; }\n"


def build(source: str, folder: Path) -> str:
    """*source* as a library in *folder*; what ``LD_PRELOAD`` has to be."""
    if not sys.platform.startswith("linux"):
        pytest.skip("LD_PRELOAD is Linux's")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: nothing can be put before the C library")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "preload.c").write_text(source)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", "preload.so", "preload.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "preload.so")


class Clock:
    """The wall clock of the processes that are started with ``env``; ``set`` moves it while they run."""

    def __init__(self, folder: Path) -> None:
        library = build(CLOCK, folder)
        self.file = folder / "skew"
        self.file.write_bytes(bytes(8))
        self.env = {"LD_PRELOAD": library, "SKEW_FILE": str(self.file)}

    def set(self, seconds: int) -> None:
        with self.file.open("r+b") as file:  # in place: the others have it mapped
            file.write(struct.pack("q", seconds))
