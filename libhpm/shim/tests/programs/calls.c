/* Calls of every kind, as the first argument says. Compiled with -finstrument-functions by logging.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static jmp_buf back;

__attribute__((noinline)) void work(unsigned long rounds) {
    for (unsigned long round = 0; round < rounds; round++)
        sink += round;
}

/* Too small to be worth an event. */
__attribute__((noinline)) unsigned long tiny(void) {
    return sink;
}

__attribute__((noinline)) void thrower(int depth) {
    if (depth < 0)
        return;
    if (depth == 0)
        longjmp(back, 1);
    thrower(depth - 1);
    work(1);
}

__attribute__((noinline)) void jumps(int times) {
    volatile int done = 0;
    setjmp(back);
    if (done++ < times)
        thrower(2);
    work(10);
}

__attribute__((noinline)) void *in_thread(void *name) {
    pthread_setname_np(pthread_self(), name);
    for (int round = 0; round < 100; round++)
        work(1000);
    return NULL;
}

__attribute__((noinline)) void threads(void) {
    static char names[3][8] = { "first", "second", "third" };
    pthread_t started[3];
    for (int number = 0; number < 3; number++)
        pthread_create(&started[number], NULL, in_thread, names[number]);
    for (int number = 0; number < 3; number++)
        pthread_join(started[number], NULL);
}

__attribute__((noinline)) void child(void) {
    work(100);
}

__attribute__((noinline)) int forks(void) {
    int status;
    work(100);
    if (fork() == 0) {
        child();
        exit(0);
    }
    wait(&status);
    return status;
}

__attribute__((noinline)) void plugin(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    ((void (*)(void))dlsym(library, "plugged"))();
}

__attribute__((noinline)) void waits(void) {
    struct timespec time = { 0, 200000000 };
    nanosleep(&time, NULL);
}

__attribute__((noinline)) void touches(size_t pages) {
    char *memory = malloc(pages * 4096);
    for (size_t page = 0; page < pages; page++)
        memory[page * 4096] = 1;
    free(memory);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    errno = 7;
    work(1000);
    tiny();
    if (errno != 7)
        return 2;
    if (strcmp(what, "jumps") == 0)
        jumps(5);
    else if (strcmp(what, "threads") == 0)
        threads();
    else if (strcmp(what, "forks") == 0)
        return forks();
    else if (strcmp(what, "plugin") == 0)
        plugin(arguments[2]);
    else if (strcmp(what, "killed") == 0)
        raise(SIGKILL);
    else if (strcmp(what, "waits") == 0)
        waits();
    else if (strcmp(what, "touches") == 0)
        for (int round = 1; round <= 10; round++) {
            touches(500);
            work(100000);
        }
    else if (strcmp(what, "many") == 0)
        for (int round = 0; round < 200000; round++)
            work(round % 3);
    return 0;
}
