//! A client's socket under TLS.
//!
//! - S1: No request is sent before the server's identity is verified.
//! - S2: If the server closes the connection, its earlier bytes are still read, even if it does not announce
//!   the close: each reply has an end of its own.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use futures_rustls::TlsConnector;
use futures_rustls::client::TlsStream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::socket::Stream;
use super::tls_options::TlsOptions;

/// The TLS settings for one server.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the files. `host` is the server's name, unless the options name another.
    ///
    /// # Errors
    /// A message for a person that names the file and the fault.
    pub(super) fn new(options: &TlsOptions, host: &str) -> Result<Self, String> {
        let name = options.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("`{name}` is no name that a certificate could have"))?;
        let roots = match &options.ca_file {
            Some(path) => authorities(path)?,
            None => authorities_of_the_system()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key_path)) => {
                let key = PrivateKeyDer::from_pem_slice(&file(key_path)?)
                    .map_err(|error| wrong(key_path, format!("no private key: {error}")))?;
                builder
                    .with_client_auth_cert(certificates(chain)?, key)
                    .map_err(|error| wrong(key_path, error))?
            }
        };
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }

    /// Performs the handshake over an open socket (S1).
    ///
    /// # Errors
    /// The socket's; [`io::ErrorKind::InvalidData`] with a message for a person if one side rejects the
    /// other's identity.
    pub(super) async fn begin(
        &self,
        socket: Pin<Box<dyn Stream>>,
    ) -> io::Result<Pin<Box<dyn Stream>>> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let handshake = connector.connect(self.name.clone(), socket);
        Ok(Box::pin(handshake.await.map_err(explained)?))
    }
}

impl Stream for TlsStream<Pin<Box<dyn Stream>>> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.get_ref().0.descriptor()
    }
}

/// An error of a stream; one of TLS gets advice if its cause is not obvious. TLS 1.3 reports some faults of the
/// handshake at the first read.
pub(super) fn explained(error: io::Error) -> io::Error {
    use rustls::Error;
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref()) else {
        return error;
    };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other errors of rustls speak for themselves"
    )]
    let hint = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "; name the file of the authority that has signed it"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; say the name that is in its certificate",
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "; renew the certificate of the server, or set the clock of this machine",
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "; the certificate of the server is for later: is the clock of this machine right?",
        Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "; the server shows the certificate of an authority (CA:TRUE) as its own: give it one with CA:FALSE, which \
             that authority has signed"
        }
        Error::InvalidMessage(_) => "; perhaps the server does not speak TLS there",
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "; show it a certificate that one of its authorities has signed"
        }
        _ => "",
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}{hint}"))
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(path, error))?;
    }
    Ok(roots)
}

/// The certificate authorities of the system; invalid ones are left out.
fn authorities_of_the_system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let why = found.errors.first().map(|error| format!(": {error}"));
    Err(format!(
        "the system trusts no certificate authority{}; name a file with one",
        why.unwrap_or_default()
    ))
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = file(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| wrong(path, error))?;
    if certificates.is_empty() {
        return Err(wrong(path, "there is no certificate in it"));
    }
    Ok(certificates)
}

fn file(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| wrong(path, error))
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", path.display())
}
