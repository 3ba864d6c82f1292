//! How a server speaks TLS: what `-Z` and `-o ssl_…` say.
//!
//! Names and defaults are memcached's. Source: 1.6.45 `tls.c`, `ssl_init_settings`, `ssl_help`.

use std::path::PathBuf;
use std::time::Duration;

/// How a server speaks TLS on its TCP ports. A Unix socket never does.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// The server's certificate and those that lead to its root, in PEM. `-o ssl_chain_cert`.
    pub chain_cert: PathBuf,
    /// Its private key; `None` is in the same file. `-o ssl_key`.
    pub key: Option<PathBuf>,
    /// How the key is written. `-o ssl_keyformat`.
    pub key_format: KeyFormat,
    /// Whose certificates of clients are believed, in PEM. `-o ssl_ca_cert`.
    pub ca_cert: Option<PathBuf>,
    /// Whether clients show a certificate. `-o ssl_verify_mode`.
    pub client_certificate: ClientCertificate,
    /// The oldest version that is spoken. `-o ssl_min_version`.
    pub min_version: TlsVersion,
    /// The ciphers of TLS 1.2, by OpenSSL's names; `None` is all that there are. Those of TLS 1.3 are
    /// not chosen. `-o ssl_ciphers`.
    pub ciphers: Option<Vec<String>>,
    /// Whether a client that comes back may resume its session. `-o ssl_session_cache`.
    pub session_cache: bool,
    /// How long a client may take over its handshake, but for a second more.
    pub handshake_max: Duration,
}

impl TlsSettings {
    /// TLS by this certificate, with all else as memcached's.
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

/// How a private key is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyFormat {
    /// PEM, in any of the three forms of a key.
    #[default]
    Pem,
    /// DER.
    Der,
}

/// Whether a client shows a certificate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientCertificate {
    /// It is not asked.
    #[default]
    Unasked,
    /// It is asked: it may show none, but not a bad one.
    Asked,
    /// It shows a good one, or is not let in.
    Required,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TlsVersion {
    /// 1.2, the oldest there is here.
    #[default]
    V1_2,
    /// 1.3.
    V1_3,
}
