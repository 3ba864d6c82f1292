//! The part of a process in a cluster: the authority, the hold, and the state that all threads share.
//!
//! The folder uses no other part of the server. The thread of the election is in `election.rs`.

pub(crate) mod answer_times;
pub(crate) mod etcd;
pub(crate) mod gate;
pub(crate) mod member;
pub(crate) mod partitions;
pub(crate) mod random_id;
