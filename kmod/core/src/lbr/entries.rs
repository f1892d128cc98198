//! The registers of the branch records.

use super::super::port::Port;
use super::super::registers::{IA32_LBR_DEPTH, MSR_LASTBRANCH_TOS};
use super::{Branches, Kind, Lbr, BRANCHES_MAX};

/// One record as user space gets it: from, to, and information as in IA32_LBR_x_INFO.
pub(in super::super) type Entry = [u64; 3];

/// Registers of the first record; the next one's follow (SDM Vol. 4, tables 2-2 and 2-20 to 2-39).
pub(super) struct Bank {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) info: Option<u32>,
}

impl Lbr {
    pub(super) const fn bank(&self) -> Bank {
        match self.kind {
            Kind::ModelSpecific { info, .. } => {
                Bank { from: 0x680, to: 0x6C0, info: if info { Some(0xDC0) } else { None } }
            }
            Kind::Architectural { .. } => Bank { from: 0x1500, to: 0x1600, info: Some(0x1200) },
        }
    }

    /// The number of the newest record's registers.
    fn newest<P: Port>(&self, port: &mut P) -> u32 {
        match self.kind {
            Kind::ModelSpecific { .. } => port.rdmsr(MSR_LASTBRANCH_TOS) as u32,
            Kind::Architectural { .. } => 0,
        }
    }

    /// The number of the registers of the record `age` places before the newest.
    const fn number(&self, newest: u32, age: u32) -> u32 {
        match self.kind {
            // The depth is a power of two.
            Kind::ModelSpecific { .. } => newest.wrapping_sub(age) & self.depth.wrapping_sub(1),
            Kind::Architectural { .. } => age,
        }
    }

    /// What a FROM register says: the address, and its flags at their places in IA32_LBR_x_INFO.
    const fn split(&self, from: u64) -> (u64, u64) {
        match self.kind {
            Kind::ModelSpecific { flags, .. } if flags > 0 => {
                let address = ((from << flags) as i64 >> flags) as u64;
                (address, from & !(u64::MAX >> flags))
            }
            _ => (from, 0),
        }
    }

    /// What to write to a FROM register so that it reads as this afterwards.
    pub(super) const fn written(&self, from: u64) -> u64 {
        match self.kind {
            Kind::ModelSpecific { sign_extends: true, .. } => from | (from & 3 << 59) << 2,
            _ => from,
        }
    }
}

impl Branches {
    /// Calls `f` with each record, the newest first, up to the first that is empty and as many as are kept; how many.
    pub(in super::super) fn read<P: Port>(&self, port: &mut P, mut f: impl FnMut(u32, &Entry)) -> u32 {
        let (bank, newest) = (self.lbr.bank(), self.lbr.newest(port));
        let mut count = 0;
        for age in 0..self.entries {
            let number = self.lbr.number(newest, age);
            let (from, flags) = self.lbr.split(port.rdmsr(bank.from + number));
            if from == 0 {
                break;
            }
            let to = port.rdmsr(bank.to + number);
            // The filter has kept them out; but on Nehalem it is shared with the core's other logical processor (18.8.2).
            if !self.kernel && (from | to) >> 63 != 0 {
                continue;
            }
            let info = bank.info.map_or(flags, |info| port.rdmsr(info + number));
            f(count, &[from, to, info]);
            count += 1;
        }
        count
    }

    /// Whether the newest record is empty, and so all are.
    pub(super) fn are_empty<P: Port>(&self, port: &mut P) -> bool {
        let (bank, newest) = (self.lbr.bank(), self.lbr.newest(port));
        self.lbr.split(port.rdmsr(bank.from + newest)).0 == 0
    }

    /// Empties the records. What the driver reads ends at an empty source; hardware writes whole records. Recording is off.
    pub(super) fn clear<P: Port>(&self, port: &mut P) {
        match self.lbr.kind {
            Kind::ModelSpecific { .. } => self.empty(port, 0..self.lbr.depth),
            // Writing the depth clears all of them (19.1).
            Kind::Architectural { .. } => port.wrmsr(IA32_LBR_DEPTH, self.depth.into()),
        }
    }

    fn empty<P: Port>(&self, port: &mut P, numbers: core::ops::Range<u32>) {
        let bank = self.lbr.bank();
        for number in numbers {
            port.wrmsr(bank.from + number, 0);
            if self.in_records {
                port.wrmsr(bank.to + number, 0);
                if let Some(info) = bank.info {
                    port.wrmsr(info + number, 0);
                }
            }
        }
    }

    /// Where the calls were made that have not returned, the newest first; how many.
    pub(super) fn read_calls<P: Port>(&self, port: &mut P, calls: &mut [u64; BRANCHES_MAX]) -> usize {
        let (bank, newest) = (self.lbr.bank(), self.lbr.newest(port));
        let mut count = 0;
        for (age, call) in (0..self.depth).zip(calls) {
            (*call, _) = self.lbr.split(port.rdmsr(bank.from + self.lbr.number(newest, age)));
            if *call == 0 {
                break;
            }
            count += 1;
        }
        count
    }

    /// Makes these calls, the newest first, the records. They have no targets: a stack needs none. Recording is off.
    pub(super) fn write_calls<P: Port>(&self, port: &mut P, calls: &[u64]) {
        let bank = self.lbr.bank();
        let count = calls.len() as u32;
        let newest = count.saturating_sub(1);
        match self.lbr.kind {
            Kind::ModelSpecific { .. } => self.empty(port, count..self.lbr.depth),
            Kind::Architectural { .. } => self.clear(port),
        }
        for (age, call) in (0..).zip(calls) {
            let number = self.lbr.number(newest, age);
            if let Kind::ModelSpecific { .. } = self.lbr.kind {
                self.empty(port, number..number + 1);
            }
            port.wrmsr(bank.from + number, self.lbr.written(*call));
        }
        if let Kind::ModelSpecific { .. } = self.lbr.kind {
            port.wrmsr(MSR_LASTBRANCH_TOS, newest.into());
        }
    }
}
