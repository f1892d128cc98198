// SPDX-License-Identifier: GPL-2.0
/*
 * Where the kernel calls hpm: a timer, the NMI, tracepoints of the scheduler and of control groups, and sleep. The callbacks hand over to shell/clock.rs,
 * shell/probes.rs and shell/notify.rs.
 */
#include <linux/binfmts.h>
#include <linux/cgroup.h>
#include <linux/device.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/pm.h>
#include <linux/pm_domain.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/smp.h>
#if __has_include(<linux/sched/exec_state.h>)
#define HPM_HAS_EXEC_STATE
#include <linux/sched/exec_state.h>
#endif
#include <linux/tracepoint.h>
#include <asm/nmi.h>

#include "shim.h"

static enum hrtimer_restart hpm_timer_entry(struct hrtimer *timer)
{
	return hpm_on_timer(timer) ? HRTIMER_RESTART : HRTIMER_NORESTART;
}

void hpm_timer_setup(struct hrtimer *timer)
{
	hrtimer_setup(timer, hpm_timer_entry, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
}

/* From the timer's own callback: to start it there would take it out of its queue, look for its CPU and program the clock each time. */
void hpm_timer_go_on(struct hrtimer *timer, u64 soonest_ns, u64 range_ns)
{
	hrtimer_set_expires_range_ns(timer, ktime_add_ns(ktime_get(), soonest_ns), range_ns);
}

static int hpm_sleep(struct device *device)
{
	return hpm_on_sleep() ? 0 : -EBUSY;
}

static int hpm_wake(struct device *device)
{
	hpm_on_wake();
	return 0;
}

/*
 * A device of its own class would have a driver or a bus for that; that of a misc device has neither. Between its callbacks no program runs, so
 * that nothing of user mode is missed.
 */
static struct dev_pm_domain hpm_sleep_domain = {
	.ops = { SYSTEM_SLEEP_PM_OPS(hpm_sleep, hpm_wake) },
};

void hpm_follow_sleep(struct device *device)
{
	device_lock(device);
	dev_pm_domain_set(device, &hpm_sleep_domain);
	device_unlock(device);
}

void hpm_ignore_sleep(struct device *device)
{
	device_lock(device);
	dev_pm_domain_set(device, NULL);
	device_unlock(device);
}

static int hpm_nmi_entry(unsigned int type, struct pt_regs *regs)
{
	return hpm_on_nmi(regs) ? NMI_HANDLED : NMI_DONE;
}

int hpm_nmi_register(void)
{
	return register_nmi_handler(NMI_LOCAL, hpm_nmi_entry, NMI_FLAG_FIRST, "hpm");
}

void hpm_nmi_unregister(void)
{
	unregister_nmi_handler(NMI_LOCAL, "hpm");
}

static void hpm_probe_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
			     unsigned int prev_state)
{
	hpm_on_switch(preempt, prev, next, prev_state);
}

static void hpm_probe_exit(void *data, struct task_struct *task, bool group_dead)
{
	hpm_on_exit(task, group_dead);
}

static void hpm_probe_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	hpm_on_fork(parent, child);
}

/* Whether the current task's user may look into its program, by which perf decides in begin_new_exec(). */
bool hpm_is_open_to_owner(struct task_struct *task)
{
#ifdef HPM_HAS_EXEC_STATE
	guard(rcu)();
	return READ_ONCE(rcu_dereference(task->exec_state)->dumpable) == TASK_DUMPABLE_OWNER;
#else
	return get_dumpable(task->mm) == SUID_DUMP_USER;
#endif
}

static void hpm_probe_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	/* Not dumpable either is who has got capabilities back. */
	bool secure = bprm->secureexec || (bprm->interp_flags & BINPRM_FLAGS_ENFORCE_NONDUMP) ||
		      !hpm_is_open_to_owner(task);

	hpm_on_exec(task, old_pid, secure);
}

/* Before the new rights are there, and before the kernel handles the new program's addresses. From here on execve succeeds or kills. */
static void hpm_probe_prepare_exec(void *data, struct task_struct *task, struct linux_binprm *bprm)
{
	if (bprm->secureexec)
		hpm_on_secure_exec(task);
}

static void hpm_regroup(void *unused)
{
	/* Who finds this call not answered yet relies on the groups being read after it is. */
	smp_mb();
	hpm_on_regroup();
}

static DEFINE_PER_CPU(call_single_data_t, hpm_regroup_call) = CSD_INIT(hpm_regroup, NULL);

/*
 * Tasks have come into another control group, and perhaps run on. Called under a spin lock with interrupts off, so that CPUs can be told,
 * but not waited for. One that has yet to answer an earlier call will see this move, too, and one that is offline runs nobody.
 */
static void hpm_probe_attach(void *data, struct cgroup *group, const char *path, struct task_struct *task, bool threadgroup)
{
	int cpu;

	if (!hpm_measures_groups())
		return;
	for_each_online_cpu(cpu)
		smp_call_function_single_async(cpu, per_cpu_ptr(&hpm_regroup_call, cpu));
}

static void hpm_nothing(void *unused)
{
}

/* The scheduler's tracepoints are not exported one by one, but every tracepoint of the kernel can be visited. */
static struct hpm_probe {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
} hpm_probes[] = {
	{ "sched_process_fork", hpm_probe_fork },
	{ "sched_prepare_exec", hpm_probe_prepare_exec },
	{ "sched_process_exec", hpm_probe_exec },
	{ "sched_process_exit", hpm_probe_exit },
	{ "sched_switch", hpm_probe_switch },
	{ "cgroup_attach_task", hpm_probe_attach },
};

static void hpm_probe_match(struct tracepoint *tracepoint, void *data)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hpm_probes); i++)
		if (!strcmp(tracepoint->name, hpm_probes[i].name))
			hpm_probes[i].tracepoint = tracepoint;
}

static bool hpm_probes_found(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hpm_probes); i++)
		if (!hpm_probes[i].tracepoint)
			return false;
	return true;
}

int hpm_probes_find(void)
{
	/* The kernel's own tracepoints stay where they are: there are thousands of names, so they are looked for once. */
	if (!hpm_probes_found())
		for_each_kernel_tracepoint(hpm_probe_match, NULL);
	return hpm_probes_found() ? 0 : -ENOENT;
}

static void hpm_probes_unregister_first(unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(hpm_probes[count].tracepoint, hpm_probes[count].probe, NULL);
	tracepoint_synchronize_unregister();
	/*
	 * What a probe has asked for is done: a CPU answers those that are waited for before the others, but all that it has at a time before
	 * those that come later.
	 */
	on_each_cpu(hpm_nothing, NULL, true);
	on_each_cpu(hpm_nothing, NULL, true);
}

int hpm_probes_register(void)
{
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(hpm_probes); i++) {
		ret = tracepoint_probe_register(hpm_probes[i].tracepoint, hpm_probes[i].probe, NULL);
		if (ret) {
			hpm_probes_unregister_first(i);
			return ret;
		}
	}
	return 0;
}

void hpm_probes_unregister(void)
{
	hpm_probes_unregister_first(ARRAY_SIZE(hpm_probes));
}
