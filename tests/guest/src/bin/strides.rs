//! A loop whose cache misses are known: one load walks 1 MiB in steps of 64 bytes (a new line each time, and 1 MiB is
//! larger than any first-level cache), another always reads the same line.
//!
//! With `argc` = A the loop runs A × 1,000,000 times. Every record of a miss must name `missing_load`, its data address
//! must be RSI + RCX of the record, and must lie in `array`. The truth has the loop as the window `strides` with the character that
//! comes A behind the digit 0 (hypercalls 2 and 3 of tests/vpmu).
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "mov r12, [rsp]",
    "lea r14, [r12 + 0x30]", // a digit where A is below 10
    "shl r14, 56",
    "movabs rax, 0x73656469727473", // "strides"
    "or r14, rax",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // open the window
    "mov ecx, 2",
    "cpuid",
    "imul r13, r12, 1000000",
    "lea rsi, [rip + array]",
    "lea rdi, [rip + steady]",
    "xor ecx, ecx",
    // Pages that were never written all show the kernel's one zero page, which would fit the cache.
    "touch_loop:",
    "mov [rsi + rcx], rcx",
    "add rcx, 4096",
    "and rcx, 0xfffff",
    "jnz touch_loop",
    "stride_loop:",
    ".globl missing_load",
    "missing_load:",
    "mov rax, [rsi + rcx]",
    ".globl hitting_load",
    "hitting_load:",
    "mov rdx, [rdi]",
    "add rcx, 64",
    "and rcx, 0xfffff",
    "dec r13",
    "jnz stride_loop",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // close the window
    "mov ecx, 3",
    "cpuid",
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
    ".balign 64",
    "steady: .skip 64",
    ".text",
);
