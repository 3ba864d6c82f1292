//! `-P`: a file with the number of the process, for whoever is to end it.
//!
//! It is written beside and renamed, so that nobody reads half of it, and removed at the end, unless it
//! is another server's by then. A file that cannot be written is a warning: clients are served.
//!
//! `MEMCACHED_PORT_FILENAME` is written in the same way: memcached's own tests learn the port from it.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use latchd_server::{Address, may_replace};

/// A file with the number of this process; it goes with the value.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes it.
    ///
    /// # Errors
    /// The kernel's, with the path.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        // A daemon may leave its directory some day.
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
            tracing::warn!("{} stays behind: {error}", self.0.display());
        }
    }
}

/// Where the ports are to be written, if the environment asks for it.
pub(crate) fn ports_path() -> Option<PathBuf> {
    std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from)
}

/// Writes the ports of `addresses`, if the environment asks for it.
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
            // A string has no end.
            let _ = writeln!(text, "TCP {family}: {}", address.port());
        }
    }
    replace(&path, "lck", &text)
}

/// Puts a file with this text where `path` says, by way of one beside it.
fn replace(path: &Path, suffix: &str, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(suffix);
    may_replace(path)
        .and_then(|()| std::fs::write(&beside, text))
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
