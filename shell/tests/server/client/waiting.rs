//! Helpers for tests of waiting: servers, the patience of waits, and the ends of clients.

use std::net::{Shutdown, TcpStream};
use std::num::NonZeroUsize;
use std::time::Duration;

use latchd_server::Server;
use rustix::net::sockopt::set_socket_linger;

use super::{TestClient, start};

pub(crate) type Client = TestClient<TcpStream>;

/// A way for a client to end.
pub(crate) type End = fn(Client);

/// The time of a wait that must end early: longer than a test is patient.
pub(crate) const LONG: &str = "w60000";

/// The ways in which a connection can end, by name.
pub(crate) const ENDS: [(&str, End); 4] = [
    ("close", drop),
    ("quit", |mut client| {
        client.send("quit\r\n");
        client.rest();
    }),
    ("half-close", |mut client| {
        client.socket().shutdown(Shutdown::Write).unwrap();
        std::mem::forget(client);
    }),
    ("reset", reset),
];

/// Ends a connection by a reset.
pub(crate) fn reset(client: Client) {
    let socket = client.into_socket();
    set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
}

/// Servers with one thread, and with four and their many shards.
pub(crate) fn servers() -> [Server; 2] {
    [1, 4].map(|threads| start(|config| config.threads = NonZeroUsize::new(threads).unwrap()))
}
