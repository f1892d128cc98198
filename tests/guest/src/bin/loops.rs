//! Three loops of known length, and nothing else: no libc, no start-up code, no dynamic loader.
//!
//! With `argc` = A (the program's name counts) each loop runs N = A × 1,000,000 times. In user mode, for each N:
//!
//! | loop | instructions | branches | loads | stores |
//! |---|---|---|---|---|
//! | `load_loop` | 4 N | N | N | 0 |
//! | `store_loop` | 3 N | N | 0 | N |
//! | `branch_loop` | 4.5 N | 2 N | 0 | 0 |
//!
//! so that one more argument adds exactly 11.5 M instructions, 4 M branches, 1 M loads and 1 M stores, whatever the
//! prologue costs. The truth has them as the window `loopsA` (A as one digit), which two hypercalls open and close (tests/vpmu):
//! it misses what comes before the window and after it, 12 instructions, one branch and one load.
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "mov r12, [rsp]",
    "lea r14, [r12 + 0x30]", // one digit
    "shl r14, 40",
    "movabs rax, 0x73706f6f6c", // "loops"
    "or r14, rax",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // open the window
    "mov ecx, 2",
    "cpuid",
    "imul r12, r12, 1000000",
    "lea rsi, [rip + cell]",
    "xor eax, eax",
    "mov r13, r12",
    ".globl load_loop",
    "load_loop:",
    "mov rax, [rsi]",
    "add rax, 1",
    "dec r13",
    "jnz load_loop",
    "mov r13, r12",
    ".globl store_loop",
    "store_loop:",
    "mov [rsi], rax",
    "dec r13",
    "jnz store_loop",
    "mov r13, r12",
    ".globl branch_loop",
    "branch_loop:",
    "test r13, 1",
    "jz 2f",
    "nop",
    "2:",
    "dec r13",
    "jnz branch_loop",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // close the window
    "mov ecx, 3",
    "cpuid",
    "mov eax, 60", // exit(0)
    "xor edi, edi",
    "syscall",
    ".size _start, . - _start",
    ".bss",
    ".balign 64",
    "cell: .skip 64",
    ".text",
);
