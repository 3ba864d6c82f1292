//! TLS settings of a server: `-Z` and `-o ssl_…`.
//!
//! Names and defaults are memcached's. Source: 1.6.45 `tls.c`, `ssl_init_settings`, `ssl_help`.

use std::path::PathBuf;
use std::time::Duration;

/// TLS settings of the TCP ports. Unix sockets never use TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// The server's certificate chain up to its root, in PEM. `-o ssl_chain_cert`.
    pub chain_cert: PathBuf,
    /// The private key; `None`: it is in the same file. `-o ssl_key`.
    pub key: Option<PathBuf>,
    /// The encoding of the key. `-o ssl_keyformat`.
    pub key_format: KeyFormat,
    /// The certificate authorities that sign client certificates, in PEM. `-o ssl_ca_cert`.
    pub ca_cert: Option<PathBuf>,
    /// Whether clients need a certificate. `-o ssl_verify_mode`.
    pub client_certificate: ClientCertificate,
    /// The oldest TLS version accepted. `-o ssl_min_version`.
    pub min_version: TlsVersion,
    /// The TLS 1.2 cipher suites, by OpenSSL's names; `None`: all supported ones. Those of TLS 1.3 cannot be
    /// chosen. `-o ssl_ciphers`.
    pub ciphers: Option<Vec<String>>,
    /// Whether a returning client may resume its session. `-o ssl_session_cache`.
    pub session_cache: bool,
    /// The most time a client's handshake may take; it is checked once a second.
    pub handshake_max: Duration,
}

impl TlsSettings {
    /// TLS with this certificate; all other settings are memcached's defaults.
    #[must_use]
    pub fn new(chain_cert: PathBuf) -> Self {
        Self {
            chain_cert,
            key: None,
            key_format: KeyFormat::default(),
            ca_cert: None,
            client_certificate: ClientCertificate::default(),
            min_version: TlsVersion::default(),
            ciphers: None,
            session_cache: false,
            handshake_max: Duration::from_secs(10),
        }
    }
}

/// The encoding of a private key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyFormat {
    /// PEM: PKCS #1, PKCS #8 or SEC1.
    #[default]
    Pem,
    /// DER.
    Der,
}

/// Whether a client needs a certificate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientCertificate {
    /// The server requests none.
    #[default]
    Unasked,
    /// The server requests one. A client may send none, but an invalid one is rejected.
    Asked,
    /// The server rejects a client without a valid one.
    Required,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TlsVersion {
    /// 1.2, the oldest one supported.
    #[default]
    V1_2,
    /// 1.3.
    V1_3,
}
