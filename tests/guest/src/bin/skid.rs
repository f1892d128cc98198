//! One load that misses and then nothing but NOPs, so that an instruction pointer reported late says by how much: the program of
//! Schneider's thesis, Figure 2.2.
//!
//! 500,000 times: `missing_load` reads the next line of 1 MiB, which is larger than any first-level cache; then come 300
//! instructions that access nothing. It stays on CPU 0: back from another one it could find lines in the cache that it left there.
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "mov eax, 203", // sched_setaffinity(0, 8, first_cpu)
    "xor edi, edi",
    "mov esi, 8",
    "lea rdx, [rip + first_cpu]",
    "syscall",
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
    ".balign 8",
    "first_cpu: .quad 1",
    ".bss",
    ".balign 4096",
    ".globl array",
    ".type array, @object",
    ".size array, 0x100000",
    "array: .skip 0x100000",
    ".text",
);
