//! Replaces TLS in a build without the feature `tls`: a type without values.

use std::convert::Infallible;
use std::future::Ready;
use std::io;
use std::pin::Pin;

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

    pub(super) fn begin(&self, _: Pin<Box<dyn Stream>>) -> Ready<io::Result<Pin<Box<dyn Stream>>>> {
        match self.0 {}
    }
}

/// The error of a stream.
pub(super) fn explained(error: io::Error) -> io::Error {
    error
}
