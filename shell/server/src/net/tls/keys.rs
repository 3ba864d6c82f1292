//! The certificates and keys of a server, from its files.
//!
//! - K1: All files are read before any is used. A file with a mistake changes nothing, at the start or later;
//!   the error names it.
//! - K2: A connection keeps the keys it began with. The next connection uses the keys read last.
//!
//! Source: memcached 1.6.45 `tls.c`, `load_server_certificates`, `ssl_init`.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{
    NoServerSessionStorage, ServerConfig, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::version::{TLS12, TLS13};

use super::expiry::not_after;
use crate::config::tls_settings::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};

/// The most resumable sessions at a time, if any are allowed.
const SESSIONS_MAX: usize = 4096;

/// The ciphers of TLS 1.2 by OpenSSL's names.
const CIPHERS: [(&str, rustls::CipherSuite); 6] = {
    use rustls::CipherSuite as Suite;
    [
        (
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "ECDHE-RSA-AES128-GCM-SHA256",
            Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "ECDHE-RSA-AES256-GCM-SHA384",
            Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "ECDHE-RSA-CHACHA20-POLY1305",
            Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ]
};

/// The server's certificates, and its requirements for client certificates.
#[derive(Debug)]
pub(crate) struct Keys {
    settings: TlsSettings,
    read: RwLock<Read>,
}

/// The configurations read last, and the time of reading.
#[derive(Debug)]
struct Read {
    at: Instant,
    /// The Unix time at which the first certificate of the chain expires; `None` if it cannot be read.
    not_after_unix_s: Option<u64>,
    unasked: Arc<ServerConfig>,
    /// `None` without a certificate authority for client certificates.
    asked: Option<Arc<ServerConfig>>,
    required: Option<Arc<ServerConfig>>,
}

impl Keys {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or has a mistake; the error names it.
    pub(crate) fn load(settings: &TlsSettings) -> io::Result<Self> {
        Ok(Self {
            settings: settings.clone(),
            read: RwLock::new(read(settings)?),
        })
    }

    /// Reloads the files.
    ///
    /// # Errors
    /// As [`Self::load`]; nothing has changed then (K1).
    pub(crate) fn reload(&self) -> io::Result<()> {
        let anew = read(&self.settings)?;
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = anew;
        Ok(())
    }

    /// The time since the files were read.
    pub(crate) fn age(&self) -> Duration {
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        read.at.elapsed()
    }

    /// The Unix time in seconds at which the first certificate of the chain expires; `None` if it cannot be read.
    pub(crate) fn not_after_unix_s(&self) -> Option<u64> {
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        read.not_after_unix_s
    }

    /// The configuration of a new connection; `None` if it requests client certificates and the server has no
    /// certificate authority to check them.
    pub(super) fn config(&self, asked: ClientCertificate) -> Option<Arc<ServerConfig>> {
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        match asked {
            ClientCertificate::Unasked => Some(Arc::clone(&read.unasked)),
            ClientCertificate::Asked => read.asked.clone(),
            ClientCertificate::Required => read.required.clone(),
        }
    }
}

fn read(settings: &TlsSettings) -> io::Result<Read> {
    let provider = Arc::new(provider(settings)?);
    let chain = certificates(&settings.chain_cert)?;
    let key_path = settings.key.as_ref().unwrap_or(&settings.chain_cert);
    let key = private_key(key_path, settings.key_format)?;
    let roots = match &settings.ca_cert {
        None => None,
        Some(path) => Some(roots(path)?),
    };
    let versions: &[_] = match settings.min_version {
        TlsVersion::V1_2 => &[&TLS12, &TLS13],
        TlsVersion::V1_3 => &[&TLS13],
    };
    let config = |asked| -> io::Result<_> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| wrong("-o ssl_ciphers", error))?;
        let builder = match &roots {
            Some(roots) if asked != ClientCertificate::Unasked => {
                let roots = Arc::clone(roots);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
                let verifier = if asked == ClientCertificate::Asked {
                    verifier.allow_unauthenticated()
                } else {
                    verifier
                };
                let verifier = verifier.build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| wrong("-o ssl_ca_cert", error))?,
                )
            }
            Some(_) | None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| wrong(key_path.display(), error))?;
        if settings.session_cache {
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    };
    Ok(Read {
        at: Instant::now(),
        not_after_unix_s: chain.iter().filter_map(|one| not_after(one)).min(),
        unasked: config(ClientCertificate::Unasked)?,
        asked: match roots {
            Some(_) => Some(config(ClientCertificate::Asked)?),
            None => None,
        },
        required: match roots {
            Some(_) => Some(config(ClientCertificate::Required)?),
            None => None,
        },
    })
}

/// The cryptography provider, limited to the wanted ciphers.
fn provider(settings: &TlsSettings) -> io::Result<CryptoProvider> {
    let mut provider = ring::default_provider();
    if let Some(names) = &settings.ciphers {
        let mut wanted = Vec::new();
        for name in names {
            let known = CIPHERS.iter().find(|(known, _)| known == name);
            let (_, suite) = known.ok_or_else(|| {
                let all = CIPHERS.map(|(name, _)| name).join(" ");
                wrong(
                    "-o ssl_ciphers",
                    format!("unknown cipher `{name}`; choose from {all}"),
                )
            })?;
            wanted.push(*suite);
        }
        provider
            .cipher_suites
            .retain(|suite| suite.tls13().is_some() || wanted.contains(&suite.suite()));
    }
    Ok(provider)
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = file(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| wrong(path.display(), error))?;
    if certificates.is_empty() {
        return Err(wrong(path.display(), "the file contains no certificate"));
    }
    Ok(certificates)
}

fn private_key(path: &Path, format: KeyFormat) -> io::Result<PrivateKeyDer<'static>> {
    let bytes = file(path)?;
    match format {
        KeyFormat::Pem => PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|error| wrong(path.display(), format!("no private key: {error}"))),
        KeyFormat::Der => {
            PrivateKeyDer::try_from(bytes).map_err(|error| wrong(path.display(), error))
        }
    }
}

fn roots(path: &Path) -> io::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| wrong(path.display(), error))?;
    }
    Ok(Arc::new(roots))
}

fn file(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn wrong(place: impl Display, what: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{place}: {what}"))
}
