//! A blocking connection to a server: sends bytes, and reads lines and values.
//!
//! The client library opens it, including TLS and login.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use latchd_client::Error;
use latchd_client::blocking::{self, Client};

use crate::output::Failure;

/// The longest line of a reply, in bytes. Lines of `stats` and of dumps are far shorter.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The most lines of statistics: more than those of `stats conns` with 65,536 connections.
const STATS_LINES_MAX: usize = 1 << 20;

/// A line of statistics: its name and its value.
pub(crate) type StatsLine = (Vec<u8>, String);

/// The reply of a TLS server to a request without TLS: a record of type alert. Source: RFC 8446, section 5.1.
const TLS_ALERT: &[u8] = &[0x15, 3];

/// Why there is no reply. The text does not name the server.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The server cannot be reached, or refuses the login.
    Unreachable(Error),
    /// No reply in time. The server may still execute the request.
    Silent(Duration),
    /// The server or the network closed the connection. The request may have been executed.
    Closed,
    /// The socket's own error.
    Socket(io::Error),
    /// The reply is not of a memcached protocol.
    Foreign,
    /// The server requires TLS.
    Tls,
    /// Standard output cannot be written.
    Unwritten(io::Error),
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Self::unavailable(broken.to_string())
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => error.kind().fmt(formatter),
            Self::Socket(error) | Self::Unwritten(error) => error.fmt(formatter),
            Self::Silent(timeout) => {
                let secs = timeout.as_secs_f64();
                write!(
                    formatter,
                    "no reply within {secs} s; the server may still execute the request"
                )
            }
            Self::Closed => formatter.write_str("the server closed the connection"),
            Self::Foreign => {
                formatter.write_str("the reply is not of a memcached protocol; check the address")
            }
            Self::Tls => formatter.write_str("the server requires TLS; add --tls"),
        }
    }
}

/// An open connection.
pub(crate) struct Connection {
    stream: BufReader<blocking::Connection>,
    timeout: Duration,
    /// The deadline of a reply to a request that asks the server to wait: that wait plus the timeout.
    waits_until: Option<Instant>,
    is_closed: bool,
}

impl Connection {
    /// Connects, within the timeout of the client's options. `timeout` is their limit for a reply.
    ///
    /// # Errors
    /// [`Broken::Unreachable`].
    pub(crate) fn open(client: &Client, timeout: Duration) -> Result<Self, Broken> {
        let stream = client.open().map_err(Broken::Unreachable)?;
        Ok(Self {
            stream: BufReader::new(stream),
            timeout,
            waits_until: None,
            is_closed: false,
        })
    }

    /// The next request asks the server to wait this long before it replies. The wait is added to the timeout.
    pub(crate) fn waits(&mut self, wait: Duration) {
        let patience = wait.saturating_add(self.timeout);
        self.waits_until = Instant::now().checked_add(patience);
    }

    /// Sends a request. If the server stops reading, its last reply may say why, so that is still read.
    ///
    /// # Errors
    /// [`Broken::Silent`] if the server does not read it in time.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), Broken> {
        let stream = self.stream.get_mut();
        match stream.write_all(request).and_then(|()| stream.flush()) {
            Err(error) if is_timeout(&error) => Err(Broken::Silent(self.timeout)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The next line, with its line end. `patiently` waits without a limit.
    ///
    /// # Errors
    /// [`Broken`]. A line without an end, or longer than [`LINE_BYTES_MAX`], is [`Broken::Foreign`].
    pub(crate) fn line(&mut self, patiently: bool) -> Result<Vec<u8>, Broken> {
        let mut line = Vec::new();
        loop {
            let left = LINE_BYTES_MAX.saturating_sub(line.len() as u64);
            match self.stream.by_ref().take(left).read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => return Ok(line),
                Ok(_) if line.is_empty() => return Err(self.closed()),
                Ok(_) if line.starts_with(TLS_ALERT) => return Err(Broken::Tls),
                Ok(_) => return Err(Broken::Foreign),
                Err(error) if is_timeout(&error) && (patiently || self.is_waiting()) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Sends a request for statistics. Returns its lines, or the line that refuses it.
    ///
    /// # Errors
    /// [`Broken`]; [`Broken::Foreign`] for more than [`STATS_LINES_MAX`] lines.
    pub(crate) fn stats(
        &mut self,
        request: &str,
    ) -> Result<Result<Vec<StatsLine>, Vec<u8>>, Broken> {
        self.send(format!("{request}\r\n").as_bytes())?;
        let mut lines = Vec::new();
        loop {
            let line = self.line(false)?;
            let line = line.trim_ascii_end();
            if line == b"END" {
                return Ok(Ok(lines));
            }
            let Some(rest) = line.strip_prefix(b"STAT ") else {
                return Ok(Err(line.to_vec()));
            };
            if lines.len() == STATS_LINES_MAX {
                return Err(Broken::Foreign);
            }
            let mut parts = rest.splitn(2, |byte| *byte == b' ');
            let name = parts.next().unwrap_or_default().to_vec();
            let value = parts.next().unwrap_or_default();
            lines.push((name, String::from_utf8_lossy(value).into_owned()));
        }
    }

    /// Writes `bytes` bytes of a value to `out`. The last two are the line end.
    ///
    /// # Errors
    /// [`Broken`]; [`Broken::Unwritten`] for an error of `out`.
    pub(crate) fn value(&mut self, mut bytes: u64, out: &mut impl Write) -> Result<(), Broken> {
        while bytes > 0 {
            let there = match self.stream.fill_buf() {
                Ok(there) => there,
                Err(error) => return Err(self.failed(error)),
            };
            let length = usize::try_from(bytes).map_or(there.len(), |bytes| bytes.min(there.len()));
            if length == 0 {
                return Err(self.closed());
            }
            let piece = there.get(..length).unwrap_or_default();
            out.write_all(piece).map_err(Broken::Unwritten)?;
            self.stream.consume(length);
            bytes -= length as u64;
        }
        Ok(())
    }

    /// Whether the server has closed the connection.
    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn is_waiting(&self) -> bool {
        self.waits_until.is_some_and(|end| Instant::now() < end)
    }

    fn closed(&mut self) -> Broken {
        self.is_closed = true;
        Broken::Closed
    }

    fn failed(&mut self, error: io::Error) -> Broken {
        if is_timeout(&error) {
            Broken::Silent(self.timeout)
        } else if error.kind() == io::ErrorKind::ConnectionReset {
            self.closed()
        } else {
            Broken::Socket(error)
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
