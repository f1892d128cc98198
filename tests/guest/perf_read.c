/*
 * Reads a counter of its own through the kernel's perf, again and again: perf_read page|syscall COUNT.
 *
 * `page` is the sequence that linux/perf_event.h documents at struct perf_event_mmap_page, without the times, which a
 * counter that never shares its place does not need; `syscall` is read(2) of the descriptor, which remains for an event
 * under large PEBS. Compiled by `suite bench`, to be compared with tests/guest/src/bin/reads.rs.
 */
#include <linux/perf_event.h>
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

int main(int argc, char **argv)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_RAW, .size = sizeof(attr), .config = 0x81d0,
					.exclude_kernel = 1, .exclude_hv = 1 };
	volatile uint64_t sink;
	struct perf_event_mmap_page *page;
	unsigned long count, i;
	int fd;

	if (argc != 3 || (strcmp(argv[1], "page") && strcmp(argv[1], "syscall"))) {
		fprintf(stderr, "usage: perf_read page|syscall COUNT\n");
		return 2;
	}
	count = strtoul(argv[2], NULL, 10);
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (fd < 0) {
		perror("perf_event_open");
		return 1;
	}
	page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	if (!page->cap_user_rdpmc || !page->index) {
		fprintf(stderr, "perf_read: the kernel does not allow RDPMC\n");
		return 1;
	}
	if (!strcmp(argv[1], "page")) {
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
