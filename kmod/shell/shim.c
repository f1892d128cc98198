// SPDX-License-Identifier: GPL-2.0
/*
 * The part of hpm that must be C. No decision is taken here: each function is one kernel macro, inline function or
 * callback signature made reachable for shell/sys.rs.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/fs.h>
#include <linux/irqflags.h>
#include <linux/lockdep.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/perf_event.h>
#include <linux/pid_namespace.h>
#include <linux/reboot.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/task_stack.h>
#include <linux/topology.h>
#include <linux/version.h>
#include <asm/apic.h>
#include <asm/cpu_entry_area.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/tsc.h>

#include "shim.h"

#ifdef CONFIG_PREEMPT_RT
#error "hpm takes spin locks with interrupts off, which PREEMPT_RT makes sleep"
#endif

unsigned long hpm_interrupts_save(void)
{
	unsigned long flags;

	local_irq_save(flags);
	return flags;
}

void hpm_interrupts_restore(unsigned long flags)
{
	local_irq_restore(flags);
}

void hpm_interrupts_assert_off(void)
{
	lockdep_assert_irqs_disabled();
}

int hpm_rdmsr(u32 msr, u64 *value)
{
	return rdmsrq_safe(msr, value);
}

int hpm_wrmsr(u32 msr, u64 value)
{
	return wrmsrq_safe(msr, value);
}

u64 hpm_rdpmc(u32 counter)
{
	return rdpmc(counter);
}

/* apic_read() and apic_write() are static calls whose keys are not exported; the driver table behind them is. */
u32 hpm_lvtpc_read(void)
{
	return apic->read(APIC_LVTPC);
}

void hpm_lvtpc_write(u32 value)
{
	apic->write(APIC_LVTPC, value);
}

/* Another logical processor of the CPU's core; at least nr_cpu_ids when it has none. */
u32 hpm_sibling(u32 cpu)
{
	return cpumask_any_but(topology_sibling_cpumask(cpu), cpu);
}

/* An entry of the extended local vector table, which AMD's local APICs have (AMD64 APM Vol. 2, 16.4). */
u32 hpm_eilvt_read(u32 number)
{
	return apic->read(APIC_EILVTn(number));
}

int hpm_reserve_perfctr(u32 msr)
{
	return reserve_perfctr_nmi(msr);
}

void hpm_release_perfctr(u32 msr)
{
	release_perfctr_nmi(msr);
}

int hpm_reserve_evntsel(u32 msr)
{
	return reserve_evntsel_nmi(msr);
}

void hpm_release_evntsel(u32 msr)
{
	release_evntsel_nmi(msr);
}

bool hpm_cpu_has_pti(void)
{
	return boot_cpu_has(X86_FEATURE_PTI);
}

bool hpm_cpu_has_pebs(void)
{
	return boot_cpu_has(X86_FEATURE_PEBS);
}

u32 hpm_cpu_microcode(void)
{
	return boot_cpu_data.microcode;
}

int hpm_register_reboot(struct notifier_block *block)
{
	return register_reboot_notifier(block);
}

int hpm_unregister_reboot(struct notifier_block *block)
{
	return unregister_reboot_notifier(block);
}

bool hpm_perfmon_capable(void)
{
	return perfmon_capable();
}

int hpm_allow_kernel(void)
{
	return perf_allow_kernel();
}

int hpm_allow_cpu(void)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
	/* There it is an inline function of what is not exported; the nearest right that modules may ask for is stricter. */
	return perfmon_capable() ? perf_allow_kernel() : -EACCES;
#else
	return perf_allow_cpu();
#endif
}

/* An inline function in a kernel without security modules. */
int hpm_locked_down(enum lockdown_reason what)
{
	return security_locked_down(what);
}

/* Whether this folder of procfs is /proc/PID: nothing renames it, and only the kernel makes folders at the root. */
static bool hpm_is_process(const struct dentry *folder)
{
	const unsigned char *name = folder->d_name.name;

	return folder->d_parent == folder->d_sb->s_root && *name >= '0' && *name <= '9';
}

/*
 * The address space that an open /proc/PID/environ or /proc/PID/task/TID/environ shows (environ_open() in fs/proc/base.c), NULL
 * for any other file. The file holds it, and with it its dentry and those above. The name alone would not do: other files of procfs
 * have names that users choose, such as /proc/net/dev_snmp6/INTERFACE, and their private data is something else.
 */
struct mm_struct *hpm_environ_mm(struct file *file)
{
	const struct dentry *dentry = file->f_path.dentry;
	const struct dentry *above;

	if (dentry->d_sb->s_magic != PROC_SUPER_MAGIC || strcmp(dentry->d_name.name, "environ"))
		return NULL;
	/* Folders of procfs are not renamed, so that those above stay. */
	above = dentry->d_parent->d_parent;
	if (!hpm_is_process(dentry->d_parent) &&
	    (strcmp(above->d_name.name, "task") || !hpm_is_process(above->d_parent)))
		return NULL;
	return file->private_data;
}

