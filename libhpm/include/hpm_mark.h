/* SPDX-License-Identifier: MIT
 *
 * Markers for programs in C and C++: a measured thread names moments of its own run, and `hpmctl explore` sees them beside
 * the counters. One header, no library; C99 or C++, gcc or clang.
 *
 *     struct hpm_marks marks;               // one for each thread
 *     hpm_marks_open(&marks);
 *     for (uint64_t round = 0; round < 1000; round++) {
 *         hpm_mark(&marks, "round", round); // no system call
 *         ...
 *     }
 *     hpm_marks_close(&marks);
 *
 * Where the driver is not loaded, or the processor is not x86-64, every call does nothing. All of them leave errno alone.
 * The interface below is that of docs/abi.md ("What is mapped"); libhpm/tests/mark_header.rs holds it against kmod/abi.
 */
#ifndef HPM_MARK_H
#define HPM_MARK_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a marker's name: UTF-8, padded with NUL, not terminated when all are used. Longer names are cut. */
#define HPM_MARKER_NAME_BYTES 24

/* What a thread sets markers with. To be used by the thread that opened it, and by no other; its fields are private. */
struct hpm_marks {
    int error;                    /* why nothing is marked: an errno, or 0 */
    int fd;                       /* the driver */
    struct hpm_marker_page *page; /* the thread's, or NULL when each marker is to be a system call */
    uint64_t produced;            /* markers written to the page */
    unsigned char *lives;         /* a byte that is 0 in a child after fork(2), which has none of its parent's pages */
};

#if defined(__linux__) && defined(__x86_64__)

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef HPM_MARK_DEVICE
#define HPM_MARK_DEVICE "/dev/hpm"
#endif

#define HPM_ABI_VERSION 6u
#define HPM_PAGE_BYTES 4096u
#define HPM_PAGE_MARKERS 32u
/* _IOWR(0xB7, n, struct hpm_envelope) */
#define HPM_IOCTL_MARK 0xC020B709ul
#define HPM_IOCTL_MARKER_PAGE 0xC020B70Aul

/* Starts every ioctl argument. */
struct hpm_envelope {
    uint32_t version, size, reason, reserved;
    uint64_t detail[2];
};

/* Argument of HPM_IOCTL_MARK. */
struct hpm_mark_request {
    struct hpm_envelope envelope;
    uint64_t value;
    char name[HPM_MARKER_NAME_BYTES];
    uint32_t kept; /* out: a session that keeps markers measures the thread */
    uint32_t reserved;
};

/* Argument of HPM_IOCTL_MARKER_PAGE. */
struct hpm_marker_page_request {
    struct hpm_envelope envelope;
    uint64_t offset; /* out: the page's mmap offset */
};

/* A marker that waits in a page. */
struct hpm_page_marker {
    uint64_t tsc, value;
    char name[HPM_MARKER_NAME_BYTES];
    uint64_t reserved[3];
};

/* A thread's page, which the driver reads when the thread's quantum ends. */
struct hpm_marker_page {
    uint64_t produced, taken, reserved[6];
    struct hpm_page_marker markers[HPM_PAGE_MARKERS];
};

/* Of Linux on x86-64, also where the C library hides them from strict C99. */
#define HPM_O_CLOEXEC 02000000
#define HPM_MAP_ANONYMOUS 0x20
#define HPM_MADV_WIPEONFORK 18
#ifndef __cplusplus
extern int madvise(void *, size_t, int);
#endif

static inline struct hpm_envelope hpm_envelope_of(size_t bytes) {
    struct hpm_envelope envelope;
    memset(&envelope, 0, sizeof envelope);
    envelope.version = HPM_ABI_VERSION;
    envelope.size = (uint32_t)bytes;
    return envelope;
}

/* As much of a name as fits, cut between characters. */
static inline void hpm_fit(char *to, const char *name) {
    size_t length = 0;
    while (length < HPM_MARKER_NAME_BYTES && name[length] != '\0')
        length++;
    while (length > 0 && ((unsigned char)name[length] & 0xC0) == 0x80)
        length--;
    memset(to, 0, HPM_MARKER_NAME_BYTES);
    memcpy(to, name, length);
}

