//! A client's TLS settings, without their implementation.

use std::path::PathBuf;

use super::setters::setters;

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

    setters! {
        /// Trusts the certificate authorities in this PEM file, and no others.
        ca_file(path: impl Into<PathBuf>) => ca_file = Some(path.into());

        /// Presents a client certificate to a server that requests one. Both files are PEM, and can be the same:
        /// `chain` has the certificate and those that lead to its authority, `key` its private key.
        certificate(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) => certificate = Some((chain.into(), key.into()));

        /// The name in the server's certificate, if it is not the host of its address.
        server_name(name: impl Into<String>) => server_name = Some(name.into());
    }
}
