//! A server as a test sees it: connections that take bytes and give bytes back.

use std::io;
use std::time::Duration;

use crate::transcript::End;

/// A server, one connection a letter.
pub trait Peer {
    /// Sends bytes on a connection, which is opened at its first use. Bytes that the other side no
    /// longer takes are dropped; the next read shows that.
    ///
    /// # Errors
    /// The connection cannot be opened.
    fn send(&mut self, conn: char, bytes: &[u8]) -> io::Result<()>;

    /// Appends the bytes that a connection has received to `buffer`. If nothing has, waits for it
    /// as long as `patience` allows.
    ///
    /// # Errors
    /// The connection cannot be opened.
    fn receive(
        &mut self,
        conn: char,
        buffer: &mut Vec<u8>,
        patience: Patience,
    ) -> io::Result<Received>;

    /// Ends a connection from the client's side. Nothing is sent on it any more; after a half-close
    /// the replies can still be read.
    ///
    /// # Errors
    /// The connection cannot be opened.
    fn end(&mut self, conn: char, how: End) -> io::Result<()>;

    /// Lets time pass.
    fn wait(&mut self, span: Duration);

    /// Whether time passes only by [`wait`](Peer::wait), so that seconds are exact.
    fn owns_time(&self) -> bool;

    /// By how many seconds its clock may be late.
    fn late_s(&self) -> u64 {
        0
    }
}

/// How long to wait for bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// Bytes are due: wait until they must have come.
    Due,
    /// No bytes are due: wait long enough for unexpected ones to come.
    NotDue,
}

/// The result of waiting for bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Received {
    /// Bytes: at least one.
    Bytes,
    /// No bytes, and none will come: the server has closed.
    Closed,
    /// No bytes so far.
    Nothing,
}
