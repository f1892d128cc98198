//! Three loads that miss the first-level cache in known proportions, on any processor: `first_load` walks 1 MiB in steps of 64
//! bytes and misses each time, `second_load` another one in steps of 32 and misses every second time, `third_load` a third
//! one in steps of 16 and misses every fourth time. They stand one behind another.
//!
//! The loop runs 1,000,000 times: 1,750,000 misses, of which the loads have 4/7, 2/7 and 1/7, but for what interrupts evict. No instruction
//! outside the window `walks` loads (hypercalls 2 and 3 of tests/vpmu), so that the truth's loads there are all of the program's.
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "movabs r14, 0x736b6c6177", // "walks"
    "mov rbx, r14",
    "mov eax, 0x48504D00", // open the window
    "mov ecx, 2",
    "cpuid",
    "lea rsi, [rip + arrays]",
    "lea rdi, [rsi + 0x100000]",
    "lea r9, [rsi + 0x200000]",
    "xor ecx, ecx",
    // Pages that were never written all show the kernel's one zero page, which would fit the cache.
    "touch_loop:",
    "mov [rsi + rcx], rcx",
    "mov [rdi + rcx], rcx",
    "mov [r9 + rcx], rcx",
    "add rcx, 4096",
    "and rcx, 0xfffff",
    "jnz touch_loop",
    "xor r8d, r8d",
    "xor r10d, r10d",
    "mov r13d, 1000000",
    "walk_loop:",
    ".globl first_load",
    "first_load:",
    "mov rax, [rsi + rcx]",
    ".globl second_load",
    "second_load:",
    "mov rdx, [rdi + r8]",
    ".globl third_load",
    "third_load:",
    "mov r11, [r9 + r10]",
    "add rcx, 64",
    "and rcx, 0xfffff",
    "add r8, 32",
    "and r8, 0xfffff",
    "add r10, 16",
    "and r10, 0xfffff",
    "dec r13",
    "jnz walk_loop",
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
    "arrays: .skip 0x300000",
    ".text",
);
