// SPDX-License-Identifier: GPL-2.0
/* The window beside a CPU's entry area through which hardware writes PEBS records: where it is, and what it maps. */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <asm/cpu_entry_area.h>
#include <asm/cpufeature.h>
#include <asm/intel_ds.h>
#include <asm/pgtable.h>
#include <asm/tlbflush.h>

#include "shim.h"

/* Pages of the smallest segment (SEGMENT_BYTES in kmod/abi). */
#define SEGMENT_PAGES 16
/* No more than one interrupt should map. */
#define WINDOW_PAGES 256

/*
 * Both page tables of page-table isolation share the entry of 512 GiB (of the top level, or of the fourth of five) that all CPU entry
 * areas lie under, so that what is mapped there is mapped while user code runs, too. The areas take some hundred KiB of it for each
 * possible CPU, at random places or one after the other, and nobody maps anything outside their own page tables there after boot
 * (arch/x86/mm/cpu_entry_area.c).
 */

/* The entry for a page table's 2 MiB around this address of the kernel's; NULL where there is no table of such entries. */
static pmd_t *hpm_pmd(unsigned long address)
{
	pgd_t *pgd = pgd_offset_pgd(__va(read_cr3_pa()), address);
	p4d_t *p4d;
	pud_t *pud;

	if (pgd_none(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, address);
	if (p4d_none(*p4d) || p4d_leaf(*p4d))
		return NULL;
	pud = pud_offset(p4d, address);
	if (pud_none(*pud) || pud_leaf(*pud))
		return NULL;
	return pmd_offset(pud, address);
}

/* Whether no page is mapped by the page table that this entry, the one for `address`, leads to or could lead to. */
static bool hpm_is_free(pmd_t *pmd, unsigned long address)
{
	unsigned int i;

	if (pmd_none(*pmd))
		return true;
	if (pmd_leaf(*pmd))
		return false;
	for (i = 0; i < PTRS_PER_PTE; i++) {
		if (!pte_none(*pte_offset_kernel(pmd, address + i * PAGE_SIZE)))
			return false;
	}
	return true;
}

/*
 * A page table of its own for each CPU's window, in the same GiB as the CPU's area: the free one with the CPU's number, which is
 * no other CPU's, because this is called while nothing is mapped in any window. A table that had to be made stays for as long as the kernel
 * runs, because processors may hold on to where it is; the module takes it again when it is loaded again.
 */
static bool hpm_cea_take_table(struct hpm_cea *cea, unsigned int cpu, unsigned long area)
{
	unsigned long address, end = (area & PUD_MASK) + PUD_SIZE;

	/* A hypervisor that checks page tables has not been told of a new one. */
	if (cpu_feature_enabled(X86_FEATURE_XENPV))
		return false;
	for (address = area & PUD_MASK; address < end; address += PMD_SIZE) {
		pmd_t *pmd = hpm_pmd(address);

		if (!pmd)
			return false;
		if (!hpm_is_free(pmd, address) || cpu-- != 0)
			continue;
		if (pmd_none(*pmd)) {
			unsigned long table = get_zeroed_page(GFP_KERNEL);

			if (!table)
				return false;
			set_pmd(pmd, __pmd(__pa(table) | _KERNPG_TABLE));
		}
		cea->window = address;
		cea->pages = WINDOW_PAGES;
		return true;
	}
	return false;
}

/*
 * The slots that the kernel keeps for PEBS: it fills their entries in at boot with PAGE_NONE, for all possible CPUs
 * (percpu_setup_debug_store()). Only perf's own driver maps something there, while it holds the counters that hpm has reserved, and
 * it may clear them a little later (owner.rs waits for that).
 */
static void hpm_cea_take_slots(struct hpm_cea *cea, struct cpu_entry_area *area)
{
	BUILD_BUG_ON(PEBS_BUFFER_SIZE != SEGMENT_PAGES * PAGE_SIZE);
	cea->window = (unsigned long)area->cpu_debug_buffers.pebs_buffer;
	cea->pages = SEGMENT_PAGES;
}

/* Finds the window's entries, which are in one page table, or in two. */
static int hpm_cea_find_entries(struct hpm_cea *cea)
{
	u32 i;

	cea->split = cea->pages;
	for (i = 0; i < cea->pages; i++) {
		unsigned int level;
		pte_t *pte = lookup_address(cea->window + i * PAGE_SIZE, &level);

		if (!pte || level != PG_LEVEL_4K)
			return -ENODEV;
		/* Not pte_present(), which also says yes to PAGE_NONE. */
		if (pte_flags(*pte) & _PAGE_PRESENT)
			return -EBUSY;
		if (i == 0) {
			cea->pte[0] = pte;
			cea->found = pte_val(*pte);
		} else if (IS_ALIGNED(cea->window + i * PAGE_SIZE, PMD_SIZE)) {
			cea->pte[1] = pte;
			cea->split = i;
		}
		if (pte_val(*pte) != cea->found)
			return -EBUSY;
	}
	return 0;
}

int hpm_cea_find(unsigned int cpu, struct hpm_cea *cea)
{
	struct cpu_entry_area *area = get_cpu_entry_area(cpu);
	unsigned int level;
	pte_t *pte;

	/* percpu_setup_debug_store() maps the debug store on Intel processors only. */
	pte = lookup_address((unsigned long)&area->cpu_debug_store, &level);
	if (!pte || level != PG_LEVEL_4K || !pte_present(*pte))
		return -ENODEV;

	cea->debug_store = (u64 *)&area->cpu_debug_store;
	if (!hpm_cea_take_table(cea, cpu, (unsigned long)area))
		hpm_cea_take_slots(cea, area);
	return hpm_cea_find_entries(cea);
}

/*
 * INVLPG drops global translations of the page in every PCID of this CPU (SDM Vol. 3A 5.10.4.1). No other CPU ever
 * uses this CPU's window, and none of them can write through a stale translation: PEBS writes through IA32_DS_AREA of
 * its own CPU only.
 */
static void hpm_cea_set(const struct hpm_cea *cea, u32 i, pte_t pte)
{
	pte_t *first = cea->pte[i >= cea->split];

	set_pte(first + (i < cea->split ? i : i - cea->split), pte);
	asm volatile("invlpg (%0)" : : "r" (cea->window + i * PAGE_SIZE) : "memory");
}

/*
 * Maps so many pages from `block` on at the window's start. As cea_set_pte(), which is not exported. Call it on the CPU that owns the
 * window, with PEBS off.
 */
void hpm_cea_map(const struct hpm_cea *cea, void *block, u32 pages)
{
	unsigned long pfn = virt_to_phys(block) >> PAGE_SHIFT;
	u32 i;

	for (i = 0; i < pages; i++) {
		pte_t pte = pfn_pte(pfn + i, PAGE_KERNEL);

		if (boot_cpu_has(X86_FEATURE_PGE))
			pte = pte_set_flags(pte, _PAGE_GLOBAL);
		hpm_cea_set(cea, i, pte);
	}
}

/* Puts back what hpm_cea_find() found of these pages. Call it on the CPU that owns the window, with PEBS off. */
void hpm_cea_unmap(const struct hpm_cea *cea, u32 from, u32 to)
{
	u32 i;

	for (i = from; i < to; i++)
		hpm_cea_set(cea, i, __pte(cea->found));
}
