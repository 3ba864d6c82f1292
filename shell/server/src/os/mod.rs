//! What the server asks of the system: memory and files.
//!
//! Uses nothing of the server.

pub(crate) mod headroom;
pub(crate) mod pages;
pub(crate) mod replaced;
