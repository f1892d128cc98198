/*
 * Reads a counter through the kernel's perf, again and again, as tests/guest/src/bin/reads.rs does through hpm:
 * perf_read page|pebs|other COUNT.
 *
 * `page`: its own, by the sequence that linux/perf_event.h documents at struct perf_event_mmap_page, without the times,
 * which a counter that never shares its place does not need. `pebs`: by read(2), which remains for an event under large
 * PEBS. `other`: that of a thread that sleeps, by read(2). Compiled by `suite bench`.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define barrier() __asm__ volatile("" ::: "memory")

static inline uint64_t rdpmc(uint32_t counter)
{
	uint32_t low, high;

	__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(counter));
	return low | (uint64_t)high << 32;
}

static inline uint64_t read_page(const volatile struct perf_event_mmap_page *page)
{
	uint64_t count;
	uint32_t sequence, index;

	do {
		sequence = page->lock;
		barrier();
		index = page->index;
		count = page->offset;
		if (page->cap_user_rdpmc && index) {
			unsigned int unused = 64 - page->pmc_width;

			count += (int64_t)(rdpmc(index - 1) << unused) >> unused;
		}
		barrier();
	} while (page->lock != sequence);
	return count;
}

static volatile pid_t sleeper;

static void *sleep_for_ever(void *unused)
{
	sleeper = gettid();
	for (;;)
		pause();
	return unused;
}

static pid_t start_sleeper(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, sleep_for_ever, NULL)) {
		fprintf(stderr, "perf_read: no thread\n");
		exit(1);
	}
	while (!sleeper)
		usleep(1000);
	return sleeper;
}

int main(int argc, char **argv)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_RAW, .size = sizeof(attr), .config = 0x81d0,
					.exclude_kernel = 1, .exclude_hv = 1 };
	struct perf_event_mmap_page *page;
	volatile uint64_t sink;
	unsigned long count, i;
	int fd, pebs;
	pid_t thread = 0;

	if (argc != 3 || (strcmp(argv[1], "page") && strcmp(argv[1], "pebs") && strcmp(argv[1], "other"))) {
		fprintf(stderr, "usage: perf_read page|pebs|other COUNT\n");
		return 2;
	}
	count = strtoul(argv[2], NULL, 10);
	pebs = !strcmp(argv[1], "pebs");
	if (pebs) {
		/* What large PEBS asks for: a fixed period, and nothing in the sample that a record lacks. */
		attr.precise_ip = 2;
		attr.sample_period = 1000003;
		attr.sample_type = PERF_SAMPLE_IP;
		attr.watermark = 1;
	} else if (!strcmp(argv[1], "other")) {
		thread = start_sleeper();
	}
	fd = syscall(SYS_perf_event_open, &attr, thread, -1, -1, 0);
	if (fd < 0) {
		perror("perf_event_open");
		return 1;
	}
	page = mmap(NULL, (pebs ? 129 : 1) * sysconf(_SC_PAGESIZE), PROT_READ | (pebs ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	if (!strcmp(argv[1], "page")) {
		if (!page->cap_user_rdpmc || !page->index) {
			fprintf(stderr, "perf_read: the kernel does not allow RDPMC\n");
			return 1;
		}
		for (i = 0; i < count; i++)
			sink = read_page(page);
	} else {
		uint64_t value;

		for (i = 0; i < count; i++) {
			if (read(fd, &value, sizeof(value)) != sizeof(value))
				return 1;
			sink = value;
		}
	}
	(void)sink;
	return 0;
}
