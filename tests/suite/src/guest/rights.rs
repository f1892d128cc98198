//! Who may measure what: an unprivileged user by the levels of `perf_event_paranoid`, and one with CAP_PERFMON. What hpmctl says are the
//! driver's own refusals; it asks for nothing less of itself.

use std::fs;
use std::process::{Child, Command, Stdio};

use anyhow::{Result, ensure};
use libhpm::trace::{MapRow, SampleRow, TraceReader};
use serde_json::Value;

use super::GuestReport;
use super::bad_input::refused;
use super::programs::{built, hpmctl, left_in, succeed};
use super::scopes::{NOBODY, as_nobody, mount_cgroups};

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const TRACE: &str = "/tmp/nobody/rights.hpm";
const RESULT: &str = "/tmp/nobody/rights.json";
/// What only who may measure the whole system is given.
const OF_THE_SYSTEM: [(&str, &[&str]); 3] =
    [("the system", &["-a"]), ("a CPU", &["-C", "0"]), ("a control group", &["--cgroup", "/sys/fs/cgroup"])];

/// `/dev/hpm` and `/tmp/nobody` are open to nobody ([`super::scopes::open_to_nobody`]).
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let usual = fs::read_to_string(PARANOID)?;
    mount_cgroups()?;
    for level in ["2", "1"] {
        fs::write(PARANOID, level)?;
        for (what, words) in OF_THE_SYSTEM {
            report.check(&format!("rights: {what} is refused to nobody at paranoid {level}"), || {
                refused(as_nobody(for_a_moment(words)?), "may not be measured by this user")
            });
        }
    }
    report.check("rights: kernel mode is nobody's at paranoid 1", || kernel_is_counted(as_nobody));
    fs::write(PARANOID, "3")?;
    report.check("rights: nobody records a program of its own at paranoid 3", recorded);
    fs::write(PARANOID, "2")?;
    for (what, subcommand) in [("counted", "stat"), ("sampled", "record")] {
        report.check(&format!("rights: kernel mode is not {what} for nobody at paranoid 2"), || {
            let words = ["--source", "driver", "-e", "load:k", "-o", "/tmp/nobody/refused", "--", "true"];
            refused(as_nobody(hpmctl(&[&[subcommand][..], &words].concat())?), "kernel mode")
        });
    }
    report.check(
        "rights: what was asked for in both modes is user mode alone for nobody, and says so",
        || {
            let event = counted(as_nobody(stat("instructions", &["--", "true"])?))?;
            ensure!(event["kernel"] == Value::Bool(false) && event["name"] == "instructions:u", "{event}");
            Ok(event.to_string())
        },
    );
    with_perfmon(report);
    fs::write(PARANOID, usual)?;
    Ok(())
}

/// What its samples are of is known: perf_event is nobody's at that level, and the driver tells what is mapped where.
fn recorded() -> Result<String> {
    let words =
        ["record", "--source", "driver", "-e", "branch:u", "--imprecise", "-c", "10007", "-o", TRACE, "--"];
    let mut command = hpmctl(&words)?;
    command.arg("sh").args(["-c", &format!("{} x; exec sort /etc/services", built("loops")?.display())]);
    succeed(as_nobody(command).stdout(Stdio::null()))?;
    let reader = TraceReader::open(TRACE)?;
    let maps: Vec<MapRow> = reader.rows().collect();
    let is_mapped = |sample: &SampleRow| {
        maps.iter().any(|map| map.pid == sample.pid && (map.start..map.end).contains(&sample.ip))
    };
    let (known, all) = reader
        .rows::<SampleRow>()
        .fold((0, 0), |(known, all), sample| (known + u32::from(is_mapped(&sample)), all + 1));
    ensure!(all > 100 && known == all, "of {all} samples {known} are where something is mapped");
    for program in ["loops", "sort"] {
        ensure!(maps.iter().any(|map| map.path.ends_with(program)), "{program} is mapped nowhere: {maps:?}");
    }
    Ok(format!("{all} samples in {} mappings", maps.len()))
}

/// A user with CAP_PERFMON may do all that.
fn with_perfmon(report: &mut GuestReport) {
    report.check("rights: kernel mode is CAP_PERFMON's", || kernel_is_counted(perfmon));
    for (what, words) in OF_THE_SYSTEM {
        report.check(&format!("rights: {what} is CAP_PERFMON's"), || {
            let busy = ["1", "sh", "-c", "while :; do :; done"];
            let _busy = Running(Command::new("taskset").args(busy).stdout(Stdio::null()).spawn()?);
            counted(perfmon(for_a_moment(words)?)).map(|event| event.to_string())
        });
    }
    report.check("rights: another user's process is CAP_PERFMON's", || {
        let mut target = Running(Command::new("sleep").arg("600").stdout(Stdio::null()).spawn()?);
        let pid = target.0.id().to_string();
        succeed(&mut perfmon(for_a_moment(&["-p", &pid])?))?;
        ensure!(target.0.try_wait()?.is_none(), "it ended");
        Ok(String::new())
    });
}

/// Ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kernel_is_counted(user: impl Fn(Command) -> Command) -> Result<String> {
    let event = counted(user(stat("instructions:k", &["--", "true"])?))?;
    ensure!(event["user"] == Value::Bool(false) && event["kernel"] == Value::Bool(true), "{event}");
    Ok(event.to_string())
}

fn stat(event: &str, words: &[&str]) -> Result<Command> {
    hpmctl(&[&["stat", "--source", "driver", "--json", "-o", RESULT, "-e", event], words].concat())
}

fn for_a_moment(words: &[&str]) -> Result<Command> {
    stat("instructions:u", &[&["--duration", "0.3"], words].concat())
}

/// The only event, of which there was some.
fn counted(mut command: Command) -> Result<Value> {
    succeed(&mut command)?;
    let result = left_in(RESULT)?;
    let event = result["events"][0].clone();
    ensure!(event["count"].as_u64().is_some_and(|count| count > 1000), "it counted {event}");
    Ok(event)
}

/// As nobody with CAP_PERFMON, and nothing else.
fn perfmon(command: Command) -> Command {
    let mut as_user = Command::new("setpriv");
    let nobody = NOBODY.to_string();
    as_user.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", "--inh-caps", "+perfmon"]);
    as_user.args(["--ambient-caps", "+perfmon"]).arg(command.get_program()).args(command.get_args());
    as_user.stdin(Stdio::null());
    as_user
}
