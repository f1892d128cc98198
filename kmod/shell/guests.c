// SPDX-License-Identifier: GPL-2.0
/*
 * Virtual machines: what a guest executes is not measured, and no record may be written to its addresses. KVM tells when a CPU is about to
 * enter a guest and when it has left it, by tracepoints of its own, whose module may come and go while sessions measure. The callbacks hand
 * over to shell/probes.rs.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/tracepoint.h>
#include <asm/processor-flags.h>
#include <asm/special_insns.h>

#include "shim.h"

struct kvm_vcpu;

static void hpm_probe_guest_exit(void *data, struct kvm_vcpu *vcpu, u32 isa)
{
	hpm_on_guest_exit();
}

static void hpm_probe_guest_entry(void *data, struct kvm_vcpu *vcpu, bool force_immediate_exit)
{
	hpm_on_guest_entry();
}

/* In the order in which they are registered: who is told of entries alone would not measure again. */
static struct hpm_guest_probe {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
	bool registered;
} hpm_guest_probes[] = {
	{ "kvm_exit", hpm_probe_guest_exit },
	{ "kvm_entry", hpm_probe_guest_entry },
};

/* Protects the table and the flag below it. Nobody takes it who holds the lock on CPU hotplug. */
static DEFINE_MUTEX(hpm_guests_lock);

/* There are sessions. */
static bool hpm_guests_wanted;

/* Every entry into one of KVM's guests is told of, as long as there are sessions. */
static bool hpm_guests_told;

/* KVM's module, where it is one; freed only once no CPU has interrupts off any more. */
static struct module *hpm_guests_module;

static void hpm_guests_silence(void)
{
	unsigned int i = ARRAY_SIZE(hpm_guest_probes);

	while (i--) {
		struct hpm_guest_probe *probe = &hpm_guest_probes[i];

		if (probe->registered)
			tracepoint_probe_unregister(probe->tracepoint, probe->probe, NULL);
		probe->registered = false;
	}
}

/* Registers what is there as it is wanted. Where a probe cannot be, entries are not told of. */
static int hpm_guests_update(void)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < ARRAY_SIZE(hpm_guest_probes); i++)
		if (!hpm_guest_probes[i].tracepoint)
			ret = -ENOENT;
	if (ret || !hpm_guests_wanted)
		hpm_guests_silence();
	for (i = 0; !ret && hpm_guests_wanted && i < ARRAY_SIZE(hpm_guest_probes); i++) {
		struct hpm_guest_probe *probe = &hpm_guest_probes[i];

		if (!probe->registered)
			ret = tracepoint_probe_register(probe->tracepoint, probe->probe, NULL);
		probe->registered = !ret;
	}
	WRITE_ONCE(hpm_guests_told, !ret);
	return ret;
}

static void hpm_guests_match(struct tracepoint *tracepoint, bool is_there)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hpm_guest_probes); i++)
		if (!strcmp(tracepoint->name, hpm_guest_probes[i].name))
			hpm_guest_probes[i].tracepoint = is_there ? tracepoint : NULL;
}

static void hpm_guests_match_builtin(struct tracepoint *tracepoint, void *data)
{
	hpm_guests_match(tracepoint, true);
}

static int hpm_guests_notify(struct notifier_block *block, unsigned long state, void *data)
{
	struct tp_module *module = data;
	unsigned int i;

	if (strcmp(module->mod->name, "kvm"))
		return NOTIFY_DONE;
	guard(mutex)(&hpm_guests_lock);
	/* While they are known by their tracepoints. */
	if (state == MODULE_STATE_GOING)
		hpm_guests_silence();
	WRITE_ONCE(hpm_guests_module, state == MODULE_STATE_COMING ? module->mod : NULL);
	for (i = 0; i < module->mod->num_tracepoints; i++)
		hpm_guests_match(tracepoint_ptr_deref(&module->mod->tracepoints_ptrs[i]), state == MODULE_STATE_COMING);
	/* Where that fails precise sessions give up once virtualisation is on, as beside a hypervisor that is not KVM. */
	hpm_guests_update();
	return NOTIFY_DONE;
}

static struct notifier_block hpm_guests_block = {
	.notifier_call = hpm_guests_notify,
};

/* Looks for KVM, which may be part of the kernel, and from now on notices when it comes or goes. */
int hpm_guests_follow(void)
{
	scoped_guard(mutex, &hpm_guests_lock)
		for_each_kernel_tracepoint(hpm_guests_match_builtin, NULL);
	return register_tracepoint_module_notifier(&hpm_guests_block);
}

/* Ends that. There are no sessions. */
void hpm_guests_forget(void)
{
	unregister_tracepoint_module_notifier(&hpm_guests_block);
}

/* From now on sessions are told of KVM's guests, if there is KVM, and once it comes. */
int hpm_guests_register(void)
{
	int ret;

	guard(mutex)(&hpm_guests_lock);
	hpm_guests_wanted = true;
	ret = hpm_guests_update();
	if (ret && ret != -ENOENT) {
		hpm_guests_wanted = false;
		hpm_guests_update();
		return ret;
	}
	return 0;
}

/* Ends that. */
void hpm_guests_unregister(void)
{
	scoped_guard(mutex, &hpm_guests_lock) {
		hpm_guests_wanted = false;
		hpm_guests_update();
	}
	tracepoint_synchronize_unregister();
}

/*
 * Whether this CPU may enter a guest of which nobody tells sessions: virtualisation is on (CR4.VMXE), and KVM is not there, or nobody uses it,
 * as kvm_intel does while it is loaded. Two hypervisors do not share a processor, but kvm_intel may be loaded and leave it to another one
 * (enable_virt_at_load=0): that is not seen. With interrupts off.
 */
bool hpm_guests_are_untold(void)
{
	struct module *kvm = READ_ONCE(hpm_guests_module);

	if (!(__read_cr4() & X86_CR4_VMXE))
		return false;
	return !READ_ONCE(hpm_guests_told) || (kvm && !module_refcount(kvm));
}
