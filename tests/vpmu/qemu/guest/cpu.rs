//! The processor: registers, ring 3, exceptions, the local APIC, the way out.

use core::arch::asm;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub const IA32_APIC_BASE: u32 = 0x1b;
pub const IA32_PMC0: u32 = 0xc1;
pub const IA32_PERFEVTSEL0: u32 = 0x186;
pub const IA32_FIXED_CTR0: u32 = 0x309;
pub const IA32_PERF_CAPABILITIES: u32 = 0x345;
pub const IA32_FIXED_CTR_CTRL: u32 = 0x38d;
pub const IA32_PERF_GLOBAL_STATUS: u32 = 0x38e;
pub const IA32_PERF_GLOBAL_CTRL: u32 = 0x38f;
pub const IA32_PERF_GLOBAL_STATUS_RESET: u32 = 0x390;
pub const IA32_PEBS_ENABLE: u32 = 0x3f1;
pub const IA32_DS_AREA: u32 = 0x600;
const IA32_STAR: u32 = 0xc000_0081;
const IA32_LSTAR: u32 = 0xc000_0082;
const IA32_FMASK: u32 = 0xc000_0084;
const X2APIC_LVTPC: u32 = 0x834;
const LVTPC: *mut u32 = 0xfee0_0340 as *mut u32;
const SVR: *mut u32 = 0xfee0_00f0 as *mut u32;
const NMI: u32 = 4 << 8;
const MASKED: u32 = 1 << 16;

/// Pages that fault until the handler maps them.
pub const FAULT_PAGES: u64 = 0x4000_0000;
/// What a user program returns that a #GP ended.
pub const GP_IN_USER: u64 = 0xdead;

unsafe extern "C" {
    fn enter_user(code: unsafe extern "C" fn(), argument: u64) -> u64;
    fn system_call();
    static stubs: [[u64; 2]; 9];
    static mut fault_pages: [u64; 512];
    static mut tss_descriptor: [u64; 2];
    static tss: [u8; 104];
    static start_info: u64;
}

static EVERYTHING: AtomicBool = AtomicBool::new(false);
static X2APIC: AtomicBool = AtomicBool::new(false);
static FAULTS: AtomicU64 = AtomicU64::new(0);
/// Where to go on after a #GP in ring 0; 0 if none is expected.
static RESUME: AtomicU64 = AtomicU64::new(0);
static INTERRUPTED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static mut IDT: [[u64; 2]; 256] = [[0; 2]; 256];

