/* Sets markers in a file that stands for the driver (HPM_MARK_DEVICE): its first page is the thread's marker page, and what is
 * asked of the driver is printed. */
#include <stddef.h>
#include <sys/ioctl.h>

static int driver(int fd, unsigned long number, void *argument);
#define ioctl driver
#include <hpm_mark.h>
#undef ioctl

#include <stdio.h>
#include <sys/wait.h>

static int driver(int fd, unsigned long number, void *argument) {
    (void)fd;
    if (number == HPM_IOCTL_MARKER_PAGE) {
        printf("page\n");
        ((struct hpm_marker_page_request *)argument)->offset = 0;
        return 0;
    }
    if (number == HPM_IOCTL_MARK) {
        struct hpm_mark_request *mark = (struct hpm_mark_request *)argument;
        printf("mark %.24s %lu\n", mark->name, (unsigned long)mark->value);
        mark->kept = 1;
        return 0;
    }
    errno = ENOTTY;
    return -1;
}

int main(void) {
    struct hpm_marks marks;
    uint64_t round;
    int kept = 0, before;
    pid_t child;
    errno = before = EDOM;
    printf("open %d\n", hpm_marks_open(&marks));
    /* One is cut between two characters, of 2 bytes each. */
    hpm_mark(&marks, "a\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 7);
    for (round = 0; round < 32; round++)
        hpm_mark(&marks, "round", round);
    printf("errno %s\n", errno == before ? "kept" : "changed");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        /* The page of the parent is full; the child's own begins where the driver says. */
        hpm_mark(&marks, "child", 1);
        hpm_marks_close(&marks);
        printf("closed %d\n", hpm_mark(&marks, "late", 2) == EBADF);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    hpm_mark_now(&marks, "done", 3, &kept);
    printf("kept %d\n", kept);
    hpm_marks_close(&marks);
    return 0;
}
