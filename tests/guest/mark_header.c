/* Two threads that mark each round of their work by hpm_mark.h: `mark_header ROUNDS` sets markers `round` with the values 0, 1, …, then
 * `done` with their number by a system call, as tests/guest/src/bin/marks.rs does by libhpm. Rounds are short, so that a page is full
 * before the driver looks. */
#include <hpm_mark.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t rounds;

static void *work(void *nothing) {
    struct hpm_marks marks;
    int kept = 0, error = hpm_marks_open(&marks);
    for (uint64_t round = 0; round < rounds && error == 0; round++)
        error = hpm_mark(&marks, "round", round);
    if (error == 0)
        error = hpm_mark_now(&marks, "done", rounds, &kept);
    hpm_marks_close(&marks);
    if (error != 0 || !kept) {
        fprintf(stderr, "markers: errno %d, %s\n", error, kept ? "kept" : "nothing measures this program");
        exit(1);
    }
    return nothing;
}

int main(int count, char **arguments) {
    pthread_t other;
    rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 300;
    if (pthread_create(&other, NULL, work, NULL) != 0)
        return 1;
    work(NULL);
    return pthread_join(other, NULL) != 0;
}
