//! The placement on cores: the server on cores of its own, the load on another.
//!
//! A process starts on the cores of the thread that starts it, and so do its threads.

use std::fmt;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of one measurement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Cores {
    server: Vec<usize>,
    load: Vec<usize>,
}

impl Cores {
    /// For a server with `threads` threads: the first cores there are, and the load on the next. If
    /// there are not enough, both share all cores.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        let allowed = sched_getaffinity(None).context("sched_getaffinity")?;
        let all = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        Ok(Self::among(&all.collect::<Vec<_>>(), threads))
    }

    fn among(all: &[usize], threads: usize) -> Self {
        match all.get(threads) {
            Some(next) => Self {
                server: all[..threads].to_vec(),
                load: vec![*next],
            },
            None => Self {
                server: all.to_vec(),
                load: all.to_vec(),
            },
        }
    }

    /// Whether the load takes nothing from the server.
    pub(crate) fn are_apart(&self) -> bool {
        self.server != self.load
    }

    /// Calls `start` on the cores of the server, then comes back to those of the load.
    ///
    /// The cores that were allowed before are lost: choose [`Cores`] for everything at the start.
    pub(crate) fn start<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        pin(&self.server)?;
        let started = start();
        pin(&self.load)?;
        started
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.are_apart() {
            write!(f, "server on {:?}, load on {:?}", self.server, self.load)
        } else {
            write!(f, "server and load share {:?}", self.server)
        }
    }
}

/// Keeps the calling thread on these cores.
fn pin(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(None, &set).with_context(|| format!("sched_setaffinity {cores:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_its_own_cores() {
        let cores = Cores::among(&[0, 1], 1);
        assert!(cores.are_apart());
        assert_eq!(cores.to_string(), "server on [0], load on [1]");
        let cores = Cores::among(&[2, 3, 5, 7], 2);
        assert_eq!(cores.to_string(), "server on [2, 3], load on [5]");
    }

    #[test]
    fn too_few_cores_are_shared() {
        let cores = Cores::among(&[0, 1], 2);
        assert!(!cores.are_apart());
        assert_eq!(cores.to_string(), "server and load share [0, 1]");
        assert!(!Cores::among(&[4], 1).are_apart());
    }
}
