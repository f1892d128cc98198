//! QEMU's command line.

use crate::sandbox::program;
use crate::tree::Tree;
use lab_init::{PORT_STATUS, PORT_STDERR, PORT_STDOUT, Share, TAG_ROOT};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel command line of every run; what the user appends comes later and so wins.
///
/// `panic=-1 oops=panic reboot=t`: a broken kernel ends the run at once. `nmi_watchdog=0`: the watchdog would
/// hold a counter; PID 1 has it run once for a moment. `tsc=reliable`: emulated CPUs are not synchronised well enough for the kernel's test of
/// the TSC, and it would fall back to a slow clock. `no_timer_check`: on a busy host the emulated timer may tick
/// too late for the kernel's test of it, which then panics; for the same reason RCU waits longer before it
/// complains. `random.trust_cpu=on`: no waiting for entropy. The last two save half a second of emulated
/// public-key cryptography: self-tests, and certificates that only signed modules need.
const CMDLINE: &str = "console=ttyS0 panic=-1 oops=panic reboot=t nmi_watchdog=0 tsc=reliable no_timer_check \
    rcupdate.rcu_cpu_stall_timeout=300 random.trust_cpu=on cryptomgr.notests \
    initcall_blacklist=load_system_certificate_list";

/// One virtual machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The ELF kernel.
    pub(crate) kernel: PathBuf,
    /// QEMU's `-cpu`.
    pub(crate) cpu: &'static str,
    /// Number of CPUs.
    pub(crate) cpus: u32,
    /// How many of them a core has.
    pub(crate) threads: u32,
    /// Memory in MiB.
    pub(crate) memory_mib: u32,
    /// ns that an instruction takes, a power of two; `None`: time is the host's, however many are executed.
    pub(crate) instruction_ns: Option<u32>,
    /// Rate of the guest's time stamp counter in kHz, if known.
    pub(crate) tsc_khz: Option<u64>,
    /// Added to the kernel command line.
    pub(crate) append: Vec<String>,
    /// PMU plugin and its arguments.
    pub(crate) plugin: Option<(PathBuf, Vec<String>)>,
    /// The file of its disk.
    pub(crate) disk: Option<PathBuf>,
    /// Host folders the guest may write to.
    pub(crate) shares: Vec<Share>,
    /// A terminal instead of separate standard output and error.
    pub(crate) terminal: bool,
}

/// Files of one run.
pub(crate) struct RunFiles<'a> {
    /// The initramfs.
    pub(crate) initramfs: &'a Path,
    /// Takes the kernel's console.
    pub(crate) console: &'a Path,
    /// Takes the outcome.
    pub(crate) status: &'a Path,
}

/// The command that runs `machine`. Its standard input and output are the guest's: the terminal's two ends,
/// or else the two pipes that take the guest's standard error (as descriptor 0) and output (as descriptor 1).
///
/// setpriv makes the kernel kill QEMU when the lab dies, however that happens.
pub(crate) fn command(tree: &Tree, machine: &Machine, files: &RunFiles<'_>) -> Command {
    let qemu = program(&tree.dir, "usr/bin/qemu-system-x86_64");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(qemu.get_program()).args(qemu.get_args());
    command.env("QEMU_MODULE_DIR", tree.dir.join("usr/lib/x86_64-linux-gnu/qemu"));
    for folder in ["usr/share/qemu", "usr/share/seabios"] {
        command.arg("-L").arg(tree.dir.join(folder));
    }
    command.args(arguments(machine, files));
    command
}

