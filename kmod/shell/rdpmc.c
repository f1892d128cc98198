// SPDX-License-Identifier: GPL-2.0
/* RDPMC in user mode: who may use it, and that nobody reads or zeroes what others count. */
#include <linux/kthread.h>
#include <linux/pid_namespace.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/workqueue.h>
#include <asm/processor-flags.h>
#include <asm/special_insns.h>

#include "shim.h"

/* Far from where the number, which never falls again, could wrap. */
#define HPM_RDPMC_GRANTS_MAX (1 << 30)

/* As x86_pmu_event_mapped() does for an event that user space maps. `is_new`: nobody had it allowed before. */
struct mm_struct *hpm_rdpmc_allow(bool *is_new)
{
	struct mm_struct *mm = current->mm;

	*is_new = false;
	if (atomic_read(&mm->context.perf_rdpmc_allowed) < HPM_RDPMC_GRANTS_MAX)
		*is_new = atomic_inc_return(&mm->context.perf_rdpmc_allowed) == 1;
	return mm;
}

bool hpm_rdpmc_loaded(const struct mm_struct *mm)
{
	return current->active_mm == mm;
}

bool hpm_rdpmc_lacking(const struct mm_struct *mm)
{
	return hpm_rdpmc_loaded(mm) && !(__read_cr4() & X86_CR4_PCE);
}

/* The address space is loaded after the tracepoint; with the attribute rdpmc at 2, CR4.PCE is always set. */
bool hpm_rdpmc_may(const struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	return mm && (atomic_read(&mm->context.perf_rdpmc_allowed) || __read_cr4() & X86_CR4_PCE);
}

/* Loads an address space for a moment; `allowed`: as one that may use RDPMC. For a thread of the kernel's. */
static void hpm_use_mm(struct mm_struct *mm, bool allowed)
{
	atomic_add(allowed, &mm->context.perf_rdpmc_allowed);
	kthread_use_mm(mm);
	kthread_unuse_mm(mm);
	atomic_sub(allowed, &mm->context.perf_rdpmc_allowed);
}

/* The same with that of the first process. */
static void hpm_use_init_mm(bool allowed)
{
	struct task_struct *init;
	struct mm_struct *mm;

	rcu_read_lock();
	init = pid_task(find_pid_ns(1, &init_pid_ns), PIDTYPE_PID);
	if (init)
		get_task_struct(init);
	rcu_read_unlock();
	if (!init)
		return;
	mm = get_task_mm(init);
	put_task_struct(init);
	if (!mm)
		return;
	hpm_use_mm(mm, allowed);
	mmput(mm);
}

static long hpm_load_init_mm(void *unused)
{
	hpm_use_init_mm(false);
	return 0;
}

/* A worker on that CPU uses the address space of the first process for a moment. */
void hpm_load_another_mm(unsigned int cpu)
{
	work_on_cpu(cpu, hpm_load_init_mm, NULL);
}

static long hpm_load_allowed_mm(void *mm)
{
	/* The kernel looks only when the address space is another one than before. */
	hpm_use_init_mm(false);
	hpm_use_mm(mm, true);
	/* Takes CR4.PCE back. */
	hpm_use_init_mm(false);
	return 0;
}

/*
 * perf notes in which counters its past events have left values, and zeroes those when an address space that may use RDPMC
 * is next loaded on the CPU (perf_clear_dirty_counters()), whoever counts with them by then. This has it done now.
 */
void hpm_zero_leftovers(unsigned int cpu)
{
	if (current->mm)
		work_on_cpu(cpu, hpm_load_allowed_mm, current->mm);
}

/*
 * The same on a CPU that comes online, by its own thread for that: no program has run there yet, so that it has no other address space
 * loaded than the kernel's. The first process may use RDPMC there until the next one is loaded, of which hpm_rdpmc_may() knows.
 */
void hpm_zero_leftovers_here(void)
{
	hpm_use_init_mm(true);
}
