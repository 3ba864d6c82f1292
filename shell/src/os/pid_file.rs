//! `-P`: a file with the process id.
//!
//! The file is written under another name and renamed, so no reader sees half of it. It is removed at exit, unless
//! it belongs to another server by then. If it cannot be written, the server warns and serves clients.
//!
//! `MEMCACHED_PORT_FILENAME` is written in the same way. memcached's own tests read the port from it.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use latchd_server::{Address, may_replace};

/// A file with the process id; dropping the value removes it.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        // The path must stay valid if the process changes its directory.
        let path = std::path::absolute(path)?;
        replace(&path, "tmp", &format!("{}\n", std::process::id()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let is_ours = std::fs::read_to_string(&self.0)
            .is_ok_and(|text| text.trim() == std::process::id().to_string());
        if is_ours && let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// The file for the ports, if the environment names one.
pub(crate) fn ports_path() -> Option<PathBuf> {
    std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from)
}

/// Writes the ports of `addresses`, if the environment names a file.
///
/// # Errors
/// The kernel's, with the path.
pub(crate) fn write_ports(addresses: &[Address]) -> io::Result<()> {
    let Some(path) = ports_path() else {
        return Ok(());
    };
    let mut text = String::new();
    for address in addresses {
        if let Address::Tcp(address) = address {
            let family = if address.is_ipv4() { "INET" } else { "INET6" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "TCP {family}: {}", address.port());
        }
    }
    replace(&path, "lck", &text)
}

/// Replaces the file at `path` by one with this text, by renaming.
fn replace(path: &Path, suffix: &str, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(suffix);
    may_replace(path)
        .and_then(|()| std::fs::write(&beside, text))
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
