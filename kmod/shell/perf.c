// SPDX-License-Identifier: GPL-2.0
/* The kernel's perf, which leaves the PMU to hpm: when it has done so, and how it is kept from writing there nonetheless. */
#include <linux/device.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/rcupdate.h>
#include <asm/msr.h>

#include "shim.h"

/* perf's PMUs of processor cores: one, or one for each type of core of a hybrid processor (arch/x86/events/intel/core.c). */
static const char *const hpm_perf_names[] = { "cpu", "cpu_core", "cpu_atom", "cpu_lowpower" };
static struct pmu *hpm_perf_pmus[ARRAY_SIZE(hpm_perf_names)];
static size_t hpm_perf_pmu_count;

/* What perf starts a CPU's PMU with, the same for all of these. */
static void (*hpm_perf_enable)(struct pmu *pmu);

/* hpm holds the CPU's PMU. */
static DEFINE_PER_CPU(bool, hpm_holds);

/* An event that counts nothing, on this CPU or of this task; to be released. */
static struct perf_event *hpm_idle_event(u32 type, u64 config, int cpu, struct task_struct *task, bool of_guests)
{
	struct perf_event_attr attr = {
		.type = type,
		.config = config,
		.size = sizeof(attr),
		.disabled = 1,
		.exclude_guest = !of_guests,
	};

	return perf_event_create_kernel_counter(&attr, cpu, task, NULL, NULL);
}

/*
 * Waits until perf has done with the counters that were reserved from it, and says whether it can have none now. When its last event
 * goes it gives the counters up first and its PEBS buffers afterwards (x86_release_hardware()), under a mutex that a new event takes.
 */
bool hpm_perf_is_out(void)
{
	struct perf_event *event = hpm_idle_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 0, NULL, false);

	if (IS_ERR(event))
		return true;
	perf_event_release_kernel(event);
	return false;
}

/*
 * Whether guests have the PMU for themselves while they run (KVM's mediated vPMU), which perf answers to who wants to count in them. To be
 * asked while perf can have counters.
 */
bool hpm_perf_is_mediated(void)
{
	struct perf_event *event = hpm_idle_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 0, NULL, true);

	if (IS_ERR(event))
		return PTR_ERR(event) == -EOPNOTSUPP;
	perf_event_release_kernel(event);
	return false;
}

/*
 * Finds perf's PMUs of cores, of which a processor that perf does not know has none. They are devices of one bus, which is no symbol, with
 * that of software events; and as long as the kernel runs.
 */
int hpm_find_perf(void)
{
	/* A thread's own, for which nobody has to have a right. */
	struct perf_event *event = hpm_idle_event(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, -1, current, true);
	struct device *software, *found;
	struct pmu *pmu;
	size_t i;

	if (IS_ERR(event))
		return PTR_ERR(event);
	software = event->pmu->dev;
	hpm_perf_pmu_count = 0;
	for (i = 0; software && i < ARRAY_SIZE(hpm_perf_names); i++) {
		found = bus_find_device_by_name(software->bus, NULL, hpm_perf_names[i]);
		if (!found)
			continue;
		pmu = dev_get_drvdata(found);
		hpm_perf_pmus[hpm_perf_pmu_count++] = pmu;
		hpm_perf_enable = pmu->pmu_enable;
		put_device(found);
	}
	perf_event_release_kernel(event);
	return software ? 0 : -ENODEV;
}

/*
 * perf stops and starts a CPU's PMU whenever it schedules events there, be they of software alone: once an event of hardware's has been
 * bound to the CPU, such as the NMI watchdog's, it thereby starts all counters, also hpm's. While hpm holds the PMU perf is left in the
 * belief that it has stopped it, and so does not stop it to schedule. It never has an event on it where its counters are reserved;
 * elsewhere it gets what it is about to use, and hpm sees it.
 */
static void hpm_enable(struct pmu *pmu)
{
	if (!__this_cpu_read(hpm_holds) || (*this_cpu_ptr(pmu->cpu_pmu_context))->active_oncpu)
		hpm_perf_enable(pmu);
}

static void hpm_set_enable(void (*enable)(struct pmu *pmu))
{
	size_t i;

	for (i = 0; i < hpm_perf_pmu_count; i++)
		WRITE_ONCE(hpm_perf_pmus[i]->pmu_enable, enable);
}

/* From now on perf asks hpm before it starts a PMU. */
void hpm_divert_perf(void)
{
	hpm_set_enable(hpm_enable);
}

/* Ends that; hpm holds no CPU's PMU. Nobody is in the function above afterwards: perf calls it with interrupts off. */
void hpm_restore_perf(void)
{
	hpm_set_enable(hpm_perf_enable);
	synchronize_rcu();
}

/* hpm has taken this CPU's PMU, which is stopped. With interrupts off. */
void hpm_hold_perf(void)
{
	size_t i;

	__this_cpu_write(hpm_holds, true);
	for (i = 0; i < hpm_perf_pmu_count; i++)
		hpm_perf_pmus[i]->pmu_disable(hpm_perf_pmus[i]);
}

/*
 * hpm has given this CPU's PMU back. perf starts it, as it had before, and finds what starts all counters (a register, or 0 where there is
 * none) as hpm had. With interrupts off.
 */
void hpm_release_perf(u32 starts)
{
	bool is_there;
	u64 found;
	size_t i;

	__this_cpu_write(hpm_holds, false);
	is_there = starts && !rdmsrq_safe(starts, &found);
	for (i = 0; i < hpm_perf_pmu_count; i++)
		hpm_perf_enable(hpm_perf_pmus[i]);
	if (is_there)
		wrmsrq_safe(starts, found);
}
