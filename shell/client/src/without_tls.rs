//! Replaces TLS in a build without the feature `tls`: types without values.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::io::{AsyncRead, AsyncWrite};

use super::socket::Stream;
use super::tls_options::TlsOptions;

/// TLS settings that cannot exist.
#[derive(Clone)]
pub(super) struct Tls(Infallible);

impl Tls {
    /// # Errors
    /// Always.
    pub(super) fn new(_: &TlsOptions, _: &str) -> Result<Self, String> {
        Err("this latchd was built without TLS (feature `tls`)".into())
    }

    pub(super) async fn begin(&self, _: Pin<Box<dyn Stream>>) -> io::Result<TlsStream> {
        match self.0 {}
    }
}

/// A stream that cannot exist.
pub(super) struct TlsStream(Infallible);

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}
