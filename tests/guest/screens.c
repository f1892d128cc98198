/* A program with phases, for pictures of hpmtop: two threads that walk a list, calculate, and touch fresh memory in turns, 40 ms
 * of each unless said otherwise, by the clock, so that the phases are as long on every machine. Where there is one CPU it should let others
 * go first, or the screen that shows it is behind it.
 *
 *     screens SECONDS [MILLISECONDS [NICE]]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 20000, FRESH_BYTES = 1 << 18 };

struct item { long value; long rest[3]; };
struct node { struct node *next; struct item *item; long payload[4]; };

static struct node *list;
static volatile long result;
static long until_ms, phase_ms = 40;

static long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((noipa)) static long walk(struct node *node, long steps)
{
	long sum = 0;
	while (steps--) {
		sum += node->item->value;
		node = node->next;
	}
	return sum;
}

__attribute__((noipa)) static long calculate(long steps)
{
	unsigned long state = 88172645463325252u;
	while (steps--) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
	}
	return state;
}

__attribute__((noipa)) static long touch_fresh_memory(void)
{
	char *memory = mmap(NULL, FRESH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	for (long at = 0; at < FRESH_BYTES; at += 4096)
		memory[at] = 1;
	munmap(memory, FRESH_BYTES);
	return memory != NULL;
}

static void *work(void *unused)
{
	for (long now = now_ms(); now < until_ms; now = now_ms()) {
		switch (now / phase_ms % 3) {
		case 0: result += walk(list, 2000); break;
		case 1: result += calculate(20000); break;
		default: result += touch_fresh_memory(); break;
		}
	}
	return unused;
}

/* A ring in an order that no prefetcher follows. */
static void make_list(void)
{
	struct node **nodes = calloc(NODES, sizeof *nodes);
	for (long n = 0; n < NODES; n++) {
		nodes[n] = calloc(1, sizeof *nodes[n]);
		nodes[n]->item = calloc(1, sizeof *nodes[n]->item);
	}
	for (long n = 0; n < NODES; n++)
		nodes[n * 7919 % NODES]->next = nodes[(n + 1) * 7919 % NODES];
	list = nodes[0];
	free(nodes);
}

int main(int count, char **words)
{
	pthread_t other;
	until_ms = now_ms() + (long)(1000 * (count > 1 ? atof(words[1]) : 10));
	if (count > 2 && atol(words[2]) > 0)
		phase_ms = atol(words[2]);
	if (count > 3 && nice(atoi(words[3])) < 0)
		perror("nice");
	make_list();
	if (pthread_create(&other, NULL, work, NULL))
		return 1;
	work(NULL);
	return pthread_join(other, NULL);
}
