// SPDX-License-Identifier: GPL-2.0
/*
 * Parameters of the module, and what a user may lock in memory: the kernel's macros and inline functions that
 * shell/limits.rs needs.
 */
#include <linux/capability.h>
#include <linux/cpumask.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>

#include "shim.h"

unsigned int hpm_max_sessions = 64;
module_param_named(max_sessions, hpm_max_sessions, uint, 0644);
MODULE_PARM_DESC(max_sessions, "Sessions that can be configured at the same time");

unsigned int hpm_max_session_mib = 4096;
module_param_named(max_session_mib, hpm_max_session_mib, uint, 0644);
MODULE_PARM_DESC(max_session_mib, "MiB that one session may take, whoever asks for it");

unsigned int hpm_max_pmi_rate = 100000;
module_param_named(max_pmi_rate, hpm_max_pmi_rate, uint, 0644);
MODULE_PARM_DESC(max_pmi_rate, "Interrupts per second and CPU beyond which samples are withheld; 0 for no limit");

unsigned int hpm_max_record_rate = 1000000;
module_param_named(max_record_rate, hpm_max_record_rate, uint, 0644);
MODULE_PARM_DESC(max_record_rate, "Records per second and CPU beyond which samples are withheld; 0 for no limit");

/* As kernel.perf_cpu_time_max_percent. */
unsigned int hpm_max_handler_percent = 25;
module_param_named(max_handler_percent, hpm_max_handler_percent, uint, 0644);
MODULE_PARM_DESC(max_handler_percent, "Share of a CPU's time in the handler beyond which samples are withheld; 0 for no limit");

/* As kernel.perf_event_mlock_kb, which is not exported. */
static unsigned int hpm_mlock_kib = 512 + PAGE_SIZE / 1024;
module_param_named(mlock_kib, hpm_mlock_kib, uint, 0644);
MODULE_PARM_DESC(mlock_kib, "KiB per online CPU that a user's sessions may take beyond RLIMIT_MEMLOCK");

/*
 * Charges pages to the caller's user, in the sum that perf and io_uring charge too. NULL when it exceeds what the user may
 * lock; *left is how many pages that would have been.
 */
struct user_struct *hpm_mlock_charge(unsigned long pages, unsigned long *left)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = get_uid(current_user());
	unsigned long held;

	limit += num_online_cpus() * (hpm_mlock_kib >> (PAGE_SHIFT - 10));
	held = atomic_long_add_return(pages, &user->locked_vm) - pages;
	if (held + pages <= limit || perfmon_capable() || capable(CAP_IPC_LOCK))
		return user;

	atomic_long_sub(pages, &user->locked_vm);
	free_uid(user);
	*left = limit > held ? limit - held : 0;
	return NULL;
}

void hpm_mlock_uncharge(struct user_struct *user, unsigned long pages)
{
	atomic_long_sub(pages, &user->locked_vm);
	free_uid(user);
}
