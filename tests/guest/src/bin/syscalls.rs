//! A loop of system calls: what of a program's counts is the kernel's.
//!
//! The loop asks 100,000 times for its parent's PID, which takes 4 instructions in user mode and some hundred in the kernel. The truth has
//! it as the window `syscalls` (hypercalls 2 and 3 of tests/vpmu).
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "movabs r14, 0x736c6c6163737973", // "syscalls"
    "mov rbx, r14",
    "mov eax, 0x48504D00", // open the window
    "mov ecx, 2",
    "cpuid",
    "mov r13d, 100000",
    ".Lask:",
    "mov eax, 110", // getppid()
    "syscall",
    "dec r13",
    "jnz .Lask",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // close the window
    "mov ecx, 3",
    "cpuid",
    "mov eax, 60", // exit(0)
    "xor edi, edi",
    "syscall",
    ".size _start, . - _start",
);