/// What an exception stub leaves on the stack.
#[repr(C)]
pub struct Frame {
    /// R15 to RAX, in the reverse order of pushing.
    registers: [u64; 15],
    vector: u64,
    code: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

const FRAME_RCX: usize = 13;
const FRAME_RAX: usize = 14;

#[unsafe(no_mangle)]
extern "C" fn exception_handler(frame: &mut Frame) {
    match frame.vector {
        2 => {
            INTERRUPTED[0].store(frame.rip, Relaxed);
            INTERRUPTED[1].store(frame.registers[FRAME_RCX], Relaxed);
        }
        3 => {}
        6 => frame.rip += 2,
        13 if RESUME.load(Relaxed) != 0 => frame.rip = RESUME.swap(0, Relaxed),
        13 if frame.cs & 3 == 3 => {
            FAULTS.fetch_add(1, Relaxed);
            frame.registers[FRAME_RAX] = GP_IN_USER;
            // To the program's end; there is nothing to count then.
            frame.rip = end_of_program as *const () as u64;
        }
        14 => map_fault_page(),
        _ => fatal(frame),
    }
}

core::arch::global_asm!(".global end_of_program", "end_of_program:", "int 0x80");
unsafe extern "C" {
    fn end_of_program();
}

fn fatal(frame: &Frame) -> ! {
    use fmt::Write;
    let _ = writeln!(Console, "FAIL exception {} code {:#x} at {:#x}", frame.vector, frame.code, frame.rip);
    exit(1)
}

fn map_fault_page() {
    let linear: u64;
    // SAFETY: reads CR2.
    unsafe { asm!("mov {}, cr2", out(reg) linear) };
    let page = (linear.wrapping_sub(FAULT_PAGES) / 4096) as usize;
    if page >= 512 {
        use fmt::Write;
        let _ = writeln!(Console, "FAIL page fault at {linear:#x}");
        exit(1);
    }
    // All of them show the same frame, at 32 MiB.
    // SAFETY: page tables are only used here.
    unsafe { (&raw mut fault_pages[page]).write_volatile(0x200_0000 | 7) };
}

/// The number on the command line (QEMU's `-append`), 0 if there is none.
pub fn argument() -> u64 {
    // SAFETY: set by boot.s; the structure has the address of the command line at offset 24.
    let line = unsafe { *((start_info + 24) as *const u64) } as *const u8;
    let mut number = 0;
    for i in 0..20 {
        // SAFETY: the line ends with a zero byte, where the loop ends.
        let byte = unsafe { line.add(i).read() };
        if !byte.is_ascii_digit() {
            break;
        }
        number = number * 10 + u64::from(byte - b'0');
    }
    number
}

/// Makes all fault pages fault again.
pub fn unmap_fault_pages() {
    for page in 0..512 {
        // SAFETY: as above; nothing else lives there.
        unsafe { (&raw mut fault_pages[page]).write_volatile(0) };
    }
    // SAFETY: reloads CR3, which empties the TLB.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _) };
}

/// Sets up what `boot.s` left: descriptors, system calls, the APIC.
pub fn init() {
    // SAFETY: constants of boot.s.
    for [vector, entry] in unsafe { stubs }.into_iter().take_while(|gate| gate[1] != 0) {
        // Interrupt gate in segment 8; ring 3 may use it.
        let low = entry & 0xffff | 8 << 16 | 0xee << 40 | (entry >> 16 & 0xffff) << 48;
        // SAFETY: set up before the table is loaded.
        unsafe { (&raw mut IDT[vector as usize]).write([low, entry >> 32]) };
    }
    let base = &raw const tss as u64;
    let low = 103 | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
    // SAFETY: set up before the register is loaded.
    unsafe { (&raw mut tss_descriptor).write([low, base >> 32]) };
    let mut pointer = [0u16; 5];
    pointer[0] = 4095;
    let table = &raw const IDT as u64;
    for i in 0..4 {
        pointer[i + 1] = (table >> (16 * i)) as u16;
    }
    // SAFETY: both descriptors are valid.
    unsafe { asm!("lidt [{}]", "ltr {:x}", in(reg) &raw const pointer, in(reg) 0x28u16) };
    wrmsr(IA32_STAR, 0x10 << 48 | 8 << 32);
    wrmsr(IA32_LSTAR, system_call as *const () as u64);
    wrmsr(IA32_FMASK, 0x200);
    // SAFETY: the APIC's page is mapped; this enables the APIC.
    unsafe { SVR.write_volatile(0x1ff) };
}

pub fn wrmsr(msr: u32, value: u64) {
    // SAFETY: the callers write registers whose effect they want.
    unsafe { asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32) };
}

pub fn rdmsr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading has no effect.
    unsafe { asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high) };
    u64::from(high) << 32 | u64::from(low)
}

/// Runs one instruction that may fault; expands to whether it did not.
macro_rules! attempt {
    ($instruction:literal, $($operands:tt)*) => {{
        // SAFETY: on #GP execution goes on behind the instruction with RESUME cleared.
        unsafe {
            asm!(
                "lea {resume}, [rip + 2f]",
                "mov [{at}], {resume}",
                $instruction,
                "2:",
                resume = out(reg) _,
                at = in(reg) RESUME.as_ptr(),
                $($operands)*
            );
        }
        RESUME.swap(0, Relaxed) != 0
    }};
}

/// `WRMSR`; false if it raised #GP.
pub fn try_wrmsr(msr: u32, value: u64) -> bool {
    attempt!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32)
}

