//! Loads that are rare in most of a program and dense in a part of it, for samples in windows.
//!
//! With `argc` = A it does 200 × A times: `sparse` 20,000 times one load in twelve instructions, then `dense` 4,000 times three
//! loads in five. So of a thousand instructions of the one 84 are loads at most, and of the other 600. The truth has both loops as the window
//! `dense` with the character that comes A behind the digit 0 (hypercalls 2 and 3 of tests/vpmu).
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "mov r12, [rsp]",
    "lea r14, [r12 + 0x30]", // a digit where A is below 10
    "shl r14, 40",
    "movabs rax, 0x65736e6564", // "dense"
    "or r14, rax",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // open the window
    "mov ecx, 2",
    "cpuid",
    "imul r13, r12, 200",
    "lea rsi, [rip + word]",
    "round:",
    "mov ecx, 20000",
    ".globl sparse",
    ".type sparse, @function",
    "sparse:",
    "mov rax, [rsi]",
    ".rept 9",
    "nop",
    ".endr",
    "dec ecx",
    "jnz sparse",
    ".size sparse, . - sparse",
    "mov ecx, 4000",
    ".globl dense",
    ".type dense, @function",
    "dense:",
    "mov rax, [rsi]",
    "mov rax, [rsi]",
    "mov rax, [rsi]",
    "dec ecx",
    "jnz dense",
    ".size dense, . - dense",
    "dec r13",
    "jnz round",
    "mov rbx, r14",
    "mov eax, 0x48504D00", // close the window
    "mov ecx, 3",
    "cpuid",
    "mov eax, 60", // exit(0)
    "xor edi, edi",
    "syscall",
    ".size _start, . - _start",
    ".data",
    ".balign 64",
    "word: .quad 0",
    ".text",
);