bool hpm_cgroup_has_task(struct cgroup *cgroup, struct task_struct *task)
{
	guard(rcu)();
	return task_under_cgroup_hierarchy(task, cgroup);
}

bool hpm_cgroup_encloses(struct cgroup *cgroup, struct cgroup *other)
{
	return cgroup_is_descendant(other, cgroup);
}

void hpm_cgroup_put(struct cgroup *cgroup)
{
	cgroup_put(cgroup);
}

struct cgroup *hpm_cgroup_get(int fd)
{
	struct cgroup *cgroup = cgroup_get_from_fd(fd);

	return IS_ERR(cgroup) ? NULL : cgroup;
}

/*
 * Whether task_pt_regs() has the registers with which the task last left its user mode. In execve they are those with which the new
 * program is to begin, whose addresses are not the measured one's, and may be of a program that its user must not see into.
 */
static bool hpm_has_user_registers(struct task_struct *task)
{
	return !(task->flags & (PF_KTHREAD | PF_USER_WORKER)) && !task->in_execve;
}

u64 hpm_user_ip(struct task_struct *task)
{
	return hpm_has_user_registers(task) ? task_pt_regs(task)->ip : 0;
}

/*
 * Whether task_pt_regs() has the registers with which the thread that an NMI interrupted in the kernel came there. The kernel's
 * entry code begins with the user's stack pointer (SYSCALL) or on the CPU's entry stack (interrupts and exceptions), and
 * saves them only then (arch/x86/entry/entry_64.S): until it has, those of the entry before are there.
 */
static bool hpm_user_saved(struct pt_regs *regs, struct pt_regs *user)
{
	struct entry_stack *entry = cpu_entry_stack(smp_processor_id());

	if (regs->sp < TASK_SIZE_MAX)
		return false;
	if (regs->sp > (unsigned long)entry && regs->sp <= (unsigned long)(entry + 1))
		return false;
	/* The NMI may have interrupted their being saved (perf_get_regs_user() in arch/x86/kernel/perf_regs.c). */
	return regs->sp <= (unsigned long)&user->r11 || regs->sp > (unsigned long)(user + 1);
}

/*
 * The registers that an NMI interrupted, or with user_only those with which the current thread last entered the kernel;
 * 18 of them, in the order of a PEBS record (SDM Vol. 3B, table 20-3). regs is NULL outside the NMI.
 */
bool hpm_registers(struct pt_regs *regs, bool user_only, u64 *to)
{
	if (user_only && (!regs || !user_mode(regs))) {
		struct pt_regs *user = task_pt_regs(current);

		if (!hpm_has_user_registers(current))
			return false;
		if (regs && !hpm_user_saved(regs, user))
			return false;
		regs = user;
	}
	if (!regs)
		return false;
	*to++ = regs->flags;
	*to++ = regs->ip;
	*to++ = regs->ax;
	*to++ = regs->bx;
	*to++ = regs->cx;
	*to++ = regs->dx;
	*to++ = regs->si;
	*to++ = regs->di;
	*to++ = regs->bp;
	*to++ = regs->sp;
	*to++ = regs->r8;
	*to++ = regs->r9;
	*to++ = regs->r10;
	*to++ = regs->r11;
	*to++ = regs->r12;
	*to++ = regs->r13;
	*to++ = regs->r14;
	*to++ = regs->r15;
	return true;
}

void *hpm_block_alloc(size_t bytes, bool insist)
{
	return alloc_pages_exact(bytes,
				 GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | (insist ? 0 : __GFP_NORETRY));
}

struct page *hpm_page_of(void *address)
{
	return virt_to_page(address);
}

u64 hpm_physical(void *address)
{
	return virt_to_phys(address);
}

bool hpm_page_mapped(struct page *page)
{
	return page_ref_count(page) > 1;
}

bool hpm_find_thread(pid_t nr, u32 *tgid, u32 *tid)
{
	struct task_struct *task;

	rcu_read_lock();
	task = nr ? pid_task(find_vpid(nr), PIDTYPE_PID) : current;
	if (task) {
		*tgid = task->tgid;
		*tid = task->pid;
	}
	rcu_read_unlock();
	return task;
}

/*
 * The CPU of a thread that has not ended; with `running`, only while it is on it. The scheduler clears `on_cpu` with release semantics after
 * the switch probe has seen the thread leave, so that who finds it cleared also finds what the probe has written.
 */
int hpm_cpu_of(u32 tid, bool running)
{
	struct task_struct *task;
	int cpu;

	rcu_read_lock();
	task = pid_task(find_pid_ns(tid, &init_pid_ns), PIDTYPE_PID);
	cpu = task && !READ_ONCE(task->exit_state) ? task_cpu(task) : -ESRCH;
	if (task && running && !smp_load_acquire(&task->on_cpu))
		cpu = -ESRCH;
	rcu_read_unlock();
	return cpu;
}
