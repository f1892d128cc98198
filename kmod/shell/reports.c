// SPDX-License-Identifier: GPL-2.0
/*
 * Where the kernel tells its own perf of mappings and names, which no tracepoint tells: kprobes, placed only while a session asks for
 * such reports. The callbacks hand over to shell/reports.rs.
 */
#include <linux/dcache.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/hugetlb_inline.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>

#include "shim.h"

u64 hpm_raw_ns(void)
{
	return ktime_get_raw_fast_ns();
}

/* perf_event_mmap(vma): the current task has mapped memory, or changed its protection, and holds the lock on its mappings. */
static int hpm_probe_map(struct kprobe *probe, struct pt_regs *regs)
{
	hpm_on_map((struct vm_area_struct *)regs_get_kernel_argument(regs, 0));
	return 0;
}

/* perf_event_comm(task, exec) */
static int hpm_probe_name(struct kprobe *probe, struct pt_regs *regs)
{
	hpm_on_name((struct task_struct *)regs_get_kernel_argument(regs, 0), regs_get_kernel_argument(regs, 1) & 1);
	return 0;
}

static struct kprobe hpm_map_probe = { .symbol_name = "perf_event_mmap", .pre_handler = hpm_probe_map };
static struct kprobe hpm_name_probe = { .symbol_name = "perf_event_comm", .pre_handler = hpm_probe_name };

static struct kprobe *hpm_report_probes[] = { &hpm_map_probe, &hpm_name_probe };

int hpm_reports_begin(void)
{
	unsigned int i;
	int ret;

	/* The kernel wants to find neither an address nor flags of an earlier time. */
	for (i = 0; i < ARRAY_SIZE(hpm_report_probes); i++) {
		hpm_report_probes[i]->addr = NULL;
		hpm_report_probes[i]->flags = 0;
	}
	ret = register_kprobes(hpm_report_probes, ARRAY_SIZE(hpm_report_probes));
	if (ret)
		return ret;
	/* One that is a breakpoint would call in the context of an exception, in which no lock can be taken. */
	if (kprobe_ftrace(&hpm_map_probe) && kprobe_ftrace(&hpm_name_probe))
		return 0;
	hpm_reports_end();
	return -EOPNOTSUPP;
}

/* No probe runs afterwards. */
void hpm_reports_end(void)
{
	/* Together they wait once. */
	unregister_kprobes(hpm_report_probes, ARRAY_SIZE(hpm_report_probes));
}

/* Maps a page and unmaps it: whether the probes are called shows by that. */
int hpm_map_once(void)
{
	unsigned long address = vm_mmap(NULL, 0, PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, 0);

	if (IS_ERR_VALUE(address))
		return (int)address;
	return vm_munmap(address, PAGE_SIZE);
}

/* Whether the current task is within an execve after which its user may not look into its program. */
bool hpm_becomes_closed(void)
{
	return current->in_execve && !hpm_is_open_to_owner(current);
}

/* As perf_event_mmap_event() names it; x86 has no names of its own (arch_vma_name()). */
static const char *hpm_name_of(struct vm_area_struct *vma, char *buffer, size_t bytes)
{
	const char *name = NULL;

	if (vma->vm_file) {
		name = d_path(file_user_path(vma->vm_file), buffer, bytes);
		return IS_ERR(name) ? "//toolong" : name;
	}
	if (vma->vm_ops && vma->vm_ops->name)
		name = vma->vm_ops->name(vma);
	if (!name && vma_is_initial_heap(vma))
		name = "[heap]";
	if (!name && vma_is_initial_stack(vma))
		name = "[stack]";
	return name ? name : "//anon";
}

static u32 hpm_flags_of(struct vm_area_struct *vma)
{
	u32 told = vma->vm_flags & VM_MAYSHARE ? MAP_SHARED : MAP_PRIVATE;

	if (vma->vm_flags & VM_LOCKED)
		told |= MAP_LOCKED;
	if (is_vm_hugetlb_page(vma))
		told |= MAP_HUGETLB;
	return told;
}

/* The mapping's name is in the buffer, or constant. */
const char *hpm_describe(struct vm_area_struct *vma, struct hpm_mapping *mapping, char *buffer, size_t bytes)
{
	vm_flags_t flags = vma->vm_flags;

	*mapping = (struct hpm_mapping){
		.start = vma->vm_start,
		.length = vma->vm_end - vma->vm_start,
		.offset = (u64)vma->vm_pgoff << PAGE_SHIFT,
		.protection = (flags & VM_READ ? PROT_READ : 0) | (flags & VM_WRITE ? PROT_WRITE : 0) |
			      (flags & VM_EXEC ? PROT_EXEC : 0),
		.flags = hpm_flags_of(vma),
	};
	if (vma->vm_file) {
		const struct inode *inode = file_user_inode(vma->vm_file);

		mapping->inode = inode->i_ino;
		mapping->generation = inode->i_generation;
		mapping->major = MAJOR(inode->i_sb->s_dev);
		mapping->minor = MINOR(inode->i_sb->s_dev);
	}
	return hpm_name_of(vma, buffer, bytes);
}
