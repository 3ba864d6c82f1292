//! A connection to a server, for one who waits: bytes there, lines and values back.
//!
//! How it is opened, under TLS or not and as whom, is the client library's.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use latchd_client::Error;
use latchd_client::blocking::{self, Client};

/// The longest line of an answer, in bytes. Those of `stats` and of dumps are far below.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// What a server says that expects TLS and hears something else. Source: RFC 8446, section 5.1: a record of the type
/// alert.
const TLS_ALERT: &[u8] = &[0x15, 3];

/// Why a server does not answer. It says what, and not where.
#[derive(Debug)]
pub(super) enum Broken {
    /// It cannot be reached, or does not let us in.
    Unreachable(Error),
    /// It is silent for longer than it may be. What was asked may still be done.
    Silent(Duration),
    /// It has closed the connection, or the network has. What was asked may have been done.
    Closed,
    /// The socket's own error.
    Socket(io::Error),
    /// It does not speak memcached's protocols.
    Foreign,
    /// It expects TLS.
    Tls,
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => error.kind().fmt(formatter),
            Self::Socket(error) => error.fmt(formatter),
            Self::Silent(timeout) => {
                let secs = timeout.as_secs_f64();
                write!(formatter, "no answer for {secs} s; it may still be done")
            }
            Self::Closed => formatter.write_str("the connection is closed"),
            Self::Foreign => formatter.write_str("this is no answer of a cache server"),
            Self::Tls => formatter.write_str("the server speaks TLS there: add --tls"),
        }
    }
}

/// An open connection.
pub(super) struct Connection {
    stream: BufReader<blocking::Connection>,
    timeout: Duration,
    /// Until when the server may be silent because it was asked to wait: as long as that, and the timeout more.
    waits_until: Option<Instant>,
    is_closed: bool,
}

impl Connection {
    /// Connects, in the time that the client's options give it. `timeout` is theirs for an answer.
    ///
    /// # Errors
    /// [`Broken::Unreachable`].
    pub(super) fn open(client: &Client, timeout: Duration) -> Result<Self, Broken> {
        let stream = client.open().map_err(Broken::Unreachable)?;
        Ok(Self {
            stream: BufReader::new(stream),
            timeout,
            waits_until: None,
            is_closed: false,
        })
    }

    /// What is sent next asks the server to wait for so long before it answers, which adds to the timeout.
    pub(super) fn waits(&mut self, wait: Duration) {
        let patience = wait.saturating_add(self.timeout);
        self.waits_until = Instant::now().checked_add(patience);
    }

    /// Sends a request. A server that takes nothing more may have said why: that is still to be read.
    ///
    /// # Errors
    /// [`Broken::Silent`] if the server does not take it in time.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), Broken> {
        let stream = self.stream.get_mut();
        match stream.write_all(request).and_then(|()| stream.flush()) {
            Err(error) if is_timeout(&error) => Err(Broken::Silent(self.timeout)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The next line, with its end. `patiently` waits for it as long as it takes.
    ///
    /// # Errors
    /// [`Broken`]; a line without an end, or a longer one than any server sends, is [`Broken::Foreign`].
    pub(super) fn line(&mut self, patiently: bool) -> Result<Vec<u8>, Broken> {
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

    /// Hands `bytes` bytes of a value on, a piece at a time; the line end behind them is the last two.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) fn value(
        &mut self,
        mut bytes: u64,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Broken> {
        while bytes > 0 {
            let there = match self.stream.fill_buf() {
                Ok(there) => there,
                Err(error) => return Err(self.failed(error)),
            };
            let length = usize::try_from(bytes).map_or(there.len(), |bytes| bytes.min(there.len()));
            if length == 0 {
                return Err(self.closed());
            }
            take(there.get(..length).unwrap_or_default());
            self.stream.consume(length);
            bytes -= length as u64;
        }
        Ok(())
    }

    /// Whether the server has closed it.
    pub(super) const fn is_closed(&self) -> bool {
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
