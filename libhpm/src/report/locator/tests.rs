use super::*;

/// `f: mov rax, [rdi]; test rax, rax; je 3f; mov rcx, [rsi]; 3: mov rdx, [rbx]; call g; mov r8, [r9]; ret`
const CODE: [u8; 26] = [
    0x48, 0x8b, 0x07, // 0
    0x48, 0x85, 0xc0, // 3
    0x74, 0x03, // 6
    0x48, 0x8b, 0x0e, // 8
    0x48, 0x8b, 0x13, // 11: the branch leads here
    0xe8, 0, 0, 0, 0, // 14
    0x4d, 0x8b, 0x01, // 19
    0x4d, 0x8b, 0x11, // 22
    0xc3, // 25
];

fn decoded(code: &[u8]) -> Decoded {
    let instructions: Vec<Instruction> =
        Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect();
    let branches = instructions.iter().filter(|one| one.flow_control() == FlowControl::ConditionalBranch);
    let targets = branches.map(Instruction::near_branch_target).collect();
    Decoded { targets, jumps_indirectly: false, jumps_through_memory: false, instructions }
}

#[test]
fn the_instruction_before_is_told_only_where_no_other_can_have_been() {
    let before = |address, wanted| decoded(&CODE).before(address, wanted);
    assert_eq!([before(3, Wanted::Load), before(3, Wanted::Any)], [Some(0), Some(0)]);
    assert_eq!(before(0, Wanted::Load), None, "who called is not known");
    assert_eq!(before(11, Wanted::Load), Some(8), "the branch does not load");
    assert_eq!(before(11, Wanted::Any), None, "the branch can be meant");
    assert_eq!(before(19, Wanted::Load), None, "what was called returned");
    assert_eq!(before(22, Wanted::Load), Some(19));
    assert_eq!(before(4, Wanted::Load), None, "no instruction begins here");
    let jumps = Decoded { jumps_through_memory: true, jumps_indirectly: true, ..decoded(&CODE) };
    assert_eq!([jumps.before(22, Wanted::Load), jumps.before(22, Wanted::Store)], [None, Some(19)]);
}

#[test]
fn stores_are_told_from_loads() {
    let any = |code: &[u8]| writes(code, 64, Wanted::Any);
    assert_eq!(any(&[0x48, 0x8b, 0x07]), Some(false));
    assert_eq!(any(&[0x48, 0x89, 0x07]), Some(true));
    assert_eq!(any(&[0xf0, 0x48, 0xff, 0x07]), Some(true), "lock inc");
    assert_eq!(any(&[0x48, 0x8d, 0x07]), Some(false), "lea");
    assert_eq!(any(&[0x06]), None);
    // What is loaded is not what is stored.
    for code in [&[0xff, 0x50, 0x10][..], &[0xff, 0x37]] {
        assert_eq!([writes(code, 64, Wanted::Load), any(code)], [Some(false), None], "{code:x?}");
    }
    assert_eq!(writes(&[0xf0, 0x48, 0xff, 0x07], 64, Wanted::Load), Some(true), "lock inc");
}

#[test]
fn mappings_are_told_by_name_right_and_stack_pointer() {
    let mut spaces = AddressSpaces::default();
    let mut map = |range: Range<u64>, path: &str, executable| {
        spaces.map(&crate::trace::MapRow {
            pid: 1,
            start: range.start,
            end: range.end,
            path: path.into(),
            executable,
            ..crate::trace::MapRow::default()
        });
    };
    map(0x1000..0x2000, "[heap]", false);
    map(0x10_0000..0x20_0000, "//anon", false);
    map(0x30_0000..0x40_0000, "//anon", false);
    map(0x50_0000..0x60_0000, "/data/table", false);
    map(0x70_0000..0x80_0000, "[vdso]", true);
    map(0x90_0000..0xa0_0000, "//anon", true);
    let mut locator = Locator::new(&[], FileFinder::default());
    let registers = |rsp| {
        let mut registers = Registers([0; Registers::COUNT]);
        registers.0[Registers::RSP] = rsp;
        Some(registers)
    };
    let row = |tid, rsp| SampleRow { pid: 1, tid, registers: registers(rsp), ..SampleRow::default() };
    locator.note(&row(2, 0x18_0000));
    locator.note(&row(1, 0x7fff_0000_0000));
    let mut space = |address| locator.place(&spaces, &row(1, 0), address).0;
    assert_eq!(space(0x1800), Space::Heap);
    assert_eq!([space(0x17_fff0), space(0x19_0000)], [Space::Stack; 2], "the other thread's");
    assert_eq!(space(0x17_0000), Space::Anonymous, "far below the stack pointer");
    assert_eq!(space(0x30_0000), Space::Anonymous);
    assert_eq!(space(0x50_1000), Space::File);
    assert_eq!([space(0x70_0000), space(0x90_0000)], [Space::Vdso, Space::Code]);
    assert_eq!(space(0x7fff_0000_1000), Space::Stack, "the kernel does not report the first stack");
    assert_eq!([space(0x5555_0000), space(u64::MAX)], [Space::Unmapped, Space::Kernel]);
}
