//! Socket activation: listening sockets that the parent process hands over (`LISTEN_FDS`).
//!
//! With it a server can use a port below 1024 without root. While the server restarts, clients wait instead of
//! being refused.
//!
//! Source: `sd_listen_fds(3)`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use listenfd::ListenFd;

/// The inherited sockets, in order. They can be taken once.
///
/// # Errors
/// The system's, if a descriptor is not a listening stream socket.
pub(crate) fn sockets() -> io::Result<Vec<Arc<OwnedFd>>> {
    let mut handed_over = ListenFd::from_env();
    (0..handed_over.len())
        .map(|index| {
            let socket = match handed_over.take_tcp_listener(index) {
                Ok(socket) => socket.map(OwnedFd::from),
                Err(_) => handed_over.take_unix_listener(index)?.map(OwnedFd::from),
            };
            let gone = || io::Error::other("the socket was already taken");
            socket.map(Arc::new).ok_or_else(gone)
        })
        .collect()
}