/* 0, or an errno. A signal may interrupt a wait inside the driver; every request may be repeated. */
static inline int hpm_ioctl(int fd, unsigned long number, void *argument) {
    while (ioctl(fd, number, argument) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* Makes or finds the thread's page. Without one, markers are system calls. */
static inline void hpm_marks_map(struct hpm_marks *marks) {
    struct hpm_marker_page_request request;
    void *page;
    marks->page = NULL;
    if (marks->lives == NULL)
        return;
    memset(&request, 0, sizeof request);
    request.envelope = hpm_envelope_of(sizeof request);
    if (hpm_ioctl(marks->fd, HPM_IOCTL_MARKER_PAGE, &request) != 0)
        return;
    page = mmap(NULL, HPM_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, marks->fd, (off_t)request.offset);
    if (page == MAP_FAILED)
        return;
    marks->page = (struct hpm_marker_page *)page;
    /* Another thread that has exited may have used it before. */
    marks->produced = __atomic_load_n(&marks->page->produced, __ATOMIC_RELAXED);
    *marks->lives = 1;
}

/* Opens the driver for the calling thread. 0, or an errno: ENOENT when the driver is not loaded. Markers may be set in either
 * case; after an error they are ignored. */
static inline int hpm_marks_open(struct hpm_marks *marks) {
    int before = errno;
    void *lives;
    memset(marks, 0, sizeof *marks);
    marks->fd = open(HPM_MARK_DEVICE, O_RDWR | HPM_O_CLOEXEC);
    if (marks->fd < 0) {
        marks->error = errno;
        errno = before;
        return marks->error;
    }
    lives = mmap(NULL, HPM_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | HPM_MAP_ANONYMOUS, -1, 0);
    if (lives != MAP_FAILED) {
        if (madvise(lives, HPM_PAGE_BYTES, HPM_MADV_WIPEONFORK) == 0)
            marks->lives = (unsigned char *)lives;
        else
            munmap(lives, HPM_PAGE_BYTES);
    }
    hpm_marks_map(marks);
    errno = before;
    return 0;
}

/* Sets a marker by a system call. 0, or an errno. `kept`, unless it is NULL, becomes 1 when a session that keeps markers
 * measures the thread, else 0: then nothing was kept. */
static inline int hpm_mark_now(struct hpm_marks *marks, const char *name, uint64_t value, int *kept) {
    struct hpm_mark_request request;
    int before = errno, error = marks->error;
    memset(&request, 0, sizeof request);
    if (error == 0) {
        request.envelope = hpm_envelope_of(sizeof request);
        request.value = value;
        hpm_fit(request.name, name);
        error = hpm_ioctl(marks->fd, HPM_IOCTL_MARK, &request);
    }
    if (kept != NULL)
        *kept = error == 0 && request.kept != 0;
    errno = before;
    return error;
}

/* Sets a marker in this thread, now: a store of 64 bytes. When 32 of them wait for the driver, one costs a system call. `name`
 * has up to 24 bytes and says what happens; `value` is the program's own. 0, or an errno. */
static inline int hpm_mark(struct hpm_marks *marks, const char *name, uint64_t value) {
    struct hpm_page_marker *marker;
    if (marks->error == 0 && marks->page != NULL && *marks->lives == 0) {
        int before = errno;
        hpm_marks_map(marks);
        errno = before;
    }
    if (marks->page == NULL
        || marks->produced - __atomic_load_n(&marks->page->taken, __ATOMIC_ACQUIRE) >= HPM_PAGE_MARKERS)
        return hpm_mark_now(marks, name, value, NULL);
    marker = &marks->page->markers[marks->produced % HPM_PAGE_MARKERS];
    marker->tsc = __builtin_ia32_rdtsc();
    marker->value = value;
    hpm_fit(marker->name, name);
    memset(marker->reserved, 0, sizeof marker->reserved);
    marks->produced++;
    /* The driver reads the marker only after this store. */
    __atomic_store_n(&marks->page->produced, marks->produced, __ATOMIC_RELEASE);
    return 0;
}

/* Gives everything back. Markers that still wait in the page are taken when the thread's quantum ends, so a thread that ends at
 * once after its last marker should leave this to its process's end, or set the last one by hpm_mark_now. */
static inline void hpm_marks_close(struct hpm_marks *marks) {
    int before = errno;
    if (marks->page != NULL && *marks->lives != 0)
        munmap(marks->page, HPM_PAGE_BYTES);
    if (marks->lives != NULL)
        munmap(marks->lives, HPM_PAGE_BYTES);
    if (marks->error == 0)
        close(marks->fd);
    memset(marks, 0, sizeof *marks);
    marks->fd = -1;
    marks->error = EBADF;
    errno = before;
}

#else

static inline int hpm_marks_open(struct hpm_marks *marks) {
    (void)marks;
    return 38; /* ENOSYS */
}

static inline int hpm_mark_now(struct hpm_marks *marks, const char *name, uint64_t value, int *kept) {
    (void)marks;
    (void)name;
    (void)value;
    if (kept != NULL)
        *kept = 0;
    return 38;
}

static inline int hpm_mark(struct hpm_marks *marks, const char *name, uint64_t value) {
    return hpm_mark_now(marks, name, value, NULL);
}

static inline void hpm_marks_close(struct hpm_marks *marks) {
    (void)marks;
}

#endif
#endif
