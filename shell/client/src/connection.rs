//! A connection for programs that speak the protocol.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::background::within;
use super::error::{Error, ErrorKind};
use super::pool::Pool;
use super::socket::Socket;

/// A connection for a program that speaks the protocol itself, as `latchd cli` does: bytes in both
/// directions, after the TLS handshake and the login.
///
/// Reading and writing fail with [`io::ErrorKind::TimedOut`] if nothing moves within the reply timeout of the
/// options. They can be tried again then.
pub struct Connection {
    socket: Socket,
    patience: Duration,
    /// Bytes that have arrived and were not read.
    unread: Vec<u8>,
}

impl Connection {
    pub(super) fn open(pool: &Pool) -> Result<Self, Error> {
        let opened = async_io::block_on(pool.connector.clone().open());
        let socket = opened.map_err(|error| pool.error(ErrorKind::of_socket(error)))?;
        Ok(Self {
            socket,
            patience: pool.options.reply_timeout,
            unread: Vec::new(),
        })
    }

    /// Reads bytes that have arrived, without waiting; 0 is the end.
    ///
    /// A program that waits on the [descriptor](AsFd) of a TLS connection must read until this fails with
    /// [`io::ErrorKind::WouldBlock`]: bytes that TLS keeps do not make the descriptor readable.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived; the socket's.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, Duration::ZERO)
    }

    /// Writes as many bytes as the connection accepts without waiting. Call [`try_flush`](Self::try_flush) behind it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it accepts none; the socket's.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes, Duration::ZERO)
    }

    /// Sends bytes that the connection has accepted and keeps, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if some are left: try again when the descriptor is writable; the socket's.
    pub fn try_flush(&mut self) -> io::Result<()> {
        self.send(&[], Duration::ZERO).map(drop)
    }

    /// Hands over received bytes. If there are none, it waits for some.
    fn receive(&mut self, buffer: &mut [u8], patience: Duration) -> io::Result<usize> {
        let (socket, unread) = (&mut self.socket, &mut self.unread);
        if unread.is_empty() {
            match wait(patience, |context| socket.poll_move(context, &[], unread)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                received => received?,
            };
        }
        let bytes = unread.as_slice().read(buffer)?;
        unread.drain(..bytes);
        Ok(bytes)
    }

    /// Sends some of these bytes; without any, flushes earlier ones.
    fn send(&mut self, bytes: &[u8], patience: Duration) -> io::Result<usize> {
        let socket = &mut self.socket;
        wait(patience, |context| socket.poll_send(context, bytes))
    }
}

/// The socket's descriptor, which does not block: for waiting until it is ready.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The result of a step within this time; with none, of a step that does not wait.
fn wait<T>(
    patience: Duration,
    mut step: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    if patience.is_zero() {
        return match step(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        };
    }
    let done = async_io::block_on(within(patience, poll_fn(step)));
    done.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, self.patience)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes, self.patience)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send(&[], self.patience).map(drop)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}
