// SPDX-License-Identifier: GPL-2.0
/* The PEBS slots of a CPU's entry area: which there are, and what they map. */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <asm/cpu_entry_area.h>
#include <asm/cpufeature.h>
#include <asm/intel_ds.h>
#include <asm/pgtable.h>
#include <asm/tlbflush.h>

#include "shim.h"

/*
 * The CPU entry area reserves page-table entries for BTS and PEBS buffers of every possible CPU at boot
 * (arch/x86/mm/cpu_entry_area.c, percpu_setup_debug_store); both page tables of page-table isolation share them. Only
 * perf's own driver fills them, while it holds the counters that hpm has reserved, and it may clear them a little later (owner.rs
 * waits for that).
 */
int hpm_cea_find(unsigned int cpu, struct hpm_cea *cea)
{
	struct cpu_entry_area *area = get_cpu_entry_area(cpu);
	unsigned int level, i;
	pte_t *pte;

	BUILD_BUG_ON(PEBS_BUFFER_SIZE != HPM_CEA_PAGES * PAGE_SIZE);
	/* percpu_setup_debug_store() maps the debug store on Intel processors only. */
	pte = lookup_address((unsigned long)&area->cpu_debug_store, &level);
	if (!pte || level != PG_LEVEL_4K || !pte_present(*pte))
		return -ENODEV;

	cea->debug_store = (u64 *)&area->cpu_debug_store;
	cea->pebs_buffer = (u64)area->cpu_debug_buffers.pebs_buffer;
	for (i = 0; i < HPM_CEA_PAGES; i++) {
		pte = lookup_address(cea->pebs_buffer + i * PAGE_SIZE, &level);
		if (!pte || level != PG_LEVEL_4K)
			return -ENODEV;
		/* Not pte_present(), which also says yes to the PAGE_NONE that the kernel fills in at boot. */
		if (pte_flags(*pte) & _PAGE_PRESENT)
			return -EBUSY;
		cea->pte[i] = pte;
		cea->found[i] = pte_val(*pte);
	}
	return 0;
}

/*
 * INVLPG drops global translations of the page in every PCID of this CPU (SDM Vol. 3A 5.10.4.1). No other CPU ever
 * uses this CPU's slots, and none of them can write through a stale translation: PEBS writes through IA32_DS_AREA of
 * its own CPU only.
 */
static void hpm_cea_set(const struct hpm_cea *cea, unsigned int i, pte_t pte)
{
	set_pte((pte_t *)cea->pte[i], pte);
	asm volatile("invlpg (%0)" : : "r" (cea->pebs_buffer + i * PAGE_SIZE) : "memory");
}

/* As cea_set_pte(), which is not exported. Call it on the CPU that owns the slots, with PEBS off. */
void hpm_cea_map(const struct hpm_cea *cea, void *block)
{
	unsigned long pfn = virt_to_phys(block) >> PAGE_SHIFT;
	unsigned int i;

	for (i = 0; i < HPM_CEA_PAGES; i++) {
		pte_t pte = pfn_pte(pfn + i, PAGE_KERNEL);

		if (boot_cpu_has(X86_FEATURE_PGE))
			pte = pte_set_flags(pte, _PAGE_GLOBAL);
		hpm_cea_set(cea, i, pte);
	}
}

/* Puts back the entries that hpm_cea_find() found. Call it on the CPU that owns the slots, with PEBS off. */
void hpm_cea_unmap(const struct hpm_cea *cea)
{
	unsigned int i;

	for (i = 0; i < HPM_CEA_PAGES; i++)
		hpm_cea_set(cea, i, __pte(cea->found[i]));
}
