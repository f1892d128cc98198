/*
 * The least that a user of the kernel's perf does to measure a program, as hpmctl stat and tests/guest/src/bin/consume.rs do
 * by hpm: perf_measure count|ip|address PERIOD PROGRAM...
 *
 * `count`: four events of the program and its children, counted; PERIOD is not used. `ip`, `address`: samples the program's
 * loads under large PEBS (a fixed period, and nothing in the sample that a record lacks), looks at every sample in perf's
 * mapped buffer, and prints how many there were; `ip` of the instruction pointer alone, the least that perf can write,
 * `address` with thread, time and data address too. Compiled by `suite bench`.
 */
#include <linux/perf_event.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* perf record's default. */
#define DATA_PAGES 128

static uint64_t samples, lost, sum;

static void take(struct perf_event_mmap_page *page, const char *data, uint64_t size)
{
	uint64_t tail = page->data_tail;
	uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);

	while (tail != head) {
		/* Records are multiples of 8 bytes, so that no word lies across the buffer's end. */
		const struct perf_event_header *header = (const void *)(data + tail % size);

		if (header->type == PERF_RECORD_SAMPLE) {
			samples++;
			sum += *(const uint64_t *)(data + (tail + sizeof(*header)) % size);
		} else if (header->type == PERF_RECORD_LOST) {
			lost += *(const uint64_t *)(data + (tail + sizeof(*header) + 8) % size);
		}
		tail += header->size;
	}
	__atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
}

/* Of the child, from its execve on. */
static int open_event(struct perf_event_attr *attr, pid_t child)
{
	int fd;

	attr->size = sizeof(*attr);
	attr->exclude_kernel = attr->exclude_hv = attr->disabled = attr->enable_on_exec = 1;
	fd = syscall(SYS_perf_event_open, attr, child, -1, -1, 0);
	if (fd < 0) {
		perror("perf_event_open");
		exit(1);
	}
	return fd;
}

/* Instructions, branches, loads and stores, as perf stat opens them. */
static void count(pid_t child, int go)
{
	static const struct { uint32_t type; uint64_t config; } events[] = {
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
		{ PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS },
		{ PERF_TYPE_RAW, 0x81d0 },
		{ PERF_TYPE_RAW, 0x82d0 },
	};
	uint64_t value[3];
	int fds[4], i;

	for (i = 0; i < 4; i++) {
		struct perf_event_attr attr = { .type = events[i].type, .config = events[i].config, .inherit = 1,
						.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED |
							       PERF_FORMAT_TOTAL_TIME_RUNNING };

		fds[i] = open_event(&attr, child);
	}
	if (write(go, "x", 1) != 1)
		exit(1);
	waitpid(child, NULL, 0);
	for (i = 0; i < 4; i++) {
		if (read(fds[i], value, sizeof(value)) != sizeof(value) || value[1] != value[2]) {
			fprintf(stderr, "perf_measure: event %d was not counted all the time\n", i);
			exit(1);
		}
		printf("%llu\n", (unsigned long long)value[0]);
	}
}

static void sample(int with_address, uint64_t period, pid_t child, int go)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_RAW, .config = 0x81d0, .precise_ip = 2, .watermark = 1,
					.sample_period = period, .sample_type = PERF_SAMPLE_IP };
	uint64_t page_size = sysconf(_SC_PAGESIZE);
	struct perf_event_mmap_page *page;
	struct pollfd poll_fd = { .events = POLLIN };

	if (with_address)
		attr.sample_type |= PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR;
	poll_fd.fd = open_event(&attr, child);
	page = mmap(NULL, (1 + DATA_PAGES) * page_size, PROT_READ | PROT_WRITE, MAP_SHARED, poll_fd.fd, 0);
	if (page == MAP_FAILED || write(go, "x", 1) != 1) {
		perror("perf_measure");
		exit(1);
	}
	while (waitpid(child, NULL, WNOHANG) == 0) {
		poll(&poll_fd, 1, 100);
		take(page, (const char *)page + page_size, DATA_PAGES * page_size);
	}
	take(page, (const char *)page + page_size, DATA_PAGES * page_size);
	printf("%llu samples, sum %#llx, %llu lost\n", (unsigned long long)samples, (unsigned long long)sum,
	       (unsigned long long)lost);
}

int main(int argc, char **argv)
{
	int go[2];
	pid_t child;

	if (argc < 4 || (strcmp(argv[1], "count") && strcmp(argv[1], "ip") && strcmp(argv[1], "address"))) {
		fprintf(stderr, "usage: perf_measure count|ip|address PERIOD PROGRAM...\n");
		return 2;
	}
	if (pipe(go) || (child = fork()) < 0) {
		perror("perf_measure");
		return 1;
	}
	if (child == 0) {
		char byte;

		close(go[1]);
		if (read(go[0], &byte, 1) == 1)
			execv(argv[3], argv + 3);
		_exit(127);
	}
	if (!strcmp(argv[1], "count"))
		count(child, go[1]);
	else
		sample(!strcmp(argv[1], "address"), strtoull(argv[2], NULL, 10), child, go[1]);
	return 0;
}
