// SPDX-License-Identifier: GPL-2.0
/* The kernel's perf, which leaves the PMU to hpm: when it has done so, and how it is kept from writing there nonetheless. */
#include <linux/device.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/rcupdate.h>

#include "shim.h"

/* perf's PMUs of processor cores: one, or one for each type of core of a hybrid processor (arch/x86/events/intel/core.c). */
static const char *const hpm_perf_names[] = { "cpu", "cpu_core", "cpu_atom", "cpu_lowpower" };
static struct pmu *hpm_perf_pmus[ARRAY_SIZE(hpm_perf_names)];

/* What perf stops and starts a CPU's PMU with, the same for all of these. */
static void (*hpm_perf_disable)(struct pmu *pmu);
static void (*hpm_perf_enable)(struct pmu *pmu);

/* hpm holds the CPU's PMU. */
static DEFINE_PER_CPU(bool, hpm_holds);

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
		hpm_perf_disable = hpm_perf_pmus[i]->pmu_disable;
		hpm_perf_enable = hpm_perf_pmus[i]->pmu_enable;
		put_device(found);
	}
	perf_event_release_kernel(event);
	return 0;
}

/*
 * perf stops and starts a CPU's PMU whenever it schedules events there, be they of software alone: once an event of hardware's has been
 * bound to the CPU, such as the NMI watchdog's, it thereby starts all counters, also hpm's. It is kept from both while hpm holds the PMU
 * and perf has no event on it. It never has where its counters are reserved; elsewhere it must get what it is about to use, for which
 * it believes that it has stopped the PMU.
 */
static bool hpm_keeps_out(struct pmu *pmu)
{
	return __this_cpu_read(hpm_holds) && !(*this_cpu_ptr(pmu->cpu_pmu_context))->active_oncpu;
}

static void hpm_disable(struct pmu *pmu)
{
	if (!hpm_keeps_out(pmu))
		hpm_perf_disable(pmu);
}

static void hpm_enable(struct pmu *pmu)
{
	if (hpm_keeps_out(pmu))
		return;
	/* Nothing if it was not kept from it. */
	hpm_perf_disable(pmu);
	hpm_perf_enable(pmu);
}

static void hpm_set_callbacks(void (*disable)(struct pmu *pmu), void (*enable)(struct pmu *pmu))
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hpm_perf_pmus); i++) {
		if (hpm_perf_pmus[i]) {
			WRITE_ONCE(hpm_perf_pmus[i]->pmu_disable, disable);
			WRITE_ONCE(hpm_perf_pmus[i]->pmu_enable, enable);
		}
	}
}

/* From now on perf asks hpm. */
void hpm_divert_perf(void)
{
	hpm_set_callbacks(hpm_disable, hpm_enable);
}

/* Ends that; hpm holds no CPU's PMU. Nobody is in the functions above afterwards: perf calls them with interrupts off. */
void hpm_restore_perf(void)
{
	hpm_set_callbacks(hpm_perf_disable, hpm_perf_enable);
	synchronize_rcu();
}

/* Whether hpm holds this CPU's PMU. With interrupts off. */
void hpm_hold_perf(bool holds)
{
	__this_cpu_write(hpm_holds, holds);
}
