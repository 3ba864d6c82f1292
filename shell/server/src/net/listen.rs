//! Listening sockets.
//!
//! - A port is bound with `SO_REUSEADDR`, so a restart does not wait for old connections.
//! - The listening socket has `TCP_NODELAY`, `SO_KEEPALIVE` and the options of [`dead_peer`]. On Linux every
//!   accepted socket inherits them, without a system call per connection.
//! - `*` is IPv4 and IPv6. An address family that the machine does not have is skipped, as long as the other
//!   one works.
//! - A member of a cluster binds its addresses and listens when its term begins (E11). Until then connections are refused,
//!   and no other server can bind the addresses.
//!
//! An error names its address; [`io::ErrorKind::AddrInUse`] is the one that callers distinguish.

mod unix;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::iter;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use self::unix::FileId;
use crate::config::listen_address::{ListenAddress, ListenTls};
use crate::config::tls_settings::ClientCertificate;
use crate::config::{Config, UnixSocket};
use crate::net::dead_peer;
use crate::net::transport::Security;

/// The backlog of [`ListenAddress::bind`], as in the standard library.
const PLAIN_BACKLOG: i32 = 128;

/// An address that clients connect to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// An address and the actual port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// A listening socket. Its drop removes the file of a Unix socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    address: Address,
    security: Security,
    /// The file of a Unix socket that this server removes.
    file: Option<FileId>,
    /// The path of that file until it has its name; `None` if it has it.
    beside: Option<PathBuf>,
    /// The backlog with which it is to listen; `None` if it listens already.
    waits_with: Option<u16>,
}

impl Listener {
    /// The address that clients connect to.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The transport security of its clients.
    pub(crate) fn security(&self) -> Security {
        self.security
    }

    /// Listens, unless it does.
    ///
    /// # Errors
    /// The kernel's, with the address.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let Some(backlog) = self.waits_with else {
            return Ok(());
        };
        let begin = || {
            if let Address::Tcp(_) = self.address {
                sockopt::set_socket_reuseaddr(&self.socket, true)?;
            }
            rustix::net::listen(&self.socket, i32::from(backlog))?;
            match (&self.beside, &self.address) {
                (Some(beside), Address::Unix(path)) => unix::name(beside, path),
                (Some(_) | None, _) => Ok(()),
            }
        };
        begin().map_err(|errno| explain(&errno.into(), &self.address))
    }

    /// Accepts the next waiting client: its socket and its address.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::WouldBlock`] if no client is waiting.
    pub(crate) fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<SocketAddrAny>)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        rustix::net::acceptfrom_with(&self.socket, flags)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Address::Unix(path) = &self.address else {
            return;
        };
        for path in iter::once(path).chain(&self.beside) {
            if self.file.is_some()
                && unix::file_id(path) == self.file
                && let Err(error) = std::fs::remove_file(path)
            {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
    }
}

/// Listens on all configured addresses.
///
/// # Errors
/// The first address that fails, by name; then no socket listens.
pub(crate) fn listen(config: &Config) -> io::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for wanted in &config.listen {
        let security = security(wanted.tls, config);
        let listen = |address| listen_tcp(address, security, config);
        listeners.extend(on_each_address(wanted, listen)?);
    }
    if let Some(unix_socket) = &config.unix_socket {
        listeners.push(
            unix::bind(unix_socket, config)
                .map_err(|error| explain(&error, &unix_socket.path.display()))?,
        );
    }
    if !config.is_member() {
        listeners.iter().try_for_each(Listener::begin)?;
    }
    for socket in &config.sockets {
        let explain = |error: io::Error| {
            let what = format!("cannot use an inherited socket: {error}");
            io::Error::new(error.kind(), what)
        };
        listeners.push(take_over(socket, config).map_err(explain)?);
    }
    if listeners.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there is no address to listen on",
        ));
    }
    Ok(listeners)
}

impl ListenAddress {
    /// Listens on every address of this name, without the socket options of a server.
    ///
    /// # Errors
    /// The first address that fails, by name; then no socket listens.
    pub fn bind(&self) -> io::Result<Vec<TcpListener>> {
        on_each_address(self, |address| {
            let socket = bind_tcp(address, true)?;
            rustix::net::listen(&socket, PLAIN_BACKLOG)?;
            rustix::io::ioctl_fionbio(&socket, false)?;
            Ok(TcpListener::from(socket))
        })
    }

    /// The addresses of this name.
    fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if self.is_any() {
            let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            return Ok(any.map(|ip| SocketAddr::new(ip, self.port)).to_vec());
        }
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        Ok(addresses.collect())
    }

    fn is_any(&self) -> bool {
        self.host == "*"
    }

    /// Whether an error means that the machine lacks the family of an address.
    fn has_no_family(&self, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            Some(Errno::AFNOSUPPORT) => true,
            // IPv6 exists but is disabled.
            Some(Errno::ADDRNOTAVAIL) => self.is_any(),
            Some(_) | None => false,
        }
    }
}

