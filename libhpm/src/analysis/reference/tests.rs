use super::*;

const IP: u64 = 0x1000;

fn origins(code: &[u8], at: u64, edges: &[((u64, u64), u64)]) -> Vec<Origin> {
    let edges = edges.iter().map(|&((from, to), count)| ((IP + from, IP + to), count)).collect();
    Function::new(code, IP, 64).origins(IP + at, &edges, Trail::NONE, &mut |_, _| false)
}

fn field(at: u64, base: Register, displacement: i64) -> Source {
    Source::Field { ip: IP + at, base, displacement }
}

fn only(code: &[u8], at: u64) -> (Source, Option<i64>) {
    let found = origins(code, at, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!((found[0].share - 1.0).abs() < 1e-9);
    (found[0].source, found[0].offset)
}

/// Figure 5.3: `p.y.i`.
#[test]
fn a_field_that_was_loaded_from_a_field() {
    // mov rax, [rdi+8]; mov eax, [rax+16]; ret
    let code = [0x48, 0x8b, 0x47, 0x08, 0x8b, 0x40, 0x10, 0xc3];
    assert_eq!(only(&code, 4), (field(0, Register::RDI, 8), Some(16)));
    assert_eq!(only(&code, 0), (Source::Parameter(Location::Register(Register::RDI)), Some(8)));
    assert!(origins(&code, 7 + 9, &[]).is_empty());
}

#[test]
fn moves_and_arithmetic_are_followed() {
    // mov rbx, [rdi+8]; add rbx, 32; mov rcx, rbx; lea rdx, [rcx-8]; mov rax, [rdx+4]
    let code = [
        0x48, 0x8b, 0x5f, 0x08, 0x48, 0x83, 0xc3, 0x20, 0x48, 0x89, 0xd9, 0x48, 0x8d, 0x51, 0xf8, 0x48, 0x8b,
        0x42, 0x04,
    ];
    assert_eq!(only(&code, 15), (field(0, Register::RDI, 8), Some(32 - 8 + 4)));
    // An index makes the offset unknown: mov rbx, [rdi+8]; mov rax, [rbx+rcx*8]
    let code = [0x48, 0x8b, 0x5f, 0x08, 0x48, 0x8b, 0x04, 0xcb];
    assert_eq!(only(&code, 4), (field(0, Register::RDI, 8), None));
    // What an array's element refers to: mov rbx, [rdi+rcx*8]; mov rax, [rbx]
    let code = [0x48, 0x8b, 0x1c, 0xcf, 0x48, 0x8b, 0x03];
    assert_eq!(only(&code, 4).0, Source::Element { ip: IP, base: Register::RDI, displacement: 0 });
}

#[test]
fn spills_to_the_stack_are_followed() {
    // As GCC -O0 has it: push rbp; mov rbp, rsp; mov [rbp-8], rdi; mov rax, [rbp-8]; mov rax, [rax+8]; mov [rbp-16], rax;
    // mov rax, [rbp-16]; mov eax, [rax]
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8, 0x48, 0x8b, 0x45, 0xf8, 0x48, 0x8b, 0x40, 0x08, 0x48,
        0x89, 0x45, 0xf0, 0x48, 0x8b, 0x45, 0xf0, 0x8b, 0x00,
    ];
    assert_eq!(only(&code, 24), (field(12, Register::RAX, 8), Some(0)));
    assert_eq!(only(&code, 12), (Source::Parameter(Location::Register(Register::RDI)), Some(8)));
    // By the stack pointer, over a push: mov rax, [rdi+8]; sub rsp, 16; mov [rsp+8], rax; push rbx; mov rcx, [rsp+16]; mov eax, [rcx]
    let code = [
        0x48, 0x8b, 0x47, 0x08, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x44, 0x24, 0x08, 0x53, 0x48, 0x8b, 0x4c,
        0x24, 0x10, 0x8b, 0x01,
    ];
    assert_eq!(only(&code, 19), (field(0, Register::RDI, 8), Some(0)));
}

/// Figure 5.6 (b): `a` is `p.x` or `q.y`.
#[test]
fn joins_divide_the_share_by_the_branches_that_were_taken() {
    // 0: test edx, edx; 2: je 10; 4: mov rax, [rdi+8]; 8: jmp 14; 10: mov rax, [rsi+16]; 14: mov eax, [rax+4]
    let code = [
        0x85, 0xd2, 0x74, 0x06, 0x48, 0x8b, 0x47, 0x08, 0xeb, 0x04, 0x48, 0x8b, 0x46, 0x10, 0x8b, 0x40, 0x04,
    ];
    let equal = origins(&code, 14, &[]);
    assert_eq!(equal.len(), 2);
    assert!(equal.iter().all(|origin| (origin.share - 0.5).abs() < 1e-9 && origin.offset == Some(4)));
    let weighed = origins(&code, 14, &[((8, 14), 30), ((10, 14), 10)]);
    assert_eq!(weighed[0].source, field(4, Register::RDI, 8));
    assert!((weighed[0].share - 0.75).abs() < 1e-9 && (weighed[1].share - 0.25).abs() < 1e-9, "{weighed:?}");
    assert_eq!(weighed[1].source, field(10, Register::RSI, 16));
}

