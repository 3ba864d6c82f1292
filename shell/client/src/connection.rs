//! A connection for programs that speak the protocol.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_io::Timer;
use futures_lite::future::FutureExt;

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
        let opened = async_io::block_on(pool.connector().clone().open());
        let socket = opened.map_err(|error| pool.error(ErrorKind::of_socket(error)))?;
        Ok(Self {
            socket,
            patience: pool.reply_timeout(),
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
        self.take(buffer, |socket, unread| {
            at_once(|context| socket.poll_move(context, &[], unread))
        })
    }

    /// Writes as many bytes as the connection accepts without waiting. Call [`try_flush`](Self::try_flush) behind it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it accepts none; the socket's.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let socket = &mut self.socket;
        at_once(|context| socket.poll_send(context, bytes))
    }

    /// Sends bytes that the connection has accepted and keeps, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if some are left: try again when the descriptor is writable; the socket's.
    pub fn try_flush(&mut self) -> io::Result<()> {
        let socket = &mut self.socket;
        at_once(|context| socket.poll_send(context, &[])).map(drop)
    }

    /// Hands over received bytes, after this step if there are none.
    fn take(
        &mut self,
        buffer: &mut [u8],
        step: impl FnOnce(&mut Socket, &mut Vec<u8>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.unread.is_empty() {
            match step(&mut self.socket, &mut self.unread) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                received => received?,
            };
        }
        let bytes = self.unread.as_slice().read(buffer)?;
        self.unread.drain(..bytes);
        Ok(bytes)
    }
}

/// The socket's descriptor, which does not block: for waiting until it is ready.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The result of a step that does not wait.
fn at_once<T>(step: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>) -> io::Result<T> {
    match step(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Waits for a future, within a limit.
fn within<T>(patience: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    async_io::block_on(work.or(async {
        Timer::after(patience).await;
        Err(io::ErrorKind::TimedOut.into())
    }))
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let patience = self.patience;
        self.take(buffer, |socket, unread| {
            let moved = poll_fn(|context| socket.poll_move(context, &[], unread));
            within(patience, moved)
        })
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let socket = &mut self.socket;
        within(
            self.patience,
            poll_fn(|context| socket.poll_send(context, bytes)),
        )
    }

    fn flush(&mut self) -> io::Result<()> {
        let socket = &mut self.socket;
        let flushed = within(
            self.patience,
            poll_fn(|context| socket.poll_send(context, &[])),
        );
        flushed.map(drop)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}
