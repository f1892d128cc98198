/* Allocates in every way there is, and prints what it got: `NAME ADDRESS SIZE`, and `free ADDRESS` for what it freed. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[1 << 20];
static size_t used;

/* printf allocates. */
static void say(const char *name, void *memory, size_t size)
{
	used += snprintf(text + used, sizeof text - used, "%s %p %zu\n", name, memory, size);
}

static void say_all(void)
{
	size_t done = 0;
	while (done < used)
		done += write(1, text + done, used - done);
	used = 0;
}

static int rounds = 20000;

static void *thread(void *unused)
{
	(void)unused;
	for (int round = 0; round < rounds; round++)
		free(malloc(round % 300 + 1));
	return malloc(77);
}

__attribute__((noinline)) static void ways(void)
{
	void *memory;
	say("malloc", malloc(100), 100);
	say("calloc", calloc(10, 7), 70);
	say("aligned_alloc", aligned_alloc(256, 512), 512);
	say("memalign", memalign(128, 33), 33);
	say("valloc", valloc(5000), 5000);
	if (posix_memalign(&memory, 64, 99))
		abort();
	say("posix_memalign", memory, 99);
	memory = malloc(24);
	memory = realloc(memory, 100000);
	say("realloc", memory, 100000);
	say("reallocarray", reallocarray(NULL, 3, 40), 120);
	say("strdup", strdup("four"), 5);
	memory = malloc(4321);
	say("malloc", memory, 4321);
	free(memory);
	say("free", memory, 0);
	/* Impossible ones do no harm. */
	free(NULL);
	volatile size_t huge = (size_t)-1 / 2;
	if (malloc(huge) || realloc(NULL, huge) || reallocarray(NULL, huge, huge))
		abort();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (argc > 2)
		rounds = atoi(argv[2]);
	if (!strcmp(what, "threads")) {
		pthread_t threads[8];
		for (int round = 0; round < 20; round++) {
			for (int number = 0; number < 8; number++)
				pthread_create(&threads[number], NULL, thread, NULL);
			for (int number = 0; number < 8; number++) {
				void *memory;
				pthread_join(threads[number], &memory);
				say("malloc", memory, 77);
			}
		}
	} else if (!strcmp(what, "fork")) {
		void *memory = malloc(1234);
		say("malloc", memory, 1234);
		if (!fork()) {
			free(memory);
			used = 0;
			say("malloc", malloc(555), 555);
			say_all();
			_exit(0);
		}
		wait(NULL);
	} else if (!strcmp(what, "exec")) {
		malloc(99);
		execl("/proc/self/exe", "programs", "ways", NULL);
	} else {
		ways();
	}
	say_all();
	if (!strcmp(what, "killed"))
		raise(SIGKILL);
	return 0;
}
