//! What several PMUs' tables say of their generic names in the same words.

/// How what is counted differs from what the name means.
pub(in crate::event) mod caveat {
    /// `ref-cycles` of a bus clock.
    pub(in crate::event) const BUS_CLOCK: &str = "pulses of the bus clock, far fewer than the TSC's";
    /// `ref-cycles` of the crystal clock.
    pub(in crate::event) const CRYSTAL_CLOCK: &str =
        "pulses of the crystal clock (24 to 100 MHz), far fewer than the TSC's";
    /// Loads and stores that cannot be sampled (Table 2.2 of Schneider's thesis, footnote d).
    pub(in crate::event) const NO_PRECISE_ACCESS: &str =
        "for precise samples, sample instructions and keep those that access memory";
    /// Events of micro-operations.
    pub(in crate::event) const UOPS: &str =
        "counts micro-operations: an instruction that does it twice counts twice";
    /// Misses that exclude what the fill buffers serve.
    pub(in crate::event) const FILL_BUFFER: &str = "a load whose line is already on its way counts neither as hit nor as miss, but by an event of its own";
    /// Both of the above.
    pub(in crate::event) const UOPS_FILL_BUFFER: &str = "counts micro-operations; one whose line is already on its way counts neither as hit nor as miss, but by an event of its own";
    /// Misses that include what the fill buffers serve.
    pub(in crate::event) const LINE_ON_ITS_WAY_TOO: &str = "loads of a line that is already on its way count, too; the event with LINE in its name counts each line once";
    /// Tagged micro-operations of NetBurst (SDM Vol. 3B, table 19-33, note 1; Schneider's thesis, §3.2.1).
    pub(in crate::event) const NOT_ALL_TAGGED: &str =
        "locked and uncacheable accesses, I/O, returns and far transfers cannot be tagged and do not count";
    /// Accesses that need not retire.
    pub(in crate::event) const SPECULATIVE: &str = "speculative accesses count, too";
    /// Events of instruction fetches.
    pub(in crate::event) const FETCHES: &str = "counts fetches, speculative ones too, not instructions";
    /// Look-ups of the instruction cache's tags.
    pub(in crate::event) const FETCH_64: &str =
        "counts look-ups for 64 bytes of code, speculative ones too, not instructions";
    /// Loads that hardware tags.
    pub(in crate::event) const TAGGED: &str = "only loads that hardware tags at random and that took longer than the threshold; counted only while sampled";
    /// Requests to the last level.
    pub(in crate::event) const ALL_REQUESTS: &str =
        "requests of all kinds, speculative ones too: for loads, stores and code";
    /// Those of cores that may have none but their own L2.
    pub(in crate::event) const ALL_REQUESTS_OF_THE_LAST: &str = "requests of all kinds, speculative ones too: for loads, stores and code; of a core that has no L3, its L2's";
    /// Stores that left the first level.
    pub(in crate::event) const STORES_AT_L2: &str = "counts the stores that reached L2";
    /// Reads for ownership.
    pub(in crate::event) const RFOS: &str = "counts reads for ownership at L2, speculative and prefetching ones too; stores to one line share one";
    /// A TLB's first level.
    pub(in crate::event) const FIRST_TLB: &str =
        "misses of the first level, also those that the second one serves";
    /// The same of accesses that need not retire.
    pub(in crate::event) const FIRST_TLB_SPECULATIVE: &str =
        "misses of the first level, also those that the second one serves, and of speculative accesses";
    /// A TLB's last level.
    pub(in crate::event) const LAST_TLB: &str =
        "only misses of the second level; STLB_HIT events count what it serves";
    /// The same of micro-operations.
    pub(in crate::event) const LAST_TLB_UOPS: &str =
        "only misses of the second level, by micro-operations; STLB_HIT events count what it serves";
    /// Page walks begun for code.
    pub(in crate::event) const WALKS: &str =
        "only fetches that missed every level and so began a page walk, speculative ones too";
    /// Page walks completed for code.
    pub(in crate::event) const WALKS_COMPLETED: &str =
        "only fetches that missed every level and whose page walk completed, speculative ones too";
}

/// Why there is no event.
pub(in crate::event) mod absent {
    /// `dtlb-miss`.
    pub(in crate::event) const TWO_TLB_EVENTS: &str =
        "loads and stores are counted by two events: dtlb-load-miss and dtlb-store-miss";
    /// `resource-stall`.
    pub(in crate::event) const STALLS_AS_SLOTS: &str = "only some causes are counted in cycles (RESOURCE_STALLS.SB); TOPDOWN.BACKEND_BOUND_SLOTS counts all of them in issue slots";
    /// The same of efficient cores.
    pub(in crate::event) const STALLS_AS_SLOTS_SMALL: &str =
        "stalls are counted in issue slots, not cycles: TOPDOWN_BE_BOUND.ALL";
    /// Stores by the level that they missed.
    pub(in crate::event) const STORES_NOT_TOLD: &str =
        "the processor does not count the stores that missed a cache";
}