fn arguments(machine: &Machine, files: &RunFiles<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| {
        args.push(name.into());
        args.push(value);
    };
    add(
        "-machine",
        "q35,vmport=off,hpet=off,smm=off,graphics=off,sata=off,smbus=off,usb=off,i8042=off".into(),
    );
    add("-cpu", machine.cpu.into());
    add("-smp", format!("{},threads={}", machine.cpus, machine.threads).into());
    add("-m", machine.memory_mib.to_string().into());
    if let Some(ns) = machine.instruction_ns {
        add("-accel", "tcg,thread=single".into());
        add("-icount", format!("shift={},sleep=off", ns.ilog2()).into());
        add("-rtc", "base=2026-01-01,clock=vm".into());
        add("-seed", "1".into());
    } else {
        add("-accel", "tcg,thread=multi".into());
    }
    add("-kernel", machine.kernel.clone().into());
    add("-initrd", files.initramfs.into());
    add("-append", cmdline(machine).into());
    add("-serial", option("file:", files.console));
    add("-device", "virtio-serial-pci,max_ports=4".into());
    if machine.terminal {
        add("-chardev", "stdio,id=terminal,signal=off".into());
        add("-device", "virtconsole,chardev=terminal".into());
    } else {
        for (port, descriptor) in [(PORT_STDOUT, 1), (PORT_STDERR, 0)] {
            add("-chardev", format!("file,id={port},path=/dev/fd/{descriptor}").into());
            add("-device", format!("virtserialport,chardev={port},name={port}").into());
        }
    }
    add("-chardev", option("file,id=status,path=", files.status));
    add("-device", format!("virtserialport,chardev=status,name={PORT_STATUS}").into());
    if let Some(disk) = &machine.disk {
        // Nothing on it outlives the guest, so that nobody waits for the host's disk.
        let drive = option("if=none,id=disk,format=raw,cache=unsafe,file=", disk);
        args.extend(["-drive".into(), drive, "-device".into(), "virtio-blk-pci,drive=disk".into()]);
    }
    export(&mut args, TAG_ROOT, Path::new("/"), true);
    for share in &machine.shares {
        export(&mut args, &share.tag, &share.path, false);
    }
    if let Some((plugin, plugin_args)) = &machine.plugin {
        let mut value = option("file=", plugin);
        for arg in plugin_args {
            value.push(option(",", Path::new(arg)));
        }
        args.extend(["-plugin".into(), value]);
    }
    args.extend(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"].map(OsString::from));
    args
}

fn export(args: &mut Vec<OsString>, tag: &str, path: &Path, readonly: bool) {
    let mut fsdev = option(&format!("local,id={tag},security_model=none,multidevs=remap,path="), path);
    if readonly {
        fsdev.push(",readonly=on");
    }
    args.extend(["-fsdev".into(), fsdev, "-device".into()]);
    args.push(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}").into());
}

fn cmdline(machine: &Machine) -> String {
    let mut line = CMDLINE.to_owned();
    if machine.instruction_ns.is_some() {
        // Addresses are part of what has to repeat.
        line += " norandmaps";
    } else if let Some(khz) = machine.tsc_khz {
        line += &format!(" tsc_early_khz={khz}");
    }
    for more in &machine.append {
        line += " ";
        line += more;
    }
    line
}

/// `prefix` and a value in which commas are doubled, as QEMU's option parser wants.
fn option(prefix: &str, value: &Path) -> OsString {
    let mut text = OsString::from(prefix);
    text.push(value.to_string_lossy().replace(',', ",,"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            kernel: "/boot/vmlinux".into(),
            cpu: "c",
            cpus: 2,
            threads: 1,
            memory_mib: 512,
            instruction_ns: None,
            tsc_khz: Some(2_600_000),
            append: vec!["pti=off".into(), "nmi_watchdog=1".into()],
            plugin: None,
            disk: None,
            shares: vec![],
            terminal: false,
        }
    }

    #[test]
    fn commas_in_paths_do_not_end_an_option() {
        assert_eq!(option("path=", Path::new("/a,b")), "path=/a,,b");
    }

    #[test]
    fn appended_words_come_last_and_isolation_is_left_alone() {
        let line = cmdline(&machine());
        assert!(line.ends_with(" pti=off nmi_watchdog=1"), "{line}");
        let plain = cmdline(&Machine { append: vec![], ..machine() });
        assert!(!plain.contains("pti") && plain.contains("tsc_early_khz=2600000"), "{plain}");
        let deterministic = cmdline(&Machine { instruction_ns: Some(2), ..machine() });
        assert!(!deterministic.contains("tsc_early_khz"), "virtual time has its own rate: {deterministic}");
    }
}