/// `RDMSR`; none if it raised #GP.
pub fn try_rdmsr(msr: u32) -> Option<u64> {
    let (mut low, mut high) = (0u32, 0u32);
    attempt!("rdmsr", in("ecx") msr, inout("eax") low, inout("edx") high)
        .then_some(u64::from(high) << 32 | u64::from(low))
}

/// `RDPMC`; none if it raised #GP.
pub fn try_rdpmc(ecx: u32) -> Option<u64> {
    let (mut low, mut high) = (0u32, 0u32);
    attempt!("rdpmc", in("ecx") ecx, inout("eax") low, inout("edx") high)
        .then_some(u64::from(high) << 32 | u64::from(low))
}

/// Runs `program` in ring 3; its RAX at the end.
pub fn run_user(program: unsafe extern "C" fn(), argument: u64) -> u64 {
    // SAFETY: programs end with `int $0x80`, which returns here.
    unsafe { enter_user(program, argument) }
}

/// Asks the plugin for `function`.
pub fn hypercall(function: u32) -> u32 {
    core::arch::x86_64::__cpuid_count(0x4850_4d00, function).eax
}

pub fn observe_everything(all: bool) {
    EVERYTHING.store(all, Relaxed);
}

/// Whether a counter of cycles is to run beside, so that the plugin observes everything.
pub fn everything() -> bool {
    EVERYTHING.load(Relaxed)
}

/// CR4.PCE.
pub fn allow_user_rdpmc(allow: bool) {
    let mut cr4: u64;
    // SAFETY: reads CR4.
    unsafe { asm!("mov {}, cr4", out(reg) cr4) };
    cr4 = if allow { cr4 | 1 << 8 } else { cr4 & !(1 << 8) };
    // SAFETY: changes PCE only.
    unsafe { asm!("mov cr4, {}", in(reg) cr4) };
}

/// How many #GPs ended user programs since the last call.
pub fn take_faults() -> u64 {
    FAULTS.swap(0, Relaxed)
}

/// RIP and RCX that the last PMI interrupted.
pub fn take_interrupt() -> (u64, u64) {
    (INTERRUPTED[0].swap(0, Relaxed), INTERRUPTED[1].swap(0, Relaxed))
}

/// Lets the next PMI come, as an NMI.
pub fn unmask_pmi() {
    if X2APIC.load(Relaxed) {
        wrmsr(X2APIC_LVTPC, NMI.into());
    } else {
        // SAFETY: the APIC's page is mapped.
        unsafe { LVTPC.write_volatile(NMI) };
    }
}

/// Whether LVTPC is masked.
pub fn pmi_is_masked() -> bool {
    // SAFETY: the APIC's page is mapped in xAPIC mode.
    let entry =
        if X2APIC.load(Relaxed) { rdmsr(X2APIC_LVTPC) as u32 } else { unsafe { LVTPC.read_volatile() } };
    entry & MASKED != 0
}

/// Switches to x2APIC mode, if the processor has it.
pub fn enable_x2apic() -> bool {
    let has = core::arch::x86_64::__cpuid(1).ecx >> 21 & 1 == 1;
    if has {
        wrmsr(IA32_APIC_BASE, rdmsr(IA32_APIC_BASE) | 1 << 10);
        X2APIC.store(true, Relaxed);
    }
    has
}

/// QEMU's debug console.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the port prints a byte.
            unsafe { asm!("out 0xe9, al", in("al") byte) };
        }
        Ok(())
    }
}

/// Ends QEMU with exit status 1 + 2 `failed` (device isa-debug-exit).
pub fn exit(failed: u32) -> ! {
    // SAFETY: the port ends QEMU.
    unsafe { asm!("out 0xf4, eax", in("eax") failed.min(100)) };
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    use fmt::Write;
    let _ = writeln!(Console, "FAIL {info}");
    exit(1)
}

/// The core library of a hosted target names it in tables that nobody reads here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
