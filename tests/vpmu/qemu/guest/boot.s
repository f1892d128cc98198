# Starts the guest in 64-bit mode: QEMU enters a PVH kernel in 32-bit protected mode without paging.

    .section .note.pvh, "a", @note
    .long 4, 4, 18                      # name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long start32

    .section .text
    .code32
start32:
    cld
    mov %ebx, start_info
    mov $boot_stack_top, %esp
    mov $page_map, %eax
    mov %eax, %cr3
    mov $0x620, %eax                    # PAE, OSFXSR, OSXMMEXCPT
    mov %eax, %cr4
    mov $0xc0000080, %ecx               # IA32_EFER: LME, SCE
    mov $0x101, %eax
    xor %edx, %edx
    wrmsr
    mov $0x80010003, %eax               # PG, WP, MP, PE
    mov %eax, %cr0
    lgdt gdt_pointer
    ljmp $0x08, $start64

    .code64
start64:
    mov $0x10, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    call main
1:  hlt
    jmp 1b

# enter_user(code, argument): runs `code` in ring 3 with the argument in RDI until it executes `int $0x80`; returns RAX.
    .global enter_user
enter_user:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, kernel_stack
    mov %rsp, tss + 4                   # RSP0
    mov %rdi, %rcx
    mov %rsi, %rdi
    pushq $0x1b                         # SS
    lea user_stack_top, %rax
    push %rax
    pushq $0x2                          # RFLAGS
    pushq $0x23                         # CS
    push %rcx
    iretq

leave_user:
    mov kernel_stack, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

# The system call does nothing.
    .global system_call
system_call:
    sysretq

# Exceptions: the stubs push a vector (and an error code where the processor does not).
    .macro stub vector, code
stub_\vector:
    .if !\code
    pushq $0
    .endif
    pushq $\vector
    jmp exception
    .endm
    stub 1, 0
    stub 2, 0
    stub 3, 0
    stub 6, 0
    stub 8, 1
    stub 13, 1
    stub 14, 1

exception:
    push %rax
    push %rcx
    push %rdx
    push %rbx
    push %rbp
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, %rdi
    mov %rsp, %rbx
    and $-16, %rsp
    call exception_handler
    mov %rbx, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rbp
    pop %rbx
    pop %rdx
    pop %rcx
    pop %rax
    add $16, %rsp
    iretq

    .section .data
    .balign 8
    .global stubs
stubs:                                  # vector, entry
    .quad 1, stub_1, 2, stub_2, 3, stub_3, 6, stub_6, 8, stub_8, 13, stub_13, 14, stub_14, 0x80, leave_user, 0, 0

gdt:
    .quad 0
    .quad 0x00af9a000000ffff            # 0x08 kernel code
    .quad 0x00cf92000000ffff            # 0x10 kernel data
    .quad 0x00cff2000000ffff            # 0x18 user data
    .quad 0x00affa000000ffff            # 0x20 user code
    .global tss_descriptor
tss_descriptor:
    .quad 0, 0                          # 0x28
gdt_pointer:
    .word . - gdt - 1
    .quad gdt
    .global tss
    .balign 16
tss:
    .fill 104, 1, 0
kernel_stack:
    .quad 0
    .global start_info
start_info:                             # physical address of QEMU's struct hvm_start_info
    .quad 0

    .balign 4096
page_map:
    .quad directory_pointers + 7
    .fill 511, 8, 0
directory_pointers:                     # GiB 0: memory; 1: pages for faults; 3: local APIC
    .quad directory_0 + 7, directory_1 + 7, 0, directory_3 + 7
    .fill 508, 8, 0
directory_0:
    .set address, 0
    .rept 512
    .quad address + 0x87                # present, writable, user, 2 MiB
    .set address, address + 0x200000
    .endr
directory_1:
    .quad fault_pages + 7
    .fill 511, 8, 0
    .global fault_pages
fault_pages:                            # 4 KiB pages from 0x4000_0000 on, mapped by the page-fault handler
    .fill 512, 8, 0
directory_3:
    .set address, 0xc0000000
    .rept 512
    .quad address + 0x93                # present, writable, not cached, 2 MiB
    .set address, address + 0x200000
    .endr

    .section .bss
    .balign 4096
    .skip 16384
boot_stack_top:
    .skip 16384
user_stack_top:
    .skip 64
