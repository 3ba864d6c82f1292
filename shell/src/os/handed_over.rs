//! Sockets that listen already, handed over by whoever has started the program: `LISTEN_FDS`.
//!
//! A port below 1024 is to be had so without ever being root, and while the server is started anew clients
//! wait instead of being refused.
//!
//! Source: `sd_listen_fds(3)`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use listenfd::ListenFd;

/// The sockets that were handed over, in order. They are taken once.
///
/// # Errors
/// One of them is no stream socket that listens.
pub(crate) fn sockets() -> io::Result<Vec<Arc<OwnedFd>>> {
    let mut handed_over = ListenFd::from_env();
    (0..handed_over.len())
        .map(|index| {
            let socket = match handed_over.take_tcp_listener(index) {
                Ok(socket) => socket.map(OwnedFd::from),
                Err(_) => handed_over.take_unix_listener(index)?.map(OwnedFd::from),
            };
            let gone = || io::Error::other("it was taken before");
            socket.map(Arc::new).ok_or_else(gone)
        })
        .collect()
}
