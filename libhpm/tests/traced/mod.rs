//! A program that is executed step by step, and its registers, for the tests that do so.

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

use iced_x86::{OpAccess, Register};
use libhpm::trace::Registers;
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// What the kernel says of a stopped thread.
pub(crate) type Stopped = nix::libc::user_regs_struct;

/// Starts a program that we trace from before its first instruction on: what waits to become it is stopped. `None` where a container
/// forbids that.
pub(crate) fn start<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Option<(Child, Pid)> {
    let mut child = Command::new("sh")
        .args(["-c", "read line; exec \"$@\"", "sh"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    if ptrace::attach(pid).is_err() {
        child.kill().unwrap();
        child.wait().unwrap();
        return None;
    }
    waitpid(pid, None).unwrap();
    drop(child.stdin.take());
    Some((child, pid))
}

/// Whether an access loads.
pub(crate) fn loads(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// As a record has them.
pub(crate) fn registers(from: &Stopped) -> Registers {
    Registers([
        from.eflags,
        from.rip,
        from.rax,
        from.rbx,
        from.rcx,
        from.rdx,
        from.rsi,
        from.rdi,
        from.rbp,
        from.rsp,
        from.r8,
        from.r9,
        from.r10,
        from.r11,
        from.r12,
        from.r13,
        from.r14,
        from.r15,
    ])
}

/// A register's value, as an address takes it; bases of segments are those of the thread.
pub(crate) fn value(from: &Stopped, register: Register) -> Option<u64> {
    let all = [
        (Register::RAX, from.rax),
        (Register::RBX, from.rbx),
        (Register::RCX, from.rcx),
        (Register::RDX, from.rdx),
        (Register::RSI, from.rsi),
        (Register::RDI, from.rdi),
        (Register::RBP, from.rbp),
        (Register::RSP, from.rsp),
        (Register::R8, from.r8),
        (Register::R9, from.r9),
        (Register::R10, from.r10),
        (Register::R11, from.r11),
        (Register::R12, from.r12),
        (Register::R13, from.r13),
        (Register::R14, from.r14),
        (Register::R15, from.r15),
    ];
    match register {
        Register::FS => return Some(from.fs_base),
        Register::GS => return Some(from.gs_base),
        segment if segment.is_segment_register() => return Some(0),
        _ => {}
    }
    let whole = all.into_iter().find(|(one, _)| *one == register.full_register())?.1;
    Some(match register.size() {
        4 => whole & 0xffff_ffff,
        2 => whole & 0xffff,
        1 => whole & 0xff,
        _ => whole,
    })
}
