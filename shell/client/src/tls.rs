//! A client's socket under TLS.
//!
//! - S1: No request is sent before the server's identity is verified.
//! - S2: Reading also sends the session's own messages and the rest of an earlier write. So a caller that
//!   sends and then waits for the reply needs no flush.
//! - S3: If the server closes the connection, its earlier bytes are still read, even if it accepts nothing
//!   more or does not announce the close: each reply has an end of its own.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_lite::io::{AsyncRead, AsyncWrite};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore};

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
    pub(super) async fn begin(&self, socket: Pin<Box<dyn Stream>>) -> io::Result<TlsStream> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let session = session.map_err(|error| explained(&error))?;
        let mut stream = TlsStream { socket, session };
        poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
    }
}

/// A socket under TLS.
pub(super) struct TlsStream {
    socket: Pin<Box<dyn Stream>>,
    session: ClientConnection,
}

/// A non-blocking socket: waiting is reported as [`io::ErrorKind::WouldBlock`].
struct AtOnce<'a, 'b> {
    socket: Pin<&'a mut dyn Stream>,
    context: &'a mut Context<'b>,
}

impl TlsStream {
    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if !self.send_records(context)? {
                return Poll::Pending;
            }
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            match self.receive_records(context) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends the session's records; returns whether the socket has accepted all of them.
    fn send_records(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let (mut socket, session) = (
            AtOnce {
                socket: self.socket.as_mut(),
                context,
            },
            &mut self.session,
        );
        while session.wants_write() {
            match session.write_tls(&mut socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives records from the server; 0 is the end.
    fn receive_records(&mut self, context: &mut Context<'_>) -> io::Result<usize> {
        let bytes = self.session.read_tls(&mut AtOnce {
            socket: self.socket.as_mut(),
            context,
        })?;
        if let Err(error) = self.session.process_new_packets() {
            // Sends the server the reason, if it still reads.
            let _ = self.send_records(context);
            return Err(explained(&error));
        }
        Ok(bytes)
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            // S2; a failure to send does not matter (S3).
            let _ = self.send_records(context);
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                read => return Poll::Ready(read),
            }
            match self.receive_records(context) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.send_records(context)? {
            return Poll::Pending;
        }
        let taken = self.session.writer().write(bytes)?;
        // The next call sends the bytes that the socket does not accept now (S2).
        self.send_records(context)?;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.send_records(context)? {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        self.poll_flush(context)
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for AtOnce<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        at_once(self.socket.as_mut().poll_read(self.context, buffer))
    }
}

impl Write for AtOnce<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        at_once(self.socket.as_mut().poll_write(self.context, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn at_once<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// The message of a TLS error, with advice if the cause is not obvious.
fn explained(error: &rustls::Error) -> io::Error {
    use rustls::Error;
    let is_unknown = matches!(
        error,
        Error::InvalidCertificate(CertificateError::UnknownIssuer)
    );
    let is_expired = matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. }
        )
    );
    let is_early = matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }
        )
    );
    // rustls prints webpki's error without exporting its type.
    let is_authority = matches!(error, Error::InvalidCertificate(CertificateError::Other(other))
        if format!("{other:?}").contains("CaUsedAsEndEntity"));
    let is_of_another = matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    );
    let hint = if is_unknown {
        "; name the file of the authority that has signed it"
    } else if is_of_another {
        "; say the name that is in its certificate"
    } else if is_expired {
        "; renew the certificate of the server, or set the clock of this machine"
    } else if is_early {
        "; the certificate of the server is for later: is the clock of this machine right?"
    } else if is_authority {
        "; the server shows the certificate of an authority (CA:TRUE) as its own: give it one with CA:FALSE, which \
         that authority has signed"
    } else if let Error::InvalidMessage(_) = error {
        "; perhaps the server does not speak TLS there"
    } else if let Error::AlertReceived(AlertDescription::CertificateRequired) = error {
        "; show it a certificate that one of its authorities has signed"
    } else {
        ""
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
