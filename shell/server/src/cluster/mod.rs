//! Several machines: the election of a partition's primary, and its authority.
//!
//! The folder uses no other part of the server.

pub(crate) mod etcd;
