//! How a client speaks TLS: what is said about it, and not yet how it is done.

use std::path::PathBuf;

/// How a client speaks TLS on TCP. The default: with any server whose certificate is signed by an authority
/// that the system believes, and is for the name in the server's address.
///
/// The files are read when the client is made, and again by the next client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsOptions {
    pub(super) ca_file: Option<PathBuf>,
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
    pub(super) server_name: Option<String>,
}

impl TlsOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes the authorities whose certificates are in this file, in PEM, and no others.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Shows a server that asks for it the certificate in one file, with those that lead to its authority, and
    /// has its private key in the other, or the same: both in PEM.
    #[must_use]
    pub fn certificate(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some((chain.into(), key.into()));
        self
    }

    /// The name that is in the server's certificate, where it is not the host of its address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}
