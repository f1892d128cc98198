//! Three phases in which loads are as frequent, a hundred times rarer, and as frequent again: `phases`.
//!
//! | loop | instructions per load | loads | instructions |
//! |---|---|---|---|
//! | `dense_loop` | 4 | 400,000,000 | 1,600,000,000 |
//! | `sparse_loop` | 400 | 4,000,000 | 1,600,000,000 |
//! | `dense_loop` | 4 | 400,000,000 | 1,600,000,000 |
//!
//! In a lab whose time passes with instructions (2 ns each), every phase takes 3.2 s. The loads are one instruction each.
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "lea rsi, [rip + cell]",
    "xor ebx, ebx", // how many phases are over
    "dense:",
    "mov r13d, 400000000",
    ".globl dense_loop",
    "dense_loop:",
    "mov rax, [rsi]",
    "add rax, 1",
    "dec r13",
    "jnz dense_loop",
    "test ebx, ebx",
    "jnz 3f",
    "inc ebx",
    "mov r13d, 4000000",
    ".globl sparse_loop",
    "sparse_loop:",
    "mov rax, [rsi]",
    "mov ecx, 198",
    "2:",
    "dec ecx",
    "jnz 2b",
    "dec r13",
    "jnz sparse_loop",
    "jmp dense",
    "3:",
    "mov eax, 60", // exit(0)
    "xor edi, edi",
    "syscall",
    ".size _start, . - _start",
    ".bss",
    ".balign 64",
    "cell: .skip 64",
    ".text",
);
