//! A loop of system calls: what of a program's counts is the kernel's, and nothing that could be taken for it.
//!
//! The loop loads 64 times and asks for its parent's PID, 100,000 times: 68 instructions in user mode and some hundred in the kernel. The
//! truth has it as the window `syscalls` (hypercalls 2 and 3 of tests/vpmu). No register ever holds what looks like an address of the
//! kernel, as differences of addresses do, and the loop is in a function with a frame pointer, called by `_start`.
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
    "xor ebp, ebp",
    "call ask",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // close the window
    "mov ecx, 3",
    "cpuid",
    "mov eax, 60", // exit(0)
    "xor edi, edi",
    "syscall",
    ".size _start, . - _start",
    ".type ask, @function",
    "ask:",
    "push rbp",
    "mov rbp, rsp",
    "mov r13d, 100000",
    ".Lturn:",
    ".rept 64",
    "mov rdx, [rsp]",
    ".endr",
    "mov eax, 110", // getppid()
    "syscall",
    "dec r13",
    "jnz .Lturn",
    "pop rbp",
    "ret",
    ".size ask, . - ask",
);
