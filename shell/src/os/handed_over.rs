//! Socket activation: listening sockets that the parent process hands over (`LISTEN_FDS`).
//!
//! With it a server can use a port below 1024 without root. While the server restarts, clients wait instead of
//! being refused.
//!
//! As in `sd_listen_fds(3)`, `LISTEN_PID` must name this process. Otherwise the variables are those of a parent, and
//! descriptor 3 may be any socket.

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use listenfd::ListenFd;

/// Whether the variables are for this process.
fn are_ours() -> bool {
    let pid = env::var("LISTEN_PID").ok();
    pid.and_then(|pid| pid.parse().ok()) == Some(std::process::id())
}

/// The warning about sockets that are for another process, if there are any.
pub(crate) fn warning() -> Option<String> {
    let is_set = env::var_os("LISTEN_FDS").is_some_and(|number| !number.is_empty());
    (is_set && !are_ours()).then(|| {
        "ignoring LISTEN_FDS: LISTEN_PID does not name this process; start latchd directly or with `exec`"
            .to_owned()
    })
}

/// The inherited sockets, in order. They can be taken once.
///
/// # Errors
/// The system's, if a descriptor is not a listening stream socket.
pub(crate) fn sockets() -> io::Result<Vec<Arc<OwnedFd>>> {
    if !are_ours() {
        return Ok(Vec::new());
    }
    let mut handed_over = ListenFd::from_env();
    (0..handed_over.len())
        .map(|index| {
            let socket = match handed_over.take_tcp_listener(index) {
                Ok(socket) => socket.map(OwnedFd::from),
                Err(_) => handed_over.take_unix_listener(index)?.map(OwnedFd::from),
            };
            let taken = || io::Error::other("the socket was already taken");
            socket.map(Arc::new).ok_or_else(taken)
        })
        .collect()
}
