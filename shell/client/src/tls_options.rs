//! A client's TLS settings, without their implementation.

use std::path::PathBuf;

/// A client's TLS settings for TCP. By default, it accepts a server if the system trusts the certificate
/// authority, and the certificate is for the name in the server's address.
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

    /// Trusts the certificate authorities in this PEM file, and no others.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Presents a client certificate to a server that requests one. Both files are PEM, and can be the same:
    /// `chain` has the certificate and those that lead to its authority, `key` its private key.
    #[must_use]
    pub fn certificate(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some((chain.into(), key.into()));
        self
    }

    /// The name in the server's certificate, if it is not the host of its address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}
