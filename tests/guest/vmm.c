/*
 * A virtual machine of one processor, which executes a loop of N turns in user mode (privilege level 3) and then writes to a port:
 * 2 N + 2 instructions. `vmm N` ends with 0 when the loop has come to its end. KVM's interface is in the kernel's
 * Documentation/virt/kvm/api.rst. The truth has what program and guest execute in user mode as the window `vmm`
 * (tests/vpmu).
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* Where the guest's code lies, in its memory of one page. */
#define CODE 0x1000
#define PAGE 4096

static int must(int result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

/* Flat segments of 32 bits, at privilege level 3; no page tables. */
static void set_segments(int vcpu)
{
	struct kvm_segment code = {
		.limit = 0xffffffff, .selector = 0x1b, .type = 0xb, .present = 1, .dpl = 3, .db = 1, .s = 1, .g = 1,
	};
	struct kvm_segment data = code;
	struct kvm_sregs sregs;

	must(ioctl(vcpu, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	data.type = 3;
	data.selector = 0x23;
	sregs.cs = code;
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
	sregs.cr0 |= 1; /* CR0.PE */
	must(ioctl(vcpu, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
}

static void load(int vm, uint32_t turns)
{
	/* mov ecx, turns; 1: dec ecx; jnz 1b; out 0x80, al */
	unsigned char code[] = { 0xb9, 0, 0, 0, 0, 0x49, 0x75, 0xfd, 0xe6, 0x80 };
	void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = CODE, .memory_size = PAGE, .userspace_addr = (uint64_t)memory,
	};

	if (memory == MAP_FAILED)
		must(-1, "mmap");
	memcpy(code + 1, &turns, sizeof(turns));
	memcpy(memory, code, sizeof(code));
	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
}

/* Opens (2) or closes (3) the window "vmm" in the model's truth. */
static void window(uint32_t what)
{
	uint32_t eax = 0x48504d00, edx;
	uint64_t rbx = 0x6d6d76;

	__asm__ volatile("cpuid" : "+a"(eax), "+b"(rbx), "+c"(what), "=d"(edx) : : "memory");
}

static int run(uint32_t turns)
{
	struct kvm_regs regs = { .rip = CODE, .rflags = 0x3002 /* IOPL 3 */ };
	int kvm = must(open("/dev/kvm", O_RDWR), "/dev/kvm");
	int vm = must(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
	int vcpu, bytes = must(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
	struct kvm_run *state;

	load(vm, turns);
	vcpu = must(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
	state = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (state == MAP_FAILED)
		must(-1, "mmap");
	set_segments(vcpu);
	must(ioctl(vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
	must(ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
	must(ioctl(vcpu, KVM_GET_REGS, &regs), "KVM_GET_REGS");
	if (state->exit_reason == KVM_EXIT_IO && regs.rcx == 0)
		return 0;
	fprintf(stderr, "the guest ended with exit reason %u and %llu turns left\n", state->exit_reason, regs.rcx);
	return 1;
}

int main(int argc, char **argv)
{
	int failed;

	window(2);
	failed = run(argc > 1 ? strtoul(argv[1], NULL, 0) : 1);
	window(3);
	return failed;
}