impl UnixSocket {
    /// Whether a stopped server has left its socket at the path, so a start replaces it; `false` if nothing is there.
    ///
    /// # Errors
    /// A server listens there, or another file is there. A start fails with the same error.
    pub fn is_left_over(&self) -> io::Result<bool> {
        unix::is_stale(&self.path).map_err(|error| explain(&error, &self.path.display()))
    }
}

/// Calls `listen` with every address of `wanted`.
///
/// # Errors
/// The first address that fails, by name. An address of a family that the machine lacks counts only if no
/// other address works.
fn on_each_address<T>(
    wanted: &ListenAddress,
    listen: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let addresses = wanted
        .addresses()
        .map_err(|error| explain(&error, wanted))?;
    let (mut listening, mut missing) = (Vec::new(), None);
    for address in addresses {
        match listen(address) {
            Ok(listener) => listening.push(listener),
            Err(error) if wanted.has_no_family(&error) => {
                missing.get_or_insert_with(|| explain(&error, &address));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let why = format!(
                    "{error}: ports below 1024 require root, and -u drops it before listening; choose a port from \
                     1024 up, or use socket activation"
                );
                return Err(explain(&io::Error::new(error.kind(), why), &address));
            }
            Err(error) => return Err(explain(&error, &address)),
        }
    }
    match missing {
        Some(error) if listening.is_empty() => Err(error),
        Some(_) | None => Ok(listening),
    }
}

/// The transport security of an address, from its own prefix and the server's settings.
fn security(wanted: ListenTls, config: &Config) -> Security {
    let Some(tls) = &config.tls else {
        return Security::Plain;
    };
    match wanted {
        ListenTls::Usual => Security::Tls(tls.client_certificate),
        ListenTls::Never => Security::Plain,
        ListenTls::Basic => Security::Tls(ClientCertificate::Unasked),
        ListenTls::Mutual => Security::Tls(ClientCertificate::Required),
    }
}

fn explain(error: &io::Error, address: &dyn fmt::Display) -> io::Error {
    let why = if error.kind() == io::ErrorKind::AddrInUse {
        "address in use; stop the other server or choose another address with -p, -l or -s".into()
    } else if error.kind() == io::ErrorKind::AddrNotAvailable {
        "the machine has no such address; choose one of its own with -l, or all with -l '*'".into()
    } else {
        error.to_string()
    };
    let what = format!("cannot listen on {address}: {why}");
    io::Error::new(error.kind(), what)
}

fn listen_tcp(address: SocketAddr, security: Security, config: &Config) -> io::Result<Listener> {
    let socket = if config.is_member() {
        bind_alone(address)?
    } else {
        bind_tcp(address, true)?
    };
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    dead_peer::close(&socket, dead_peer::without_locks(config.dead_peer))?;
    let address = rustix::net::getsockname(&socket)?;
    let address = SocketAddr::try_from(address)?;
    Ok(Listener {
        socket,
        address: Address::Tcp(address),
        security,
        file: None,
        beside: None,
        waits_with: Some(config.backlog),
    })
}

/// Binds an address that is not listened on yet, so that no other socket can be bound to it.
///
/// The kernel binds any number of sockets with `SO_REUSEADDR` to an address on which none listens. So this socket has the
/// option only while it is bound, and only if the connections of a server before it require that.
fn bind_alone(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    match bind_tcp(address, false) {
        Err(Errno::ADDRINUSE) => {
            let socket = bind_tcp(address, true)?;
            sockopt::set_socket_reuseaddr(&socket, false)?;
            Ok(socket)
        }
        bound => bound,
    }
}

