//! Memory, files and threads of the operating system; the state directory.
//!
//! Uses no other part of the server.

pub(crate) mod headroom;
pub(crate) mod pages;
pub(crate) mod replaced;
pub(crate) mod state_dir;
pub(crate) mod threads;
