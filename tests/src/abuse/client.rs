//! A client that breaks the usual manners: the attack decides when it reads, and how it closes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

/// How long any step may take before the row fails: longer than the worst stall seen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many requests [`Client::pipeline`] sends ahead.
const PIPELINED: usize = 1_000;

/// One connection to the server under attack.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Connecting fails, or there is no answer.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            reader: BufReader::new(socket),
        })
    }

    /// Connects many times.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_many(address: SocketAddr, count: usize) -> io::Result<Vec<Self>> {
        (0..count).map(|_| Self::connect(address)).collect()
    }

    /// Sends all of it, for as long as the server takes.
    ///
    /// # Errors
    /// The server has closed, or does not read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes.as_ref())
    }

    /// Sends as many bytes as the kernel takes at once, and drops the rest. Returns how many it
    /// sent.
    ///
    /// # Errors
    /// The server has closed.
    pub fn send_what_fits(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let socket = self.reader.get_mut();
        socket.set_nonblocking(true)?;
        let mut sent = 0;
        let result = loop {
            match socket.write(&bytes[sent..]) {
                Ok(0) => break Ok(sent),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(sent),
                Err(error) => break Err(error),
            }
        };
        socket.set_nonblocking(false)?;
        result
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the server has closed.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Sends a request of one line and reads an answer of one line.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::line`].
    pub fn ask(&mut self, request: &str) -> io::Result<String> {
        self.send(format!("{request}\r\n"))?;
        self.line()
    }

    /// Reads lines until one is `end`.
    ///
    /// # Errors
    /// As [`Client::line`].
    pub fn read_until(&mut self, end: &str) -> io::Result<()> {
        while self.line()? != end {}
        Ok(())
    }

    /// Reads and discards until `stop` returns true or the server closes.
    pub fn read_on(&mut self, stop: impl Fn() -> bool) {
        let mut buffer = vec![0; 256 << 10];
        let _ = self
            .reader
            .get_ref()
            .set_read_timeout(Some(Duration::from_millis(20)));
        while !stop() {
            match self.reader.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => return,
            }
        }
    }

    /// Reads at most `count` bytes that have arrived, without waiting.
    ///
    /// # Errors
    /// The server has closed.
    pub fn read_some(&mut self, count: usize) -> io::Result<()> {
        let socket = self.reader.get_mut();
        socket.set_nonblocking(true)?;
        let mut buffer = vec![0; count];
        let result = match socket.read(&mut buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        };
        socket.set_nonblocking(false)?;
        result
    }

    /// A second handle of the connection, to send on it while this one reads.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            reader: BufReader::new(self.reader.get_ref().try_clone()?),
        })
    }

    /// Sends all of it, but stops when `stop` returns true or the server has closed.
    pub fn send_on(mut self, bytes: &[u8], stop: impl Fn() -> bool) {
        let socket = self.reader.get_mut();
        let _ = socket.set_write_timeout(Some(Duration::from_millis(20)));
        let mut sent = 0;
        while sent < bytes.len() && !stop() {
            match socket.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether the server has closed, without waiting. Bytes that have come are dropped.
    pub fn is_closed(&mut self) -> bool {
        let socket = self.reader.get_mut();
        if socket.set_nonblocking(true).is_err() {
            return true;
        }
        let mut buffer = [0; 4096];
        let is_closed = loop {
            match socket.read(&mut buffer) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        is_closed || socket.set_nonblocking(false).is_err()
    }

    /// Sends `count` requests with one line of answer each, some at a time. Returns how many were
    /// answered with `expected`.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::line`].
    pub fn pipeline(
        &mut self,
        count: usize,
        expected: &str,
        mut write: impl FnMut(usize, &mut Vec<u8>),
    ) -> io::Result<usize> {
        let (mut sent, mut matching) = (0, 0);
        let mut bytes = Vec::new();
        while sent < count {
            let batch = PIPELINED.min(count - sent);
            bytes.clear();
            for index in sent..sent + batch {
                write(index, &mut bytes);
            }
            self.send(&bytes)?;
            for _ in 0..batch {
                matching += usize::from(self.line()? == expected);
            }
            sent += batch;
        }
        Ok(matching)
    }

    /// A line of `stats`; `None` if there is none of that name.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::line`].
    pub fn stat(&mut self, name: &str) -> io::Result<Option<u64>> {
        self.send("stats\r\n")?;
        let mut value = None;
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(value);
            }
            if let ["STAT", found, number] = line.split(' ').collect::<Vec<_>>()[..]
                && found == name
            {
                value = number.parse().ok();
            }
        }
    }

    /// Makes the receive buffer of the kernel small, so that unread replies stay in the server.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn receive_little(&self) -> io::Result<()> {
        SockRef::from(self.reader.get_ref()).set_recv_buffer_size(4096)
    }

    /// Ends the connection with a reset.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn reset(self) -> io::Result<()> {
        SockRef::from(self.reader.get_ref()).set_linger(Some(Duration::ZERO))
    }

    /// The socket: for a program that is to inherit it.
    #[must_use]
    pub fn into_socket(self) -> TcpStream {
        self.reader.into_inner()
    }
}
