//! How much of the kernel's stack the module's functions take: a whole stack is 16 KiB, and an overflow ends the machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::check::Tally;

/// Bytes that one function may take. CONFIGURE's path has three of the largest one below the other: with 8 KiB for one of them,
/// random requests have met the guard page.
const FRAME_MAX: u64 = 7 * 1024;

/// Looks at the module that the lab has built last for its newest kernel.
pub(crate) fn check(root: &Path, tally: &mut Tally) {
    tally.run("no function of hpm.ko takes much of the kernel's stack", || {
        let module = root.join("target/lab/kernels/newest/hpm/hpm.ko");
        let text = disassembly(&module)?;
        let frames = frames(&text);
        let (bytes, function) = frames.iter().max().context("objdump shows no function with a frame")?;
        ensure!(*bytes <= FRAME_MAX, "{function} takes {bytes} bytes, more than {FRAME_MAX}");
        Ok(format!("at most {bytes} bytes, of {} functions with a frame", frames.len()))
    });
}

fn disassembly(module: &Path) -> Result<String> {
    let mut objdump = Command::new("objdump");
    let output = objdump.args(["-d", "--no-show-raw-insn"]).arg(module).output();
    let output = output.context("objdump cannot be started: install binutils")?;
    ensure!(output.status.success(), "objdump: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The bytes and the name of each function that lowers the stack pointer by a constant.
fn frames(disassembly: &str) -> Vec<(u64, &str)> {
    let mut function = "";
    let mut found = Vec::new();
    for line in disassembly.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            function = name;
        } else if let Some(bytes) = lowered(line) {
            found.push((bytes, function));
        }
    }
    found
}

/// `sub $0x1a88,%rsp`
fn lowered(line: &str) -> Option<u64> {
    let (_, operands) = line.split_once("sub ")?;
    u64::from_str_radix(operands.trim().strip_prefix("$0x")?.strip_suffix(",%rsp")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::frames;

    #[test]
    fn frames_are_read_from_a_disassembly() {
        let text = "0000000000000010 <small>:\n  10:\tsub    $0x18,%rsp\n  14:\tsub    $0x1,%rax\n\n\
            0000000000000020 <large>:\n  20:\tpush   %rbp\n  21:\tsub    $0x1a88,%rsp\n";
        assert_eq!(frames(text), [(0x18, "small"), (0x1a88, "large")]);
    }
}
