//! The certificates for an etcd that is reached over TLS.
//!
//! - T1: All files are read and used once before the first request, so a fault is an error at the start.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use ureq::Error;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use zeroize::Zeroizing;

use super::error::AuthorityError;
use super::options::{AuthorityOptions, AuthorityUrl};

/// The settings of connections over TLS.
pub(super) type Tls = TlsConfig;

/// Reads the files; `None` if no endpoint uses TLS.
///
/// # Errors
/// A file cannot be read or is not usable; the error names it.
pub(super) fn read(options: &AuthorityOptions) -> io::Result<Option<Tls>> {
    if !options.endpoints.iter().any(AuthorityUrl::is_secure) {
        return Ok(None);
    }
    let authorities = match &options.ca_file {
        Some(path) => certificates(path)?,
        None => authorities_of_the_system()?,
    };
    let mut roots = RootCertStore::empty();
    for authority in &authorities {
        let added = roots.add(authority.clone());
        if let (Err(error), Some(path)) = (added, &options.ca_file) {
            return Err(wrong(path, error));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::clone(&provider))
        .root_certs(RootCerts::new_with_certs(&shared(&authorities)));
    let Some(chain_path) = &options.certificate else {
        return Ok(Some(tls.build()));
    };
    let chain = certificates(chain_path)?;
    let key_path = options.key.as_ref().unwrap_or(chain_path);
    let pem = Zeroizing::new(file(key_path)?);
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|error| wrong(key_path, format!("no private key: {error}")))?;
    let private_key = PrivateKey::from_pem(&pem).map_err(|error| wrong(key_path, error))?;
    let client = ClientCert::new_with_certs(&shared(&chain), private_key);
    // ureq does the same for each connection, and accepts no fault there (T1).
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| wrong(key_path, error))?;
    Ok(Some(tls.client_cert(Some(client)).build()))
}

fn shared(chain: &[CertificateDer<'_>]) -> Vec<Certificate<'static>> {
    let shared = chain
        .iter()
        .map(|one| Certificate::from_der(one).to_owned());
    shared.collect()
}

fn authorities_of_the_system() -> io::Result<Vec<CertificateDer<'static>>> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(found.certs);
    }
    let why = found.errors.first().map(|error| format!(": {error}"));
    let why = why.unwrap_or_default();
    Err(io::Error::other(format!(
        "--authority: the system trusts no certificate authority{why}; name a file with --authority-ca"
    )))
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = file(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| wrong(path, error))?;
    if certificates.is_empty() {
        return Err(wrong(path, "there is no certificate in it"));
    }
    Ok(certificates)
}

fn file(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| wrong(path, error))
}

fn wrong(path: &Path, what: impl Display) -> io::Error {
    io::Error::other(format!("--authority: {}: {what}", path.display()))
}

/// Adds the settings to those of an agent.
pub(super) fn configured(
    config: ConfigBuilder<AgentScope>,
    tls: Option<&Tls>,
) -> ConfigBuilder<AgentScope> {
    match tls {
        Some(tls) => config.tls_config(tls.clone()),
        None => config,
    }
}

/// The fault of TLS behind an error of a socket, if it is one.
pub(super) fn fault(error: &io::Error) -> Option<AuthorityError> {
    let fault = error.get_ref()?.downcast_ref()?;
    Some(explained(fault))
}

/// The meaning of an error of ureq, if TLS is the cause.
///
/// # Errors
/// The error itself, if not.
#[allow(clippy::wildcard_enum_match_arm)] // The enum is another crate's.
pub(super) fn meaning(error: Error) -> Result<AuthorityError, Error> {
    match error {
        Error::Rustls(fault) => Ok(explained(&fault)),
        other => Err(other),
    }
}

/// The meaning of a fault of TLS.
#[allow(clippy::wildcard_enum_match_arm)] // The enum is another crate's.
fn explained(error: &rustls::Error) -> AuthorityError {
    use rustls::Error;
    let unreachable = |hint: &str| AuthorityError::Unreachable(format!("TLS: {error}{hint}"));
    match error {
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        ) => AuthorityError::Authentication(format!(
            "TLS: {error}; present a client certificate that etcd trusts, with --authority-cert"
        )),
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => unreachable(
            "; name the authority that has signed the certificate of etcd, with --authority-ca",
        ),
        Error::InvalidMessage(_) => {
            unreachable("; if etcd does not speak TLS there, write http:// in the URL")
        }
        _ => unreachable(""),
    }
}
