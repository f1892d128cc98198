// SPDX-License-Identifier: GPL-2.0
/* The window of a CPU's entry area through which hardware writes PEBS records: where it is, and what it maps. */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <asm/cpu_entry_area.h>
#include <asm/cpufeature.h>
#include <asm/intel_ds.h>
#include <asm/pgtable.h>
#include <asm/tlbflush.h>

#include "shim.h"

/* A window has a multiple of a segment's pages (SEGMENT_BYTES in kmod/abi), and no more than one interrupt should map. */
#define SEGMENT_PAGES 16
#define WINDOW_PAGES_MAX 256

/*
 * Both page tables of page-table isolation share the top-level entry that all CPU entry areas lie under, so that what is mapped
 * there is mapped while user code runs, too. Each CPU's area lies at a random place of those 512 GiB (init_cea_offsets() in
 * arch/x86/mm/cpu_entry_area.c), in a page table that is otherwise empty and that nobody writes to after boot.
 */

/* Pages from this address on, `limit` at most, whose entries are there and hold nothing. */
static u32 hpm_cea_free(unsigned long address, u32 limit)
{
	u32 pages;

	for (pages = 0; pages < limit; pages++, address += PAGE_SIZE) {
		unsigned int level;
		pte_t *pte = lookup_address(address, &level);

		if (!pte || level != PG_LEVEL_4K || !pte_none(*pte))
			break;
	}
	return pages;
}

/*
 * The free entries of the page tables that this CPU's area lies in: those after it, or those before it. Before it only if the table
 * has nothing else there, so that no two CPUs find the same ones: entries between two areas are those of the first.
 */
static void hpm_cea_find_free(struct hpm_cea *cea, unsigned long area)
{
	unsigned long end = area + CPU_ENTRY_AREA_SIZE, table = area & PMD_MASK;
	u32 before = (area - table) >> PAGE_SHIFT;
	u32 after = (ALIGN(end, PMD_SIZE) - end) >> PAGE_SHIFT;

	if (hpm_cea_free(table, before) < before)
		before = 0;
	after = hpm_cea_free(end, after);
	cea->window = before > after ? table : end;
	cea->pages = min_t(u32, rounddown(max(before, after), SEGMENT_PAGES), WINDOW_PAGES_MAX);
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
	hpm_cea_find_free(cea, (unsigned long)area);
	if (cea->pages <= SEGMENT_PAGES)
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
