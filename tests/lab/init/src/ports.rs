//! The virtio-serial ports, found by the names the host gave them.

use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Ports are announced over the device's control queue, some time after the driver's probe.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the port called `name` for writing.
///
/// # Errors
/// When the host has announced no such port within ten seconds, or it cannot be opened.
pub(crate) fn open(name: &str) -> Result<File> {
    let deadline = Instant::now() + PATIENCE;
    let device = loop {
        if let Some(device) = find(name)? {
            break device;
        }
        if Instant::now() > deadline {
            bail!("the host announced no virtio port called {name}");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    OpenOptions::new().write(true).open(&device).with_context(|| format!("opening {}", device.display()))
}

fn find(name: &str) -> Result<Option<PathBuf>> {
    let Ok(ports) = fs::read_dir("/sys/class/virtio-ports") else {
        return Ok(None);
    };
    for port in ports {
        let port = port.context("listing /sys/class/virtio-ports")?;
        // The name follows the port itself in a second control message, so its file may not be there yet.
        let given = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if given.trim() == name {
            return Ok(Some(Path::new("/dev").join(port.file_name())));
        }
    }
    Ok(None)
}
