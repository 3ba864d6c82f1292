//! Replaces TLS in builds without the feature `tls`: uninhabited types.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use latchd_protocol::output::Output;

use crate::config::tls_settings::{ClientCertificate, TlsSettings};
use crate::net::send::Sent;
use crate::stats::connection_stats::Traffic;

/// No certificates.
#[derive(Debug)]
pub(crate) struct Keys(Infallible);

impl Keys {
    /// # Errors
    /// Always.
    pub(crate) fn load(_: &TlsSettings) -> io::Result<Self> {
        let what = "-Z: this latchd was built without TLS (feature `tls`)";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    pub(crate) fn reload(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn age(&self) -> Duration {
        match self.0 {}
    }

    pub(crate) fn not_after_unix_s(&self) -> Option<u64> {
        match self.0 {}
    }
}

/// No buffers.
#[derive(Debug, Default)]
pub(crate) struct Records {}

/// No socket.
#[derive(Debug)]
pub(crate) struct TlsSocket(Infallible);

impl TlsSocket {
    pub(crate) fn new(_: OwnedFd, keys: &Keys, _: ClientCertificate) -> Option<Self> {
        match keys.0 {}
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        match self.0 {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn has_ended(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn kept_bytes(&self) -> (usize, usize) {
        match self.0 {}
    }

    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        match self.0 {}
    }

    pub(crate) fn read(&mut self, _: &mut Vec<u8>, _: &mut Records) -> rustix::io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn send(
        &mut self,
        _: &mut Output,
        _: &Traffic,
        _: &mut Records,
    ) -> rustix::io::Result<Sent> {
        match self.0 {}
    }

    pub(crate) fn say_goodbye(&mut self) {
        match self.0 {}
    }
}

impl AsFd for TlsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

/// No failure.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) is_handshake: bool,
    never: Infallible,
}

impl fmt::Display for Failure {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}
