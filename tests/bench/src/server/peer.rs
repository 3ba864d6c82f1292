//! The servers that are measured: the program of each, its name, and its start.
//!
//! Each starts with the options that a user would give for the same threads, memory and connections,
//! and with its defaults in everything else.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use latchd_load::wire::Dialect;

/// The option style of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Latchd,
    Memcached,
    Yrmcds,
}

/// A program that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    /// Its name in tables: its own name for itself, unless the command line gives another.
    pub(crate) label: String,
    program: PathBuf,
}

/// The resources of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) threads: usize,
    pub(crate) memory_mib: u64,
    pub(crate) connections: usize,
}

impl Default for Allowance {
    /// One thread, as much memory as no workload needs, as many connections as are the default of
    /// memcached.
    fn default() -> Self {
        Self {
            threads: 1,
            memory_mib: 4096,
            connections: 1024,
        }
    }
}

impl Peer {
    /// Looks at `[LABEL=]PROGRAM`, where PROGRAM is a path or a name on PATH.
    ///
    /// # Errors
    /// There is no such program, or it is none of the three servers.
    pub(crate) fn find(words: &str) -> Result<Self> {
        let (label, program) = match words.split_once('=') {
            Some((label, program)) if !label.contains('/') => (Some(label.to_owned()), program),
            _ => (None, words),
        };
        // The package is called yrmcds and its program yrmcdsd.
        let name = if program == "yrmcds" {
            "yrmcdsd"
        } else {
            program
        };
        let program = located(name).with_context(|| format!("{name}: there is no such program"))?;
        let said = first_words(&program)?;
        let Some((kind, version)) = recognised(&said) else {
            bail!(
                "{}: neither latchd nor memcached nor yrmcds: it says {said:?}",
                program.display()
            );
        };
        Ok(Self {
            kind,
            label: label.unwrap_or(version),
            program,
        })
    }

    /// Whether it speaks `dialect`.
    pub(crate) fn speaks(&self, dialect: Dialect) -> bool {
        match (self.kind, dialect) {
            (Kind::Latchd | Kind::Memcached, _)
            | (Kind::Yrmcds, Dialect::Classic | Dialect::Binary) => true,
            (Kind::Yrmcds, Dialect::Meta) => false,
        }
    }

    /// Whether it has locks.
    pub(crate) fn has_locks(&self) -> bool {
        match self.kind {
            Kind::Latchd | Kind::Yrmcds => true,
            Kind::Memcached => false,
        }
    }

    /// The arguments that start it on this port of the loopback interface. Its further files are
    /// written into `folder`, which is its own.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(crate) fn words(
        &self,
        port: u16,
        allowance: Allowance,
        folder: &Path,
    ) -> Result<Vec<String>> {
        let Allowance {
            threads,
            memory_mib,
            connections,
        } = allowance;
        let mut words = vec![self.program.display().to_string()];
        match self.kind {
            Kind::Latchd => words.extend(["-l".into(), "127.0.0.1".into()]),
            Kind::Memcached => {
                words.extend(["-l", "127.0.0.1", "-U", "0"].map(String::from));
                if rustix::process::geteuid().is_root() {
                    words.extend(["-u".into(), "root".into()]);
                }
            }
            Kind::Yrmcds => {
                let config = folder.join("yrmcds.conf");
                let text = yrmcds_config(port, allowance, folder);
                std::fs::write(&config, text).with_context(|| config.display().to_string())?;
                words.extend(["-f".into(), config.display().to_string()]);
                return Ok(words);
            }
        }
        for (flag, number) in [
            ("-p", u64::from(port)),
            ("-t", u64::try_from(threads)?),
            ("-m", memory_mib),
            ("-c", u64::try_from(connections)?),
        ] {
            words.extend([flag.into(), number.to_string()]);
        }
        Ok(words)
    }
}

/// The configuration of its package, except for the addresses and its resources. Its port for
/// replication cannot be turned off.
fn yrmcds_config(port: u16, allowance: Allowance, folder: &Path) -> String {
    let Allowance {
        threads,
        memory_mib,
        connections: _, // 0 is "any number" and costs nothing
    } = allowance;
    format!(
        "virtual_ip = 127.0.0.1\nport = {port}\nrepl_port = {}\nmax_connections = 0\n\
         temp_dir = {:?}\nlog.threshold = error\nbuckets = 1000000\nmax_data_size = 10M\n\
         heap_data_limit = 256K\nmemory_limit = {memory_mib}M\nworkers = {threads}\n\
         gc_interval = 10\n",
        crate::server::replication_port(port),
        folder.display().to_string(),
    )
}

/// A program's output when asked for its version.
fn first_words(program: &Path) -> Result<String> {
    // yrmcds knows no --version and would start; the others would start with -v.
    let is_yrmcds = program
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains("yrmcds"));
    let flag = if is_yrmcds { "-v" } else { "--version" };
    let output = Command::new(program)
        .arg(flag)
        .output()
        .with_context(|| program.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

/// Which server says this about itself, and its name and version.
fn recognised(said: &str) -> Option<(Kind, String)> {
    let words: Vec<_> = said.split_ascii_whitespace().collect();
    match words.as_slice() {
        ["latchd", version, ..] => Some((Kind::Latchd, format!("latchd {version}"))),
        ["memcached", version, ..] => Some((Kind::Memcached, format!("memcached {version}"))),
        ["yrmcds", "version", version, ..] => Some((Kind::Yrmcds, format!("yrmcds {version}"))),
        _ => None,
    }
}

/// The program of this name, if it is one.
fn located(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|program| program.is_file());
    }
    // Where Debian puts servers is not on every user's PATH.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_recognised_by_their_version() {
        let said = |words| recognised(words).map(|(kind, label)| (kind, label.clone()));
        assert_eq!(
            said("memcached 1.6.45"),
            Some((Kind::Memcached, "memcached 1.6.45".into()))
        );
        assert_eq!(
            said("latchd 0.3.0"),
            Some((Kind::Latchd, "latchd 0.3.0".into()))
        );
        assert_eq!(
            said("yrmcds version 1.1.9"),
            Some((Kind::Yrmcds, "yrmcds 1.1.9".into()))
        );
        assert_eq!(said("redis 7"), None);
        assert_eq!(said(""), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_said() {
        let error = Peer::find("no-such-server").expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "no-such-server: there is no such program"
        );
        let error = Peer::find("old=/nowhere/latchd").expect_err("there is none");
        assert!(error.to_string().contains("/nowhere/latchd"));
    }
}
