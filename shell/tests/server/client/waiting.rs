//! Helpers for tests of waiting: servers, and the patience of waits.

use std::net::TcpStream;
use std::num::NonZeroUsize;

use latchd_server::Server;

use super::{TestClient, start};

pub(crate) type Client = TestClient<TcpStream>;

/// The time of a wait that must end early: longer than a test is patient.
pub(crate) const LONG: &str = "w60000";

/// Servers with one thread, and with four and their many shards.
pub(crate) fn servers() -> [Server; 2] {
    [1, 4].map(|threads| start(|config| config.threads = NonZeroUsize::new(threads).unwrap()))
}