/// A list: the node is the parameter, or the `next` of the node before.
#[test]
fn loops_end() {
    // 0: mov eax, [rdi]; 2: mov rdi, [rdi+8]; 6: test rdi, rdi; 9: jne 0; 11: ret
    let code = [0x8b, 0x07, 0x48, 0x8b, 0x7f, 0x08, 0x48, 0x85, 0xff, 0x75, 0xf5, 0xc3];
    let found = origins(&code, 0, &[]);
    let sources: Vec<Source> = found.iter().map(|origin| origin.source).collect();
    assert_eq!(sources.len(), 2, "{found:?}");
    assert!(
        sources.contains(&Source::Parameter(Location::Register(Register::RDI)))
            && sources.contains(&field(2, Register::RDI, 8))
    );
    // A pointer that a loop does not change came from before it: 0: mov rbx, [rdi]; 3: mov eax, [rbx]; 5: dec ecx; 7: jne 3
    let code = [0x48, 0x8b, 0x1f, 0x8b, 0x03, 0xff, 0xc9, 0x75, 0xfa];
    assert_eq!(only(&code, 3), (field(0, Register::RDI, 0), Some(0)));
}

/// Padding before a loop's head is a way that nobody goes.
#[test]
fn padding_is_no_way() {
    // 0: mov rdi, [rsi+8]; 4: jmp 8; 6: nop; 7: nop; 8: mov eax, [rdi]; 10: dec ecx; 12: jne 8
    let code = [0x48, 0x8b, 0x7e, 0x08, 0xeb, 0x02, 0x90, 0x90, 0x8b, 0x07, 0xff, 0xc9, 0x75, 0xfa];
    assert_eq!(only(&code, 8), (field(0, Register::RSI, 8), Some(0)));
}

#[test]
fn calls_keep_what_the_abi_says() {
    // 0: mov rbx, [rdi+8]; 4: call 9; 9: mov ecx, [rbx]; 11: mov edx, [rax]; 13: mov edx, [rsi]
    let code = [0x48, 0x8b, 0x5f, 0x08, 0xe8, 0, 0, 0, 0, 0x8b, 0x0b, 0x8b, 0x10, 0x8b, 0x16];
    assert_eq!(only(&code, 9), (field(0, Register::RDI, 8), Some(0)));
    assert_eq!(only(&code, 11).0, Source::Returned { ip: IP + 4, target: Some(IP + 9) });
    assert_eq!(only(&code, 13).0, Source::Other);
}

#[test]
fn variables_and_conditional_moves() {
    // 0: mov rax, [rip+0x100]; 7: mov eax, [rax]
    assert_eq!(only(&[0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x8b, 0x00], 7).0, Source::Global(IP + 7 + 0x100));
    // 0: mov rax, [rdi]; 3: cmove rax, [rsi+8]; 8: mov eax, [rax]
    let found = origins(&[0x48, 0x8b, 0x07, 0x48, 0x0f, 0x44, 0x46, 0x08, 0x8b, 0x00], 8, &[]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|origin| (origin.share - 0.5).abs() < 1e-9));
}

#[test]
fn what_the_caller_knows_ends_the_search() {
    let code = [0x48, 0x8b, 0x47, 0x08, 0x8b, 0x40, 0x10, 0xc3];
    let function = Function::new(&code, IP, 64);
    let known = &mut |ip, location| (ip, location) == (IP + 4, Location::Register(Register::RAX));
    let found = function.origins(IP + 4, &EdgeCounts::new(), Trail::NONE, known);
    assert_eq!(found[0].source, Source::Known { ip: IP + 4, location: Location::Register(Register::RAX) });
}

#[test]
fn a_register_is_kept_until_somebody_writes_it() {
    // 0: mov rax, [rdi+8]; 4: mov eax, [rax+16]; 7: ret
    let function = Function::new(&[0x48, 0x8b, 0x47, 0x08, 0x8b, 0x40, 0x10, 0xc3], IP, 64);
    assert!(function.is_kept(Register::RDI, IP, IP + 4));
    assert!(!function.is_kept(Register::RAX, IP, IP + 4));
}

proptest::proptest! {
    /// Whatever the code is, the search ends, and shares are shares.
    #[test]
    fn no_code_is_too_odd(code in proptest::collection::vec(proptest::num::u8::ANY, 1..120), at in 0_u64..120) {
        let found = origins(&code, at, &[]);
        let all: f64 = found.iter().map(|origin| origin.share).sum();
        proptest::prop_assert!(found.is_empty() || (all - 1.0).abs() < 1e-6, "{found:?}");
    }
}
