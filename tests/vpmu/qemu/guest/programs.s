# User programs of known length. Each ends with `int $0x80`, which is one instruction.

    .section .text
    .code64
    .global user_loop, user_loop_end
user_loop:                              # 3 + 5 RDI instructions, RDI loads, stores and branches
    mov %rdi, %rcx
    lea scratch, %rsi
user_loop_body:
    mov (%rsi,%rcx,8), %rax
    add $1, %rax
    mov %rax, 8192(%rsi)
    dec %rcx
    jnz user_loop_body
user_loop_end:
    int $0x80

    .global user_repeat
user_repeat:                            # 6 instructions, RDI loads and stores
    mov %rdi, %rcx
    lea scratch, %rsi
    mov $0x1000000, %edi
    rep movsb
    nop
    int $0x80

    .global user_repeat_fault
user_repeat_fault:                      # 6 instructions, RDI stores, faulting on each new page
    mov %rdi, %rcx
    mov $0x40000000, %edi
    mov $0x5a, %eax
    rep stosb
    nop
    int $0x80

    .global user_stack
user_stack:                             # 8 instructions: 5 of them load, 5 store, 2 branch
    lea scratch, %rsi
    push (%rsi)                         # load, store
    pop 8(%rsi)                         # load, store
    call 1f                             # store, branch
    lock incq (%rsi)                    # load, store
    xchg %rax, 8(%rsi)                  # load, store
    int $0x80
1:  ret                                 # load, branch

    .global user_fault
user_fault:                             # 3 + 4 RDI instructions, RDI loads, RDI branches, a fault on every page
    mov %rdi, %rcx
    mov $0x40000000, %esi
1:  mov (%rsi), %rax
    add $4096, %rsi
    dec %rcx
    jnz 1b
    int $0x80

    .global user_system_calls
user_system_calls:                      # 2 + 3 RDI instructions, 2 RDI branches
    mov %rdi, %rbx
1:  syscall
    dec %rbx
    jnz 1b
    int $0x80

    .global user_traps
user_traps:                             # 5 instructions: the int3 retires, the ud2 does not
    nop
    int3
    ud2
    nop
    nop
    int $0x80

    .global user_rdpmc
user_rdpmc:                             # RAX = instructions from one rdpmc (included) to the next
    mov $0x40000000, %ecx
    rdpmc
    mov %eax, %esi
    nop
    nop
    rdpmc
    sub %esi, %eax
    int $0x80

    .global user_speed
user_speed:
    mov %rdi, %rcx
    lea scratch, %rsi
1:  mov (%rsi), %rax
    add $1, %rax
    mov %rax, 8192(%rsi)
    dec %rcx
    jnz 1b
    int $0x80

    .section .bss
    .balign 4096
    .global scratch
scratch:
    .skip 262144
