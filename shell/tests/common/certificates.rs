//! Certificates for tests, made anew each time, and a client that trusts them.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use latchd_server::{Config, TlsSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A client's end of TLS.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A certificate authority, and a folder for its certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate and its key, in PEM files.
#[derive(Clone)]
pub(crate) struct Certified {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("latchd-certificates-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, format!("test authority {number}"));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { issuer, folder };
        std::fs::write(authority.certificate(), authority.issuer.pem()).unwrap();
        authority
    }

    /// Its own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// The same, as a client is given it.
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The folder, which goes with it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Certifies a new key for localhost and 127.0.0.1.
    pub(crate) fn certify(&self, name: &str) -> Certified {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let certified = Certified {
            chain: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        };
        std::fs::write(&certified.chain, certificate.pem()).unwrap();
        std::fs::write(&certified.key, key.serialize_pem()).unwrap();
        certified
    }

    /// The settings of a server that shows this certificate.
    pub(crate) fn settings(&self, certified: &Certified) -> TlsSettings {
        let mut settings = TlsSettings::new(certified.chain.clone());
        settings.key = Some(certified.key.clone());
        settings.ca_cert = Some(self.certificate());
        settings
    }

    /// Has a server speak TLS.
    pub(crate) fn secure(&self, config: &mut Config) {
        config.tls = Some(self.settings(&self.certify("server")));
    }

    /// A client that believes it, and shows a certificate or none.
    pub(crate) fn client(&self, shown: Option<&Certified>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let chain = CertificateDer::from_pem_file(&shown.chain).unwrap();
                let key = PrivateKeyDer::from_pem_file(&shown.key).unwrap();
                builder.with_client_auth_cert(vec![chain], key).unwrap()
            }
        })
    }

    /// Connects with a client that shows no certificate; the handshake comes with the first byte.
    pub(crate) fn connect(&self, address: SocketAddr) -> TlsStream {
        connect(self.client(None), address)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // Leftovers in a temporary folder do no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Connects; the handshake comes with the first byte.
pub(crate) fn connect(config: Arc<ClientConfig>, address: SocketAddr) -> TlsStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket)
}
