//! The made-up trace's data: objects of a program of four functions, which is written beside the trace, and the samples of its loads.

use std::fs;
use std::path::Path;

use libhpm::trace::{AllocationRow, Allocations, MapRow, Registers, SampleRow, TraceError, TraceWriter};

use super::trace::{BEGIN, PERIOD, SERVER};

/// Where the program is mapped, and where its code begins in the file and from there.
const PROGRAM: u64 = 0x40_0000;
const TEXT: u64 = 0x80;
/// Its functions by their distance from there, with their code: three that allocate, and one that follows fields.
const MAKERS: [&str; 4] = ["make_node", "make_item", "make_page", "make_list"];
const MAKER_BYTES: u64 = 16;
/// `mov rax,[rdi+16]; mov rdx,[rax]; mov rcx,[rdi+24]; mov rsi,[rcx]; mov rax,[rsp]; ret`
const WALK: [u8; 19] = [
    0x48, 0x8b, 0x47, 0x10, 0x48, 0x8b, 0x10, 0x48, 0x8b, 0x4f, 0x18, 0x48, 0x8b, 0x31, 0x48, 0x8b, 0x04,
    0x24, 0xc3,
];
/// Addresses of the objects of each maker, their bytes, and how many there are.
const OBJECTS: [(u64, u64); 4] = [(0x1000_0000, 48), (0x1001_0000, 32), (0x1002_0000, 40), (0x1003_0000, 64)];
const COUNT: u64 = 64;
const STACK: u64 = 0x7ffc_0000_1000;
/// When the layout of the nodes is changed, in ticks from the beginning.
pub(super) const CHANGED: u64 = 250_000;
/// The marker that tells of it.
pub(super) const MARKER: &str = "coalloc make_node (made.elf)::+16";

/// Where the function is that follows fields.
pub(super) fn walk() -> u64 {
    PROGRAM + TEXT + MAKERS.len() as u64 * MAKER_BYTES
}

/// Writes the program, its mappings and its objects.
pub(super) fn write(writer: &mut TraceWriter, folder: &Path) -> Result<(), TraceError> {
    let program = std::path::absolute(folder.with_extension("elf")).unwrap_or_default();
    fs::write(&program, elf())
        .map_err(|source| TraceError::Write { path: program.clone(), reason: source })?;
    let pid = SERVER[0].0;
    let map = |start, bytes, path: &str, executable| MapRow {
        tsc: BEGIN,
        pid,
        start,
        end: start + bytes,
        path: path.into(),
        executable,
        ..MapRow::default()
    };
    writer.map(&map(PROGRAM, 0x1000, &program.to_string_lossy(), true))?;
    writer.map(&map(OBJECTS[0].0, 0x10_0000, "[heap]", false))?;
    writer.map(&map(STACK - 0x1000, 0x2000, "[stack]", false))?;
    let object = |address, bytes, stack| AllocationRow {
        tsc: BEGIN,
        pid,
        tid: pid,
        address,
        bytes,
        stack: Some(stack),
        ..AllocationRow::default()
    };
    for (nth, (start, bytes)) in (0..).zip(OBJECTS) {
        let stack = writer.stack(&[PROGRAM + TEXT + nth * MAKER_BYTES + 8], false)?;
        for number in 0..COUNT {
            writer.allocation(&object(start + number * bytes, bytes, stack))?;
        }
    }
    // So much later that the others are young no more.
    let stack = writer.stack(&[walk() + 8], false)?;
    writer.allocation(&AllocationRow { tsc: BEGIN + 1, ..object(0x2000_0000, 8 << 20, stack) })?;
    writer.allocations_recorded(Allocations { processes: 1, ..Allocations::default() })
}

