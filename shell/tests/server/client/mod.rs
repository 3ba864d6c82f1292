//! A client for tests: a socket, lines, and a deadline for everything.

pub(crate) mod waiting;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use latchd_server::{Address, Config, ListenAddress, Server};

/// No answer takes this long; a test fails then instead of hanging.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a server on a free port; `change` sets values that differ from the default.
pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config::default();
    config.listen = vec![ListenAddress::loopback(0)];
    change(&mut config);
    Server::start(config).unwrap()
}

/// The server's first TCP address.
pub(crate) fn address(server: &Server) -> SocketAddr {
    let tcp = server.addresses().iter().find_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    });
    tcp.expect("the server listens on TCP")
}

/// One connection.
pub(crate) struct TestClient<S: Read + Write = TcpStream> {
    reader: BufReader<S>,
}

impl TestClient<TcpStream> {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            reader: BufReader::new(socket),
        }
    }
}

impl TestClient<UnixStream> {
    pub(crate) fn connect_unix(path: &std::path::Path) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            reader: BufReader::new(socket),
        }
    }
}

impl<S: Read + Write> TestClient<S> {
    /// A client of a connection that is there.
    pub(crate) fn new(stream: S) -> Self {
        Self {
            reader: BufReader::new(stream),
        }
    }

    pub(crate) fn socket(&mut self) -> &mut S {
        self.reader.get_mut()
    }

    pub(crate) fn into_socket(self) -> S {
        self.reader.into_inner()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket().write_all(bytes.as_ref()).unwrap();
    }

    /// The next line, without its end; empty if the server has closed.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends a request of one line and reads an answer of one line.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n"));
        self.line()
    }

    /// Reads exactly `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads until the server closes. A reset counts as closing: the server may close without
    /// having read all.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        if let Err(error) = self.reader.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
        rest
    }

    /// A line of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> String {
        self.send("stats\r\n");
        let mut value = None;
        loop {
            let line = self.line();
            if line == "END" {
                return value.unwrap_or_else(|| panic!("stats has no {name}"));
            }
            let mut words = line.split(' ').skip(1);
            if words.next() == Some(name) {
                value = words.next().map(ToOwned::to_owned);
            }
        }
    }
}
