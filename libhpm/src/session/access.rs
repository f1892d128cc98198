//! Descriptors that a request names: they are open while it is made.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use hpm_abi::{SessionConfig, SessionFlags};

use super::options::Target;
use crate::{Error, Result};

/// The open descriptors of a request.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// `/proc/PID/environ`: the kernel opens it for who may read the process as ptrace does.
    proof: Option<File>,
    /// The control group's directory.
    cgroup: Option<File>,
}

impl Access {
    /// Opens what shows the driver the target, and the caller's right to it. A proof that cannot be had is none: the
    /// driver says then what is missing, or needs none.
    ///
    /// # Errors
    /// [`Error::Io`] when the control group's directory cannot be opened.
    pub(super) fn of(target: &Target) -> Result<Self> {
        match target {
            Target::Process(number) | Target::Thread(number) => {
                Ok(Self { proof: File::open(format!("/proc/{number}/environ")).ok(), cgroup: None })
            }
            Target::Cgroup(path) => {
                let doing = || format!("open the control group {}", path.display());
                let cgroup = File::open(path).map_err(|e| Error::Io { doing: doing(), reason: e })?;
                Ok(Self { proof: None, cgroup: Some(cgroup) })
            }
            Target::System | Target::Cpu(_) => Ok(Self::default()),
        }
    }

    /// Names the descriptors in the request.
    pub(super) fn name_in(&self, config: &mut SessionConfig) {
        let number = |file: &File| -> RawFd { file.as_raw_fd() };
        config.cgroup_fd = self.cgroup.as_ref().map_or(0, number);
        config.proof_fd = self.proof.as_ref().map_or(0, number);
        if self.proof.is_some() {
            config.flags |= SessionFlags::PROOF;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_process_is_proven_and_nothing_else_is_asked() {
        let target = Target::Process(std::process::id() as i32);
        let access = Access::of(&target).unwrap();
        let mut config = SessionConfig::default();
        access.name_in(&mut config);
        assert_eq!((config.flags, config.cgroup_fd), (SessionFlags::PROOF, 0));
        assert!(config.proof_fd > 0);
    }

    #[test]
    fn a_process_that_does_not_exist_is_left_to_the_driver() {
        let mut config = SessionConfig::default();
        Access::of(&Target::Thread(i32::MAX)).unwrap().name_in(&mut config);
        assert_eq!(config, SessionConfig::default());
    }

    #[test]
    fn a_missing_control_group_is_named() {
        let error = Access::of(&Target::Cgroup("/no/such/group".into())).unwrap_err();
        assert!(error.to_string().contains("/no/such/group"), "{error}");
    }
}
