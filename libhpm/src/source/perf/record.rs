//! Records of perf_event's rings, as what they say.

use linux_perf_event_reader::{
    ContextSwitchRecord, EventRecord, RawEventRecord, RecordType, SampleRecord, TaskWasPreempted,
};

use crate::sideband::{Entry, Parser};
use crate::sys::perf::USER_REGISTERS;
use crate::trace::Registers;

/// One record with its time, CLOCK_MONOTONIC_RAW in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) ns: u64,
    pub(crate) what: What,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A mapping, name, fork, exit or loss; apart, because it is large, and of a thousand records one.
    Report(Box<Entry>),
    /// A thread was switched to or away from.
    Switch(Switch),
    /// An event's sample.
    Sample(Box<Taken>),
    /// The kernel holds samples of an event back, because they come too fast.
    Throttled,
}

/// A switch to a thread, or away from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) cpu: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) kind: SwitchKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchKind {
    In,
    Yielded,
    Preempted,
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Number that the kernel gave the event.
    pub(crate) id: u64,
    pub(crate) cpu: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) ip: u64,
    /// The data address; 0 where the event has none.
    pub(crate) address: u64,
    pub(crate) period: u64,
    /// Addresses by frame pointers, innermost first.
    pub(crate) chain: Vec<u64>,
    pub(crate) registers: Option<Registers>,
    /// User stack from RSP upwards.
    pub(crate) stack: Vec<u8>,
}

/// The number of the event that a sample is of, which stands first in it, whatever else it has (`PERF_SAMPLE_IDENTIFIER`); `None` for any
/// other record.
pub(crate) fn sampled_id(kind: u32, body: &[u8]) -> Option<u64> {
    let id = body.first_chunk().filter(|_| RecordType(kind) == RecordType::SAMPLE)?;
    Some(u64::from_ne_bytes(*id))
}

/// What the record with this type, `misc` and body says; `None` when it is of no interest, or no such record.
pub(crate) fn parse(parser: &Parser, kind: u32, misc: u16, body: &[u8]) -> Option<Timed> {
    if !parser.is_sound(kind, misc, body) {
        return None;
    }
    let raw = parser.record(kind, misc, body);
    match RecordType(kind) {
        // Nearly all records are switches.
        RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE => switch(&raw),
        RecordType::SAMPLE => match raw.parse().ok()? {
            EventRecord::Sample(sample) => {
                Some(Timed { ns: sample.timestamp?, what: What::Sample(Box::new(taken(&sample)?)) })
            }
            _ => None,
        },
        RecordType::THROTTLE => Some(Timed { ns: raw.common_data().ok()?.timestamp?, what: What::Throttled }),
        _ => {
            let entry = parser.entry(kind, misc, body)?;
            Some(Timed { ns: entry.monotonic_raw_ns, what: What::Report(Box::new(entry)) })
        }
    }
}

fn switch(raw: &RawEventRecord<'_>) -> Option<Timed> {
    let EventRecord::ContextSwitch(switch) = raw.parse().ok()? else { return None };
    let common = raw.common_data().ok()?;
    let kind = match switch {
        ContextSwitchRecord::In { .. } => SwitchKind::In,
        ContextSwitchRecord::Out { preempted: TaskWasPreempted::Yes, .. } => SwitchKind::Preempted,
        ContextSwitchRecord::Out { .. } => SwitchKind::Yielded,
    };
    let (pid, tid) = (common.pid? as u32, common.tid? as u32);
    Some(Timed { ns: common.timestamp?, what: What::Switch(Switch { cpu: common.cpu?, pid, tid, kind }) })
}

fn taken(sample: &SampleRecord<'_>) -> Option<Taken> {
    Some(Taken {
        id: sample.id?,
        cpu: sample.cpu?,
        pid: sample.pid? as u32,
        tid: sample.tid? as u32,
        ip: sample.ip?,
        address: sample.addr.unwrap_or(0),
        period: sample.period.unwrap_or(0),
        chain: chain(sample),
        registers: registers(sample),
        stack: stack(sample),
    })
}

/// The copied user stack, as far as there was any.
pub(crate) fn stack(sample: &SampleRecord<'_>) -> Vec<u8> {
    sample.user_stack.map_or_else(Vec::new, |(bytes, used)| {
        let bytes = bytes.as_slice();
        bytes[..bytes.len().min(usize::try_from(used).unwrap_or(usize::MAX))].to_vec()
    })
}

/// Addresses of a call chain, innermost first. Numbers from PERF_CONTEXT_MAX upwards say in which mode the next addresses are.
pub(crate) fn chain(sample: &SampleRecord<'_>) -> Vec<u64> {
    let Some(found) = sample.callchain else { return Vec::new() };
    let mut chain = Vec::new();
    let mut entered = false;
    for address in (0..found.len()).filter_map(|index| found.get(index)) {
        if address >= CONTEXT_MAX {
            entered = address == CONTEXT_USER && !chain.is_empty();
        } else {
            // Where the thread was when it entered the kernel is no return address, but is looked up as one: one byte before.
            chain.push(address.wrapping_add(entered.into()));
            entered = false;
        }
    }
    chain
}