fn bind_tcp(address: SocketAddr, reuses: bool) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, reuses)?;
    if address.is_ipv6() {
        // Otherwise `::` would take the IPv4 port too, and a second `-l 0.0.0.0` would fail.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Gives an inherited listening socket the options of [`listen_tcp`] and [`unix::bind`].
fn take_over(socket: &OwnedFd, config: &Config) -> io::Result<Listener> {
    let socket = socket.try_clone()?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    let address = rustix::net::getsockname(&socket)?;
    let (address, security) = if let Ok(address) = SocketAddr::try_from(address.clone()) {
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        dead_peer::close(&socket, dead_peer::without_locks(config.dead_peer))?;
        let usual = security(ListenTls::Usual, config);
        (Address::Tcp(address), usual)
    } else {
        let unix = SocketAddrUnix::try_from(address)?;
        let path = unix.path_bytes().unwrap_or_default();
        let path = PathBuf::from(OsStr::from_bytes(path));
        (Address::Unix(path), Security::Plain)
    };
    Ok(Listener {
        socket,
        address,
        security,
        file: None,
        beside: None,
        waits_with: None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    #[cfg(feature = "cluster")]
    use latchd_cluster::{AuthorityOptions, ClusterSettings};

    use super::*;
    use crate::config::UnixSocket;
    use crate::config::listen_address::ListenAddress;

    fn config(port: u16) -> Config {
        Config {
            listen: vec![ListenAddress::loopback(port)],
            ..Config::default()
        }
    }

    pub(super) fn temporary_path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("latchd-{}-{name}.sock", std::process::id()))
    }

    pub(super) fn unix_config(path: &Path) -> Config {
        Config {
            listen: Vec::new(),
            unix_socket: Some(UnixSocket {
                path: path.into(),
                mode: 0o700,
            }),
            ..Config::default()
        }
    }

    #[test]
    fn accepted_socket_inherits_the_options() {
        let listener = listen(&config(0)).unwrap().remove(0);
        let Address::Tcp(address) = listener.address() else {
            panic!("TCP was asked for")
        };
        let _client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(
            sockopt::tcp_keepidle(&accepted).unwrap(),
            Duration::from_secs(12)
        );
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 51_000);
    }

    #[test]
    fn star_listens_on_both_families() {
        let any = ListenAddress::parse("*", 0).unwrap();
        let has_ipv6 = TcpListener::bind(("::1", 0)).is_ok();
        let mut wanted = config(0);
        wanted.listen = vec![any.clone()];
        let listeners = listen(&wanted).unwrap();
        let is_ipv6 = listeners.iter().map(|listener| match listener.address() {
            Address::Tcp(address) => address.is_ipv6(),
            Address::Unix(_) => panic!("TCP was asked for"),
        });
        let expected: &[_] = if has_ipv6 { &[false, true] } else { &[false] };
        assert!(is_ipv6.eq(expected.iter().copied()));
        assert_eq!(any.bind().unwrap().len(), expected.len());
        // Only a missing address family is skipped.
        let absent = io::Error::from(Errno::AFNOSUPPORT);
        let bind = |address: SocketAddr| {
            if address.is_ipv6() {
                return Err(io::Error::from(Errno::ADDRNOTAVAIL));
            }
            Ok(address)
        };
        assert_eq!(on_each_address(&any, bind).unwrap().len(), 1);
        assert!(any.has_no_family(&absent));
        assert!(on_each_address(&any, |_| Err::<(), _>(Errno::ADDRINUSE.into())).is_err());
        assert!(on_each_address(&any, |_| Err::<(), _>(Errno::AFNOSUPPORT.into())).is_err());
    }

    #[test]
    fn port_in_use_is_named() {
        let listener = listen(&config(0)).unwrap().remove(0);
        let Address::Tcp(address) = listener.address() else {
            panic!("TCP was asked for")
        };
        let error = listen(&config(address.port())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let expected = format!(
            "cannot listen on {address}: address in use; stop the other server or choose another address with -p, -l or -s"
        );
        assert_eq!(error.to_string(), expected);
    }

    #[cfg(feature = "cluster")]
    fn standby(mut config: Config) -> Config {
        let authority = AuthorityOptions::new(vec!["http://127.0.0.1:1".parse().unwrap()]);
        let settings = ClusterSettings::new(authority, "shop".into(), "a:1".into());
        config.cluster = Some(settings);
        config
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn standby_has_its_port_alone() {
        let listener = listen(&standby(config(0))).unwrap().remove(0);
        let Address::Tcp(address) = *listener.address() else {
            panic!("TCP was asked for")
        };
        let expected = format!(
            "cannot listen on {address}: address in use; stop the other server or choose another address with -p, -l or -s"
        );
        let refused = || {
            for other in [standby(config(address.port())), config(address.port())] {
                let error = listen(&other).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
                assert_eq!(error.to_string(), expected);
            }
        };
        refused();
        assert!(std::net::TcpStream::connect(address).is_err(), "E11");
        listener.begin().unwrap();
        refused();
        // The server ends first, so its end of the connection outlives it.
        let client = std::net::TcpStream::connect(address).unwrap();
        drop(listener.accept().unwrap());
        drop((listener, client));
        let listener = listen(&standby(config(address.port()))).unwrap().remove(0);
        refused();
        listener.begin().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        listener.accept().unwrap();
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn standby_has_its_unix_socket_alone() {
        let path = temporary_path("standby");
        let wanted = standby(unix_config(&path));
        let listener = listen(&wanted).unwrap().remove(0);
        let error = listen(&wanted).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        listener.begin().unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
    }
}
