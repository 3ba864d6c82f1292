//! The two servers as the comparison sees them: connections that take bytes and give bytes back.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant as Moment, SystemTime};

use latchd_core::connection::{Progress, WireLimits};
use latchd_core::engine::Config;
use latchd_core::{ConnId, Connection, Core, Event, Instant, Limits, Output};

/// How long an answer may take before it counts as none.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server.
pub trait Link {
    /// Sends bytes on a connection, which is opened at its first use.
    ///
    /// # Errors
    /// The connection cannot be opened, or breaks.
    fn send(&mut self, conn: u32, bytes: &[u8]) -> io::Result<()>;

    /// Puts what has come back behind `buffer`, waiting for it. `false` if nothing came, and
    /// nothing will: the server has closed, or says nothing more.
    ///
    /// # Errors
    /// The connection cannot be opened.
    fn receive(&mut self, conn: u32, buffer: &mut Vec<u8>) -> io::Result<bool>;

    /// Closes a connection. Its number may be used again, for a new one.
    fn close(&mut self, conn: u32);
}

/// A server behind an address.
#[derive(Debug)]
pub struct Socket {
    address: SocketAddr,
    streams: HashMap<u32, TcpStream>,
}

impl Socket {
    /// The server at `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            streams: HashMap::new(),
        }
    }

    fn stream(&mut self, conn: u32) -> io::Result<&mut TcpStream> {
        if !self.streams.contains_key(&conn) {
            let stream = TcpStream::connect(self.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            self.streams.insert(conn, stream);
        }
        self.streams
            .get_mut(&conn)
            .ok_or_else(|| io::Error::other("it was put there"))
    }
}

impl Link for Socket {
    fn send(&mut self, conn: u32, bytes: &[u8]) -> io::Result<()> {
        // A server that has closed takes no more; what it said before is still there to be read.
        let _ = self.stream(conn)?.write_all(bytes);
        Ok(())
    }

    fn receive(&mut self, conn: u32, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let mut chunk = [0; 16 << 10];
        Ok(match self.stream(conn)?.read(&mut chunk) {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                buffer.extend_from_slice(&chunk[..length]);
                true
            }
        })
    }

    fn close(&mut self, conn: u32) {
        self.streams.remove(&conn);
    }
}

/// latchd without sockets: the core and its connections, on the real clock.
#[derive(Debug)]
pub struct Local {
    core: Core,
    start: Moment,
    clients: HashMap<u32, Client>,
    opened: u64,
}

#[derive(Debug)]
struct Client {
    id: ConnId,
    connection: Connection,
    input: Vec<u8>,
    output: Vec<u8>,
    closed: bool,
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl Local {
    /// An empty core.
    #[must_use]
    pub fn new() -> Self {
        let unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_s = unix_s.map_or(0, |since| since.as_secs());
        Self {
            core: Core::new(Config::new(Limits::default(), unix_s)),
            start: Moment::now(),
            clients: HashMap::new(),
            opened: 0,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl Link for Local {
    fn send(&mut self, conn: u32, bytes: &[u8]) -> io::Result<()> {
        let now = self.now();
        let Self {
            core,
            clients,
            opened,
            ..
        } = self;
        let client = clients.entry(conn).or_insert_with(|| {
            *opened += 1;
            let id = ConnId::from_number(*opened);
            core.handle(now, Event::Opened(id));
            Client {
                id,
                connection: Connection::new(WireLimits::default()),
                input: Vec::new(),
                output: Vec::new(),
                closed: false,
            }
        });
        if client.closed {
            return Ok(());
        }
        client.input.extend_from_slice(bytes);
        let mut execute = core.at(now, client.id);
        let mut out = Output::new();
        let (consumed, progress) =
            client
                .connection
                .drive(&client.input, &mut execute, &mut out, usize::MAX);
        client.output.append(&mut out.into());
        client.input.drain(..consumed);
        if progress == Progress::Close {
            client.closed = true;
            core.handle(now, Event::Closed(client.id));
        }
        Ok(())
    }

    fn receive(&mut self, conn: u32, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let Some(client) = self.clients.get_mut(&conn) else {
            return Ok(false);
        };
        buffer.append(&mut client.output);
        // It answers at once or not at all.
        Ok(false)
    }

    fn close(&mut self, conn: u32) {
        let now = self.now();
        if let Some(client) = self.clients.remove(&conn)
            && !client.closed
        {
            self.core.handle(now, Event::Closed(client.id));
        }
    }
}
