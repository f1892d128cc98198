/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What hpm needs of Linux and no Rust abstraction or binding offers: inline functions, macros and headers that
 * bindgen is not run on. Everything else is called from Rust.
 *
 * Functions hpm_* are defined in the C files and called from Rust (shell/sys.rs declares them); functions hpm_on_* are
 * defined in Rust and called from the C files.
 */
#ifndef HPM_SHIM_H
#define HPM_SHIM_H

#include <linux/security.h>
#include <linux/types.h>

struct cgroup;
struct device;
struct file;
struct hrtimer;
struct mm_struct;
struct notifier_block;
struct page;
struct pt_regs;
struct task_struct;
struct user_struct;
struct vm_area_struct;

/* Interrupts of this CPU. */
unsigned long hpm_interrupts_save(void);
void hpm_interrupts_restore(unsigned long flags);
void hpm_interrupts_assert_off(void);

/* Model-specific registers, time-stamp counter, local APIC. */
int hpm_rdmsr(u32 msr, u64 *value);
int hpm_wrmsr(u32 msr, u64 value);
u64 hpm_rdpmc(u32 counter);
u32 hpm_lvtpc_read(void);
void hpm_lvtpc_write(u32 value);
u32 hpm_sibling(u32 cpu);
u32 hpm_eilvt_read(u32 number);

/* The kernel's arbiter of counters between its own users and others. Non-zero on success. */
int hpm_reserve_perfctr(u32 msr);
void hpm_release_perfctr(u32 msr);
int hpm_reserve_evntsel(u32 msr);
void hpm_release_evntsel(u32 msr);

/* The kernel's perf (perf.c). */
bool hpm_perf_is_out(void);
bool hpm_perf_is_mediated(void);
int hpm_find_perf(void);
void hpm_divert_perf(void);
void hpm_restore_perf(void);
void hpm_hold_perf(void);
void hpm_release_perf(u32 starts);

/* What the kernel found out about the processor. */
bool hpm_cpu_has_pti(void);
bool hpm_cpu_has_pebs(void);
u32 hpm_cpu_microcode(void);

/* The device is told when the machine sleeps, or no more. */
void hpm_follow_sleep(struct device *device);
void hpm_ignore_sleep(struct device *device);

/* Who is told when the machine goes down, by kexec too. */
int hpm_register_reboot(struct notifier_block *block);
int hpm_unregister_reboot(struct notifier_block *block);

/* Rights, as perf_event_open asks for them. */
bool hpm_perfmon_capable(void);
int hpm_allow_kernel(void);
int hpm_allow_cpu(void);
int hpm_locked_down(enum lockdown_reason what);

/* Whom a descriptor shows, and who belongs to a control group. Task and group are held by the caller. */
struct mm_struct *hpm_environ_mm(struct file *file);
struct cgroup *hpm_cgroup_get(int fd);
void hpm_cgroup_put(struct cgroup *cgroup);
bool hpm_cgroup_has_task(struct cgroup *cgroup, struct task_struct *task);
bool hpm_cgroup_encloses(struct cgroup *cgroup, struct cgroup *other);

/* Parameters of the module, and memory that is charged to the caller's user. */
extern unsigned int hpm_max_sessions;
extern unsigned int hpm_max_session_mib;
struct user_struct *hpm_mlock_charge(unsigned long pages, unsigned long *left);
void hpm_mlock_uncharge(struct user_struct *user, unsigned long pages);

/* User registers of a thread that is in the kernel. 0 for a kernel thread. */
u64 hpm_user_ip(struct task_struct *task);
bool hpm_registers(struct pt_regs *regs, bool user_only, u64 *to);

/* Zeroed pages in a row, charged to the caller. `insist`: other memory is moved and written back for them until there is some. */
void *hpm_block_alloc(size_t bytes, bool insist);

/* The page of an address in the direct map, and its physical address. */
struct page *hpm_page_of(void *address);
u64 hpm_physical(void *address);

/* Whether anything but its owner refers to the page. */
bool hpm_page_mapped(struct page *page);

/* A thread by its number in the caller's PID namespace (0: the caller), and the CPU of one by its global number. */
bool hpm_find_thread(pid_t nr, u32 *tgid, u32 *tid);
int hpm_cpu_of(u32 tid, bool running);

/* RDPMC in user mode (CR4.PCE). */
struct mm_struct *hpm_rdpmc_allow(bool *is_new);
bool hpm_rdpmc_loaded(const struct mm_struct *mm);
bool hpm_rdpmc_lacking(const struct mm_struct *mm);
bool hpm_rdpmc_may(const struct task_struct *task);
void hpm_load_another_mm(unsigned int cpu);
void hpm_zero_leftovers(unsigned int cpu);
void hpm_zero_leftovers_here(void);

/* One CPU's debug store in its entry area, and where beside it hardware may write: the window. */
struct hpm_cea {
	u64 *debug_store;
	u64 window;
	/* Page-table entries of the window: of its first pages, and of those from `split` on, which another table has. */
	void *pte[2];
	u32 split;
	u32 pages;
	/* What each entry holds while nothing is mapped. */
	u64 found;
};

int hpm_cea_find(unsigned int cpu, struct hpm_cea *cea);
void hpm_cea_map(const struct hpm_cea *cea, void *block, u32 pages);
void hpm_cea_unmap(const struct hpm_cea *cea, u32 from, u32 to);

/* A mapping as hpm_core has it, and the kernel's probes of mappings and names (reports.c). */
struct hpm_mapping {
	u64 start;
	u64 length;
	u64 offset;
	u64 inode;
	u64 generation;
	u32 major;
	u32 minor;
	u32 protection;
	u32 flags;
};

u64 hpm_raw_ns(void);
int hpm_reports_begin(void);
int hpm_map_once(void);
bool hpm_becomes_closed(void);
void hpm_reports_end(void);
const char *hpm_describe(struct vm_area_struct *vma, struct hpm_mapping *mapping, char *buffer, size_t bytes);
bool hpm_is_open_to_owner(struct task_struct *task);

/* Entry points that only C can have. 0 or a negative errno. */
void hpm_timer_setup(struct hrtimer *timer);
void hpm_timer_go_on(struct hrtimer *timer, u64 soonest_ns, u64 range_ns);
int hpm_nmi_register(void);
void hpm_nmi_unregister(void);
int hpm_probes_find(void);
int hpm_probes_register(void);
void hpm_probes_unregister(void);
int hpm_guests_follow(void);
void hpm_guests_forget(void);
int hpm_guests_register(void);
void hpm_guests_unregister(void);
bool hpm_guests_are_untold(void);

bool hpm_on_sleep(void);
void hpm_on_wake(void);
bool hpm_on_timer(struct hrtimer *timer);
int hpm_on_nmi(const struct pt_regs *regs);
void hpm_on_switch(bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state);
void hpm_on_exit(struct task_struct *task, bool group_dead);
void hpm_on_fork(struct task_struct *parent, struct task_struct *child);
void hpm_on_secure_exec(struct task_struct *task);
void hpm_on_exec(struct task_struct *task, pid_t old_tid, bool secure);
void hpm_on_map(struct vm_area_struct *vma);
void hpm_on_name(struct task_struct *task, bool exec);
bool hpm_measures_groups(void);
void hpm_on_regroup(void);
void hpm_on_guest_entry(void);
void hpm_on_guest_exit(void);

#endif
