//! One load that misses and then nothing but NOPs, so that an instruction pointer reported late says by how much: the program of
//! Schneider's thesis, Figure 2.2.
//!
//! 500,000 times: `missing_load` reads the next line of 1 MiB, which is larger than any first-level cache; then come 300
//! instructions that access nothing.
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "lea rsi, [rip + array]",
    "xor ecx, ecx",
    // Pages that were never written all show the kernel's one zero page, which would fit the cache.
    "touch_loop:",
    "mov [rsi + rcx], rcx",
    "add rcx, 4096",
    "and rcx, 0xfffff",
    "jnz touch_loop",
    "mov r13d, 500000",
    "skid_loop:",
    ".globl missing_load",
    "missing_load:",
    "mov rax, [rsi + rcx]",
    ".rept 300",
    "nop",
    ".endr",
    "add rcx, 64",
    "and rcx, 0xfffff",
    "dec r13",
    "jnz skid_loop",
    "mov eax, 60", // exit(0)
    "xor edi, edi",
    "syscall",
    ".size _start, . - _start",
    ".bss",
    ".balign 4096",
    ".globl array",
    ".type array, @object",
    ".size array, 0x100000",
    "array: .skip 0x100000",
    ".text",
);