/// `PERF_CONTEXT_USER`: the next addresses of a call chain are of user mode.
const CONTEXT_USER: u64 = (-512_i64) as u64;
/// `PERF_CONTEXT_MAX`, -4095.
const CONTEXT_MAX: u64 = (-4095_i64) as u64;

/// perf_event's number of each of [`Registers`], in their order.
const ORDER: [u64; Registers::COUNT] = [9, 8, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23];
const _: () = {
    let (mut place, mut mask) = (0, 0);
    while place < ORDER.len() {
        mask |= 1 << ORDER[place];
        place += 1;
    }
    assert!(mask == USER_REGISTERS, "each register that is asked for has its place");
};

pub(crate) fn registers(sample: &SampleRecord<'_>) -> Option<Registers> {
    let found = sample.user_regs.as_ref()?;
    let mut words = [0; Registers::COUNT];
    for (word, number) in words.iter_mut().zip(ORDER) {
        *word = found.get(number)?;
    }
    Some(Registers(words))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sys::perf::{SAMPLE_CALLCHAIN, SAMPLE_EVENT, SAMPLE_USER_STACK};

    const THROTTLE: u32 = 5;
    const UNTHROTTLE: u32 = 6;
    const SAMPLE: u32 = 9;
    const SWITCH: u32 = 14;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_sample_with_a_chain() {
        let parser = Parser::new(SAMPLE_EVENT | SAMPLE_CALLCHAIN, 0);
        let user = (-512_i64) as u64;
        let body = words(&[7, 0x1000, 11 | 12 << 32, 99, 0xdead, 1, 5, 3, user, 0x1000, 0x2000]);
        let Some(Timed { ns: 99, what: What::Sample(sample) }) = parse(&parser, SAMPLE, 0, &body) else {
            panic!("no sample")
        };
        assert_eq!((sample.id, sample.cpu, sample.pid, sample.tid), (7, 1, 11, 12));
        assert_eq!((sample.ip, sample.address, sample.period), (0x1000, 0xdead, 5));
        assert_eq!(sample.chain, [0x1000, 0x2000]);
        // Where the thread entered the kernel is no return address, but is looked up as one.
        let kernel = (-128_i64) as u64;
        let body = words(&[7, 0x1000, 11 | 12 << 32, 99, 0, 1, 5, 5, kernel, 0x9000, user, 0x1000, 0x2000]);
        let Some(Timed { what: What::Sample(sample), .. }) = parse(&parser, SAMPLE, 0, &body) else {
            panic!("no sample")
        };
        assert_eq!(sample.chain, [0x9000, 0x1001, 0x2000]);
    }

    #[test]
    fn a_sample_with_registers_and_the_stack_that_was_there() {
        let parser = Parser::new(SAMPLE_EVENT | SAMPLE_USER_STACK, USER_REGISTERS);
        let mut body = vec![7, 0x1000, 11 | 12 << 32, 99, 0, 1, 5];
        // The ABI, 18 registers in the kernel's order, the stack's size, the stack, and how much of it is.
        body.push(2);
        body.extend(100..118);
        body.extend([16, 0xaaaa, 0xbbbb, 8]);
        let Some(Timed { what: What::Sample(sample), .. }) = parse(&parser, SAMPLE, 0, &words(&body)) else {
            panic!("no sample")
        };
        let registers = sample.registers.unwrap();
        assert_eq!((registers.at(Registers::RFLAGS), registers.at(Registers::RIP)), (109, 108));
        assert_eq!(
            (registers.at(Registers::RBP), registers.at(Registers::RSP), registers.0[17]),
            (106, 107, 117)
        );
        assert_eq!(sample.stack, 0xaaaa_u64.to_le_bytes());
    }

    #[test]
    fn switches_say_who_and_why() {
        let parser = Parser::new(SAMPLE_EVENT, 0);
        let body = words(&[11 | 12 << 32, 99, 1, 7]);
        let kind = |misc| match parse(&parser, SWITCH, misc, &body) {
            Some(Timed { ns: 99, what: What::Switch(Switch { cpu: 1, pid: 11, tid: 12, kind }) }) => kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(kind(0), SwitchKind::In);
        assert_eq!(kind(1 << 13), SwitchKind::Yielded);
        assert_eq!(kind(1 << 13 | 1 << 14), SwitchKind::Preempted);
    }

    #[test]
    fn samples_that_are_held_back_are_told_once() {
        let parser = Parser::new(SAMPLE_EVENT, 0);
        // The time, the event's number twice, and what each record but a sample ends in.
        let body = words(&[99, 7, 7, 11 | 12 << 32, 99, 1, 7]);
        assert_eq!(parse(&parser, THROTTLE, 0, &body), Some(Timed { ns: 99, what: What::Throttled }));
        assert_eq!(parse(&parser, UNTHROTTLE, 0, &body), None);
    }

    proptest! {
        /// Bytes that no kernel writes are no reason to panic.
        #[test]
        fn any_bytes_are_read_or_refused(kind in 0_u32..20, misc: u16, body in prop::collection::vec(any::<u8>(), 0..400)) {
            for (format, registers) in [(SAMPLE_EVENT | SAMPLE_CALLCHAIN, 0), (SAMPLE_EVENT | SAMPLE_USER_STACK, USER_REGISTERS)] {
                let _ = parse(&Parser::new(format, registers), kind, misc, &body);
            }
        }
    }
}
