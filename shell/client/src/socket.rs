//! An open socket to a server, as a stream of bytes.
//!
//! - K1: If the server closes the connection, its earlier bytes are still read, even if it accepts nothing
//!   more.
//! - K2: Waiting for input also sends the rest of an earlier write, and TLS's own messages. So a caller that
//!   sends and then waits for the reply needs no flush.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_io::Async;
use futures_lite::io::{AsyncRead, AsyncWrite};
#[cfg(target_os = "linux")]
use latchd_protocol::keepalive::Probes;
use rustix::net::sockopt;

use super::tls::explained;

/// The number of bytes read at a time.
const READ_BYTES: usize = 16 << 10;

/// The most bytes sent at a time. A longer write under TLS would encrypt for as long as the peer reads.
const SEND_BYTES: usize = 64 << 10;

/// The most bytes of an incomplete reply: the largest value that a server can be configured for, and its
/// line.
const INPUT_BYTES_MAX: usize = (1 << 30) + READ_BYTES;

/// Checks the length of an incomplete reply.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it exceeds [`INPUT_BYTES_MAX`].
pub(super) fn check_input(bytes: usize) -> io::Result<()> {
    if bytes > INPUT_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(())
}

/// The reply of a server that expects TLS and receives plain text. Source: RFC 8446, section 5.1: a record of
/// type alert, of a version from SSL 3.0 on.
const TLS_ALERT: &[u8] = &[0x15, 3];

/// Whether these bytes are from a server that expects TLS.
pub(super) fn is_tls_alert(bytes: &[u8]) -> bool {
    bytes.starts_with(TLS_ALERT)
}

/// The error for a reply that is not of this protocol.
pub(super) fn no_answer(bytes: &[u8]) -> io::Error {
    let why = if is_tls_alert(bytes) {
        "the server speaks TLS there, and this client does not: turn TLS on, as with --tls"
    } else {
        "these bytes are no answer of a cache server"
    };
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A stream of bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The descriptor of the socket.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

impl<S: AsFd> Stream for Async<S>
where
    Self: AsyncRead + AsyncWrite + Send + Unpin,
{
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

/// A socket that is being opened.
pub(super) type Opening = Pin<Box<dyn Future<Output = io::Result<Socket>> + Send>>;

/// An open socket.
pub(super) struct Socket {
    stream: Pin<Box<dyn Stream>>,
    /// The buffer for received bytes.
    chunk: Box<[u8]>,
    /// The peer accepts nothing more (K1).
    is_deaf: bool,
}

impl Socket {
    /// A socket on an open stream.
    pub(super) fn new(stream: Pin<Box<dyn Stream>>) -> Self {
        Self {
            stream,
            chunk: vec![0; READ_BYTES].into(),
            is_deaf: false,
        }
    }

    /// Sends some of `output`, or appends something received to `input`, whichever is possible first. Returns the number
    /// of bytes sent.
    ///
    /// # Errors
    /// The socket's; [`io::ErrorKind::UnexpectedEof`] if the peer has closed it.
    pub(super) fn poll_move(
        &mut self,
        context: &mut Context<'_>,
        output: &[u8],
        input: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        if !output.is_empty() && !self.is_deaf {
            match self.stream.as_mut().poll_write(context, at_once(output)) {
                Poll::Ready(Ok(bytes @ 1..)) => return Poll::Ready(Ok(bytes)),
                Poll::Ready(Ok(0) | Err(_)) => self.is_deaf = true,
                Poll::Pending => {}
            }
        }
        // K2; a failure to send does not matter (K1).
        let _ = self.stream.as_mut().poll_flush(context);
        let read = self.stream.as_mut().poll_read(context, &mut self.chunk);
        read.map(|read| match read.map_err(explained)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                input.extend_from_slice(self.chunk.get(..bytes).unwrap_or_default());
                Ok(0)
            }
        })
    }

    /// Sends some of `output`; if it is empty, flushes earlier bytes.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        output: &[u8],
    ) -> Poll<io::Result<usize>> {
        if output.is_empty() {
            let flushed = self.stream.as_mut().poll_flush(context);
            return flushed.map_ok(|()| 0);
        }
        self.stream.as_mut().poll_write(context, at_once(output))
    }

    /// Makes the system check that the server is reachable while nothing is sent. If the server or the
    /// network is silent for `within`, in whole seconds and at least two, the socket fails. Where the system
    /// has no such setting, its default applies, usually two hours.
    ///
    /// # Errors
    /// The kernel's; also for a Unix socket, which needs no such check.
    pub(super) fn probe(&self, within: Duration) -> io::Result<()> {
        sockopt::set_socket_keepalive(self.stream.descriptor(), true)?;
        #[cfg(target_os = "linux")]
        {
            let probes = Probes::within(within);
            sockopt::set_tcp_user_timeout(self.stream.descriptor(), probes.timeout_ms)?;
            sockopt::set_tcp_keepintvl(self.stream.descriptor(), probes.interval)?;
            // Last: it restarts the timer.
            sockopt::set_tcp_keepidle(self.stream.descriptor(), probes.idle)?;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = within;
        Ok(())
    }

    /// The descriptor of the socket.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.descriptor()
    }

    /// Copies the socket for programs to inherit.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn inheritable(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::dup(self.stream.descriptor())?)
    }
}

/// The part of `output` that one write sends.
fn at_once(output: &[u8]) -> &[u8] {
    output.get(..SEND_BYTES).unwrap_or(output)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::TcpListener;

    use async_io::block_on;

    use super::*;
    use crate::ClientOptions;
    use crate::connector::Connector;
    use crate::endpoint::Endpoint;

    #[test]
    fn incomplete_reply_has_a_bound() {
        assert!(check_input(INPUT_BYTES_MAX).is_ok());
        let error = check_input(INPUT_BYTES_MAX + 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_system_asks_whether_the_server_is_there() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        block_on(async {
            let endpoint = Endpoint::parse(&address).unwrap();
            let connector = Connector::new(endpoint, None, &ClientOptions::new()).unwrap();
            let socket = connector.open().await.unwrap();
            let stream = socket.stream.descriptor();
            assert!(!sockopt::socket_keepalive(stream).unwrap());
            socket.probe(Duration::from_secs(10)).unwrap();
            assert!(sockopt::socket_keepalive(stream).unwrap());
            let timeout_ms = sockopt::tcp_user_timeout(stream).unwrap();
            assert!((5_000..=10_000).contains(&timeout_ms), "{timeout_ms}");
            assert!(sockopt::tcp_keepidle(stream).unwrap() <= Duration::from_secs(5));
        });
    }
}