/// The `nth` sample of a load of the program; none where the changed layout has saved the miss.
pub(super) fn sample(nth: u64, at: SampleRow) -> Option<SampleRow> {
    let number = nth * nth % COUNT;
    let object = |kind: usize| OBJECTS[kind].0 + number * OBJECTS[kind].1;
    let (parent, child, is_second) = match nth % 8 {
        _ if nth % 64 == 7 => (object(3), object(1), false),
        7 => {
            let registers = registers(&[(Registers::RSP, STACK)]);
            let (ip, next_ip) = (walk() + 14, Some(walk() + 18));
            return Some(SampleRow {
                ip,
                next_ip,
                data_address: Some(STACK),
                registers,
                period: PERIOD,
                ..at
            });
        }
        5 | 6 => (object(2), object(1), true),
        turn if turn > 1 && at.tsc > BEGIN + CHANGED => return None,
        _ => (object(0), object(1), false),
    };
    const RAX: usize = 2;
    const RCX: usize = 4;
    const RDI: usize = 7;
    let (ip, next_ip, register) =
        if is_second { (walk() + 11, walk() + 14, RCX) } else { (walk() + 4, walk() + 7, RAX) };
    let registers = registers(&[(RDI, parent), (register, child), (Registers::RSP, STACK)]);
    Some(SampleRow { ip, next_ip: Some(next_ip), data_address: Some(child), registers, period: PERIOD, ..at })
}

fn registers(known: &[(usize, u64)]) -> Option<Registers> {
    let mut all = [0; Registers::COUNT];
    known.iter().for_each(|(place, value)| all[*place] = *value);
    Some(Registers(all))
}

/// The program as an ELF file: its code with a symbol for each function (System V ABI, chapter 4).
fn elf() -> Vec<u8> {
    let mut text = Vec::new();
    for _ in MAKERS {
        text.extend([[0x90; MAKER_BYTES as usize - 1].as_slice(), &[0xc3]].concat());
    }
    text.extend(WALK);
    let mut symbols = vec![0_u8; 24];
    let mut names = vec![0_u8];
    let makers = MAKERS.iter().zip(0..).map(|(name, nth)| (*name, nth * MAKER_BYTES, MAKER_BYTES));
    let walk = [("walk", MAKERS.len() as u64 * MAKER_BYTES, WALK.len() as u64)];
    for (name, offset, bytes) in makers.chain(walk) {
        symbols.extend((names.len() as u32).to_le_bytes());
        // A global function of section 1.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((PROGRAM + TEXT + offset).to_le_bytes());
        symbols.extend(bytes.to_le_bytes());
        names.extend(name.bytes().chain([0]));
    }
    let titles = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let [symbols_at, names_at, titles_at] = [
        TEXT + text.len() as u64,
        TEXT + (text.len() + symbols.len()) as u64,
        TEXT + (text.len() + symbols.len() + names.len()) as u64,
    ];
    let sections_at = titles_at + titles.len() as u64;
    // Name, kind, flags, address, place, bytes, link, info, bytes of an entry.
    let sections: [[u64; 9]; 5] = [
        [0; 9],
        [1, 1, 6, PROGRAM + TEXT, TEXT, text.len() as u64, 0, 0, 0],
        [7, 2, 0, 0, symbols_at, symbols.len() as u64, 3, 1, 24],
        [15, 3, 0, 0, names_at, names.len() as u64, 0, 0, 0],
        [23, 3, 0, 0, titles_at, titles.len() as u64, 0, 0, 0],
    ];
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let halves =
        |file: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|v| file.extend(v.to_le_bytes()));
    halves(&mut file, &[2, 62]);
    file.extend(1_u32.to_le_bytes());
    [PROGRAM + TEXT, 64, sections_at].iter().for_each(|value| file.extend(value.to_le_bytes()));
    file.extend(0_u32.to_le_bytes());
    halves(&mut file, &[64, 56, 1, 64, sections.len() as u16, 4]);
    // One segment with all of it, to be read and executed.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    [0, PROGRAM, PROGRAM, sections_at, sections_at, 0x1000]
        .iter()
        .for_each(|value: &u64| file.extend(value.to_le_bytes()));
    file.resize(TEXT as usize, 0);
    [&text[..], &symbols, &names, titles].iter().for_each(|part| file.extend_from_slice(part));
    for [name, kind, flags, address, place, bytes, link, info, entry] in sections {
        [name as u32, kind as u32].iter().for_each(|value| file.extend(value.to_le_bytes()));
        [flags, address, place, bytes].iter().for_each(|value| file.extend(value.to_le_bytes()));
        [link as u32, info as u32].iter().for_each(|value| file.extend(value.to_le_bytes()));
        [1, entry].iter().for_each(|value: &u64| file.extend(value.to_le_bytes()));
    }
    file
}
