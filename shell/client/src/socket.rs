//! An open socket to a server: what is sent to and received from, and nothing of what is said.
//!
//! - K1: what a server has said before it closed is read, also if it takes nothing more.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::io::{AsyncRead, AsyncWrite};
#[cfg(target_os = "linux")]
use latchd_core::keepalive::Probes;
use rustix::net::sockopt;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 16 << 10;

/// The most that an unfinished answer may take, in bytes: the largest value a server can be
/// configured for, and its line.
pub(super) const INPUT_BYTES_MAX: usize = (1 << 30) + READ_BYTES;

/// What a server says that expects TLS and hears something else. Source: RFC 8446, section 5.1: a record of the type
/// alert, of a version from SSL 3.0 on.
const TLS_ALERT: &[u8] = &[0x15, 3];

/// Whether these bytes are from a server that expects TLS.
pub(super) fn is_tls_alert(bytes: &[u8]) -> bool {
    bytes.starts_with(TLS_ALERT)
}

/// The error that bytes are which no server answers.
pub(super) fn no_answer(bytes: &[u8]) -> io::Error {
    let why = if is_tls_alert(bytes) {
        "the server speaks TLS there, and this client does not: turn TLS on, as with --tls"
    } else {
        "these bytes are no answer of a cache server"
    };
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// What bytes go through, in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + AsFd + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + AsFd + Send + Unpin> Stream for S {}

/// A socket that is being opened.
pub(super) type Opening = Pin<Box<dyn Future<Output = io::Result<Socket>> + Send>>;

/// An open socket.
pub(super) struct Socket {
    stream: Pin<Box<dyn Stream>>,
    /// Where bytes arrive.
    chunk: Box<[u8]>,
    /// The peer takes nothing more (K1).
    is_deaf: bool,
}

/// What a socket has done.
pub(super) enum Moved {
    /// So many bytes have gone.
    Sent(usize),
    /// So many bytes have [arrived](Socket::arrived).
    Received(usize),
}

impl Socket {
    /// A socket that is open.
    pub(super) fn new(stream: Pin<Box<dyn Stream>>) -> Self {
        Self {
            stream,
            chunk: vec![0; READ_BYTES].into(),
            is_deaf: false,
        }
    }

    /// Sends some of `output` or receives something, whichever is possible first.
    ///
    /// # Errors
    /// The socket's; [`io::ErrorKind::UnexpectedEof`] if the peer has closed it.
    pub(super) fn poll_move(
        &mut self,
        context: &mut Context<'_>,
        output: &[u8],
    ) -> Poll<io::Result<Moved>> {
        if !output.is_empty() && !self.is_deaf {
            match self.stream.as_mut().poll_write(context, output) {
                Poll::Ready(Ok(bytes @ 1..)) => return Poll::Ready(Ok(Moved::Sent(bytes))),
                Poll::Ready(Ok(0) | Err(_)) => self.is_deaf = true,
                Poll::Pending => {}
            }
        }
        let read = self.stream.as_mut().poll_read(context, &mut self.chunk);
        read.map(|read| match read? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => Ok(Moved::Received(bytes)),
        })
    }

    /// Sends some of `output`, or with none of it what is still on its way.
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
        self.stream.as_mut().poll_write(context, output)
    }

    /// The bytes that [`Moved::Received`] told of.
    pub(super) fn arrived(&self, bytes: usize) -> &[u8] {
        self.chunk.get(..bytes).unwrap_or_default()
    }

    /// Has the system find out whether the server is there while nothing is sent: if its machine or the way to
    /// it is silent for `within`, in whole seconds and at least two, the socket fails. Where the system cannot be
    /// told how long, it is as long as it likes, two hours as a rule.
    ///
    /// # Errors
    /// The kernel's; also of a Unix socket, which has no way that could fail.
    pub(super) fn probe(&self, within: Duration) -> io::Result<()> {
        sockopt::set_socket_keepalive(self.stream.as_fd(), true)?;
        #[cfg(target_os = "linux")]
        {
            let probes = Probes::within(within);
            sockopt::set_tcp_user_timeout(self.stream.as_fd(), probes.timeout_ms)?;
            sockopt::set_tcp_keepintvl(self.stream.as_fd(), probes.interval)?;
            // Last: it starts the clock anew.
            sockopt::set_tcp_keepidle(self.stream.as_fd(), probes.idle)?;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = within;
        Ok(())
    }

    /// A copy that programs inherit.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn inheritable(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::dup(self.stream.as_fd())?)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::TcpListener;

    use async_io::block_on;

    use super::*;
    use crate::ClientOptions;
    use crate::door::Door;
    use crate::endpoint::Endpoint;

    #[test]
    fn the_system_asks_whether_the_server_is_there() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        block_on(async {
            let endpoint = Endpoint::parse(&address).unwrap();
            let door = Door::new(endpoint, &ClientOptions::new()).unwrap();
            let socket = door.open().await.unwrap();
            let stream = socket.stream.as_fd();
            assert!(!sockopt::socket_keepalive(stream).unwrap());
            socket.probe(Duration::from_secs(10)).unwrap();
            assert!(sockopt::socket_keepalive(stream).unwrap());
            let timeout_ms = sockopt::tcp_user_timeout(stream).unwrap();
            assert!((5_000..=10_000).contains(&timeout_ms), "{timeout_ms}");
            assert!(sockopt::tcp_keepidle(stream).unwrap() <= Duration::from_secs(5));
        });
    }
}
