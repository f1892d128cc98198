// SPDX-License-Identifier: GPL-2.0
/* The kernel's perf, which leaves the PMU to hpm: when it has done so, and how it is kept from writing there nonetheless. */
#include <linux/device.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>

#include "shim.h"

/* perf's PMUs of processor cores: one, or one for each type of core of a hybrid processor (arch/x86/events/intel/core.c). */
static const char *const hpm_perf_names[] = { "cpu", "cpu_core", "cpu_atom", "cpu_lowpower" };
static struct pmu *hpm_perf_pmus[ARRAY_SIZE(hpm_perf_names)];

/*
 * Waits until perf has done with the counters that were reserved from it, and says whether it can have none now. When its last event
 * goes it gives the counters up first and its PEBS buffers afterwards (x86_release_hardware()), under a mutex that a new event takes.
 */
bool hpm_perf_is_out(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.size = sizeof(attr),
		.disabled = 1,
	};
	struct perf_event *event = perf_event_create_kernel_counter(&attr, 0, NULL, NULL, NULL);

	if (IS_ERR(event))
		return true;
	perf_event_release_kernel(event);
	return false;
}

/*
 * Finds perf's PMUs of cores, of which a processor that perf does not know has none. They are devices of one bus, which is no symbol, with
 * that of software events; and as long as the kernel runs.
 */
int hpm_find_perf(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.size = sizeof(attr),
		.disabled = 1,
	};
	struct perf_event *event = perf_event_create_kernel_counter(&attr, 0, NULL, NULL, NULL);
	struct device *software, *found;
	size_t i;

	if (IS_ERR(event))
		return PTR_ERR(event);
	software = event->pmu->dev;
	for (i = 0; software && i < ARRAY_SIZE(hpm_perf_names); i++) {
		found = bus_find_device_by_name(software->bus, NULL, hpm_perf_names[i]);
		if (!found)
			continue;
		hpm_perf_pmus[i] = dev_get_drvdata(found);
		put_device(found);
	}
	perf_event_release_kernel(event);
	return 0;
}

/*
 * perf stops and starts a CPU's PMU whenever it schedules events on it, be they of software alone: once an event of hardware's has been
 * bound to the CPU, such as the NMI watchdog's, it starts all counters then, also hpm's. What perf_pmu_disable() counts, by which perf
 * knows that it has stopped the PMU already and somebody will start it, keeps it from both. With interrupts off, as perf stops and starts.
 */
static void hpm_perf_count(int by)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hpm_perf_pmus); i++) {
		if (hpm_perf_pmus[i])
			(*this_cpu_ptr(hpm_perf_pmus[i]->cpu_pmu_context))->pmu_disable_count += by;
	}
}

/* Keeps perf from writing this CPU's PMU, of which it has no counter. With interrupts off. */
void hpm_hold_perf(void)
{
	hpm_perf_count(1);
}

/* Ends what hpm_hold_perf() has begun on this CPU. With interrupts off. */
void hpm_release_perf(void)
{
	hpm_perf_count(-1);
}
