//! Connections of the load. The client library opens them, including TLS and login.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use latchd_client::blocking::Connection;
use latchd_load::Stream;

/// A socket without TLS: the program reads and writes it without the client library.
#[derive(Debug)]
pub(super) struct Plain(OwnedFd);

/// A connection under TLS.
#[derive(Debug)]
pub(super) struct Tls(Connection);

/// A connection that the client library has opened.
pub(super) trait Opened: Stream + Send + Sized {
    /// # Errors
    /// The system's.
    fn of(connection: Connection) -> io::Result<Self>;
}

impl Opened for Plain {
    fn of(connection: Connection) -> io::Result<Self> {
        // A copy of the descriptor, which stays open when the library closes its own.
        connection.as_fd().try_clone_to_owned().map(Self)
    }
}

impl Opened for Tls {
    fn of(connection: Connection) -> io::Result<Self> {
        Ok(Self(connection))
    }
}

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stream for Plain {}

impl Read for Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.try_flush()
    }
}

impl AsFd for Tls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stream for Tls {
    const KEEPS_INPUT: bool = true;
}
