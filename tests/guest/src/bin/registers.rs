//! A loop whose registers are known: what each register of a record must be.
//!
//! The loop runs 200,000 times. Its one load that misses, `test byte ptr [RSI + RCX], 0`, walks 1 MiB in steps of 64 bytes and changes
//! no register but the flags, of which it leaves ZF and PF set and CF, OF and SF clear. RCX is where it is, RSI where the array begins;
//! every other register's 8 bytes all are its place in a record (`libhpm::trace::Registers`), from 2 for RAX to 17 for R15. The low 8
//! bytes of XMMn all are 0x20 + n, the high ones 0x40 + n. The loop counts in memory.
#![no_main]
#![allow(unsafe_code, reason = "the program is assembly; it has no unsafe block and no Rust code")]

core::arch::global_asm!(
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "lea rsi, [rip + array]",
    "xor ecx, ecx",
    // Pages that were never written all show the kernel's one zero page, which would fit the cache.
    ".Ltouch_loop:",
    "mov [rsi + rcx], rcx",
    "add rcx, 4096",
    "and rcx, 0xfffff",
    "jnz .Ltouch_loop",
    "lea rax, [rip + vectors]",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\n, [rax + 16 * \\n]",
    ".endr",
    "movabs rax, 0x0202020202020202",
    "movabs rbx, 0x0303030303030303",
    "movabs rdx, 0x0505050505050505",
    "movabs rdi, 0x0707070707070707",
    "movabs rbp, 0x0808080808080808",
    // Nothing is pushed, and no signal comes.
    "movabs rsp, 0x0909090909090909",
    "movabs r8, 0x0a0a0a0a0a0a0a0a",
    "movabs r9, 0x0b0b0b0b0b0b0b0b",
    "movabs r10, 0x0c0c0c0c0c0c0c0c",
    "movabs r11, 0x0d0d0d0d0d0d0d0d",
    "movabs r12, 0x0e0e0e0e0e0e0e0e",
    "movabs r13, 0x0f0f0f0f0f0f0f0f",
    "movabs r14, 0x1010101010101010",
    "movabs r15, 0x1111111111111111",
    ".Lwalk:",
    "test byte ptr [rsi + rcx], 0",
    "add rcx, 64",
    "and rcx, 0xfffff",
    "dec qword ptr [rip + turns]",
    "jnz .Lwalk",
    "mov eax, 60", // exit(0)
    "xor edi, edi",
    "syscall",
    ".size _start, . - _start",
    ".data",
    ".balign 64",
    "turns: .quad 200000",
    "vectors:",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    ".fill 8, 1, 0x20 + \\n",
    ".fill 8, 1, 0x40 + \\n",
    ".endr",
    ".bss",
    ".balign 4096",
    "array: .skip 0x100000",
    ".text",
);
