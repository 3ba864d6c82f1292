//! The certificates for etcd, which a running process can read again.
//!
//! - R1: If a file has a mistake, the certificates stay as they are.
//! - R2: After a reload, each connection is opened anew before its next request: etcd checks a certificate only then.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::options::AuthorityOptions;
use super::tls::{self, Tls};

/// The files, and the certificates read last.
#[derive(Debug)]
pub(super) struct Credentials {
    options: AuthorityOptions,
    read: Mutex<Read>,
}

/// The certificates, and how often they were read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) number: u64,
    /// `None` if no endpoint uses TLS.
    pub(super) tls: Option<Tls>,
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or is not usable; the error names it.
    pub(super) fn load(options: &AuthorityOptions) -> io::Result<Self> {
        let tls = tls::read(options)?;
        Ok(Self {
            options: options.clone(),
            read: Mutex::new(Read { number: 0, tls }),
        })
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`Self::load`]; nothing has changed then (R1).
    pub(super) fn reload(&self) -> io::Result<()> {
        let tls = tls::read(&self.options)?;
        let mut read = self.read();
        read.number += 1;
        read.tls = tls;
        Ok(())
    }

    /// The certificates read last.
    pub(super) fn current(&self) -> Read {
        self.read().clone()
    }

    /// Whether the certificates with this number are those read last.
    pub(super) fn are_current(&self, number: u64) -> bool {
        self.read().number == number
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
